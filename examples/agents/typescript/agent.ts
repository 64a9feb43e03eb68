// An agent with tools, over the unchanged OpenAI Agents SDK and a hub on this machine.
//
//   npm start -- "What is the weather in Paris?"
//
// It prints what is said and called, and writes the spoken answer to reply.wav.

import { writeFileSync } from 'node:fs';
import { RealtimeAgent, RealtimeSession, tool } from '@openai/agents-realtime';
import { z } from 'zod';

const HUB_URL = process.env['HUB_URL'] ?? 'http://127.0.0.1:8080';
const RATE_HZ = 24_000;
/** The answer has begun by then. */
const DEADLINE_MS = 60_000;

// Your own function: ask a service, a database, a device.
const getWeather = tool({
  name: 'get_weather',
  description: 'Tells the present weather in a city.',
  parameters: z.object({ city: z.string() }),
  execute: ({ city }) => {
    const result = { city, weather: 'sunny', degrees: 21 };
    console.log(`called: get_weather(${city}) = ${JSON.stringify(result)}`);
    return result;
  },
});

const agent = new RealtimeAgent({ name: 'Guide', instructions: 'You help travellers. Be brief.', tools: [getWeather] });
const session = new RealtimeSession(agent, { transport: 'websocket', model: 'antiphon' });

const spoken: Buffer[] = [];
session.on('audio', ({ data }) => spoken.push(Buffer.from(data)));
const answered = new Promise<void>((done, failed) => {
  session.on('error', ({ error }) => failed(error));
  session.transport.on('*', (event) => {
    if (event.type === 'response.output_audio_transcript.done') console.log(`said: ${event['transcript']}`);
    if (event.type === 'response.done') {
      const { status, status_details: details } = event['response'];
      if (status === 'failed') failed(new Error(`the response failed: ${JSON.stringify(details)}`));
      // A response that calls a function is followed by one that speaks.
      else if (spoken.length > 0) done();
    }
  });
  setTimeout(() => failed(new Error(`no answer within ${DEADLINE_MS} ms`)), DEADLINE_MS).unref();
});

// A hub without keys takes any.
await session.connect({ apiKey: process.env['ANTIPHON_API_KEY'] ?? 'none', url: `${HUB_URL.replace(/^http/, 'ws')}/v1/realtime?model=antiphon` });
session.sendMessage(process.argv[2] ?? 'What is the weather in Paris?');
await answered;
session.close();

/** The head of a WAV file: PCM16, mono. */
function head(nBytes: number): Buffer {
  const bytes = Buffer.alloc(44);
  bytes.write('RIFF', 0);
  bytes.writeUInt32LE(36 + nBytes, 4);
  bytes.write('WAVEfmt ', 8);
  bytes.writeUInt32LE(16, 16);
  bytes.writeUInt16LE(1, 20);
  bytes.writeUInt16LE(1, 22);
  bytes.writeUInt32LE(RATE_HZ, 24);
  bytes.writeUInt32LE(RATE_HZ * 2, 28);
  bytes.writeUInt16LE(2, 32);
  bytes.writeUInt16LE(16, 34);
  bytes.write('data', 36);
  bytes.writeUInt32LE(nBytes, 40);
  return bytes;
}
const sound = Buffer.concat(spoken);
writeFileSync('reply.wav', Buffer.concat([head(sound.length), sound]));
console.log(`wrote: reply.wav, ${(sound.length / 2 / RATE_HZ).toFixed(1)} s`);
