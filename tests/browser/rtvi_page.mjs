// The page of rtvi.test.mjs: pipecat's client, unchanged, with its WebSocket transport. The test drives it by `window.bot`.

import { PipecatClient, RTVIEvent } from '@pipecat-ai/client-js';
import { WavMediaManager, WebSocketTransport } from '@pipecat-ai/websocket-transport';

const seen = { events: [], states: [], errors: [], calls: [], bytes: 0, loudest: 0 };

/** Counts the reply's sound on its way to the player. */
class CountingManager extends WavMediaManager {
  bufferBotAudio(data, id) {
    const samples = new Int16Array(data.buffer ?? data);
    seen.bytes += samples.length * 2;
    seen.loudest = Math.max(seen.loudest, ...samples.map(Math.abs));
    return super.bufferBotAudio(data, id);
  }
}

window.bot = {
  seen,
  async connect(wsUrl, token) {
    const client = new PipecatClient({
      transport: new WebSocketTransport({ mediaManager: new CountingManager(), recorderSampleRate: 24_000 }),
      enableMic: true,
      enableCam: false,
      callbacks: { onTransportStateChanged: (state) => seen.states.push(state) },
    });
    for (const event of Object.values(RTVIEvent)) {
      if (!/AudioLevel$|TransportState/.test(event)) client.on(event, (data) => seen.events.push({ type: event, data: plain(data) }));
    }
    client.on(RTVIEvent.Error, (message) => seen.errors.push(message.data));
    client.registerFunctionCallHandler('get_colour', async ({ functionName, arguments: given }) => {
      seen.calls.push({ functionName, given });
      return { colour: 'green' };
    });
    window.bot.client = client;
    const begun = performance.now();
    const ready = await client.connect({ wsUrl, ...(token ? { token } : {}) });
    seen.connectedAfterMs = performance.now() - begun;
    return ready;
  },
};

/** What a test can be given: tracks and participants cannot. */
function plain(data) {
  try {
    return JSON.parse(JSON.stringify(data ?? null));
  } catch {
    return null;
  }
}
