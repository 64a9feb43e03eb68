// The speech API by the unchanged SDK: a text to sound, as bytes and as events, that sound to words, models, errors.
// HUB_URL is the hub; ../run.py sets it.

import assert from "node:assert/strict";
import OpenAI, { toFile } from "openai";

const client = new OpenAI({ baseURL: `${process.env.HUB_URL}/v1`, apiKey: "sk-not-needed", maxRetries: 0 });
const input = "What is twelve plus thirty?";
// Its sound is the same each time. The other voices are excited with noise, and in one of a hundred a word is misheard.
const wish = { model: "gpt-4o-mini-tts", voice: "kal16", input };

const begins = { mp3: [0xff], opus: [0x4f, 0x67, 0x67, 0x53], flac: [0x66, 0x4c, 0x61, 0x43], wav: [0x52, 0x49, 0x46, 0x46] };
const files = {};
for (const [format, bytes] of Object.entries(begins)) {
  const response = await client.audio.speech.create({ ...wish, response_format: format });
  files[format] = Buffer.from(await response.arrayBuffer());
  assert.deepEqual([...files[format].subarray(0, bytes.length)], bytes, format);
}

const pcm = Buffer.from(await (await client.audio.speech.create({ ...wish, response_format: "pcm" })).arrayBuffer());
const stream = await client.audio.speech.create({ ...wish, response_format: "pcm", stream_format: "sse" });
const events = (await stream.text()).split("\n\n").filter((event) => event.startsWith("data: ")).map((event) => JSON.parse(event.slice(6)));
const deltas = events.filter((event) => event.type === "speech.audio.delta").map((event) => Buffer.from(event.audio, "base64"));
assert.ok(deltas.length > 1 && pcm.equals(Buffer.concat(deltas)), "the events carry another sound");
assert.equal(events.at(-1).type, "speech.audio.done");
assert.ok(events.at(-1).usage.total_tokens > 0);

const said = /(twelve|12) plus (thirty|30)/;
for (const format of ["mp3", "wav"]) {
  const file = await toFile(files[format], `a.${format}`);
  const heard = await client.audio.transcriptions.create({ file, model: "whisper-1" });
  assert.match(heard.text.toLowerCase(), said, format);
}
const again = async () => toFile(files.opus, "a.ogg");
let text = "";
for await (const event of await client.audio.transcriptions.create({ file: await again(), model: "gpt-4o-transcribe", stream: true })) {
  if (event.type === "transcript.text.delta") text += event.delta;
  else assert.equal(event.text, text);
}
assert.match(text.toLowerCase(), said);
const vtt = await client.audio.transcriptions.create({ file: await again(), model: "whisper-1", response_format: "vtt" });
assert.ok(vtt.startsWith("WEBVTT\n\n00:00:0"), vtt);

const models = [];
for await (const model of client.models.list()) models.push(model.id);
assert.ok(models.includes("antiphon"), `${models}`);

for (const change of [{ speed: 100 }, { voice: "nobody" }, { response_format: "aac" }]) {
  const error = await client.audio.speech.create({ ...wish, ...change }).then(() => null, (reason) => reason);
  assert.ok(error instanceof OpenAI.BadRequestError, `${JSON.stringify(change)}: ${error}`);
  assert.equal(error.param, Object.keys(change)[0]);
}
