// What the programs beside this file share: a connection of the unchanged SDK, its events in a log, and a microphone.
//
// HUB_WSS_URL is the hub behind TLS (this SDK speaks nothing else), HUB_CERTIFICATE its certificate, SPEECH_DIR the
// recordings; ../run.py sets all three.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { once } from "node:events";
import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";

export const RATE = 24_000;
const FRAME = RATE / 50;
const DEADLINE_MS = 120_000;

/** One session. `log` holds every event, in order. */
class Talk {
  log = [];
  #taken = 0;
  #wake = () => {};
  #failure = null;

  constructor(realtime) {
    this.realtime = realtime;
    realtime.on("event", (event) => this.#take(event));
    realtime.on("error", (error) => {
      // An `error` event is in the log already; all else ends the program.
      if (!error.error) this.#fail(error);
    });
    realtime.socket.on("close", (code) => this.#fail(new Error(`closed with ${code}`)));
  }

  #take(event) {
    try {
      checkEvent(event, this.log);
    } catch (error) {
      this.#fail(error);
    }
    this.log.push(event);
    this.#wake();
  }

  #fail(error) {
    this.#failure ??= error;
    this.#wake();
  }

  send(event) {
    this.realtime.send(event);
  }

  /** The next event that was not yet taken. */
  async next() {
    while (this.#taken === this.log.length) {
      if (this.#failure) throw this.#failure;
      let timer;
      const late = new Promise((_, reject) => {
        const told = () => reject(new Error(`no event for ${DEADLINE_MS} ms after ${this.types().slice(-5)}`));
        timer = setTimeout(told, DEADLINE_MS);
      });
      await Promise.race([new Promise((resolve) => (this.#wake = resolve)), late]).finally(() => clearTimeout(timer));
    }
    return this.log[this.#taken++];
  }

  /** Reads up to the next event of this type. An `error` nobody asked for ends the program. */
  async until(type) {
    for (;;) {
      const event = await this.next();
      if (event.type === type) return event;
      assert.notEqual(event.type, "error", `while waiting for ${type}: ${JSON.stringify(event.error)}`);
    }
  }

  types(start = 0) {
    return this.log.slice(start).map((event) => event.type);
  }

  of(type, start = 0) {
    return this.log.slice(start).filter((event) => event.type === type);
  }

  async configure(session) {
    this.send({ type: "session.update", session: { type: "realtime", ...session } });
    return (await this.until("session.updated")).session;
  }

  write(text) {
    const content = [{ type: "input_text", text }];
    this.send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
  }

  append(pcm) {
    const audio = Buffer.from(pcm.buffer, pcm.byteOffset, pcm.byteLength).toString("base64");
    this.send({ type: "input_audio_buffer.append", audio });
  }

  /** Speaks a recording at real time, and silence behind it, until `work` is done. */
  async speaking(pcm, work) {
    const start = performance.now();
    let n = 0;
    const tick = () => {
      for (; n * 20 <= performance.now() - start; n++) {
        const frame = new Int16Array(FRAME);
        frame.set(pcm.subarray(n * FRAME, (n + 1) * FRAME));
        this.append(frame);
      }
    };
    const clock = setInterval(tick, 10);
    try {
      return await work();
    } finally {
      clearInterval(clock);
    }
  }
}

/** What every client takes for granted: a type, an event_id of its own, times in whole milliseconds. */
function checkEvent(event, log) {
  assert.equal(typeof event.type, "string");
  assert.ok(event.event_id, `${event.type} without event_id`);
  assert.ok(!log.some((seen) => seen.event_id === event.event_id), `event_id ${event.event_id} came twice`);
  for (const [name, value] of Object.entries(event)) {
    if (name.endsWith("_ms")) assert.ok(Number.isInteger(value), `${event.type}: ${name} is ${value}`);
  }
}

/** Runs one program on a session of its own. `props` is what the SDK takes: `{model}` or `{intent}`. */
export async function run(program, props = { model: "gpt-realtime" }) {
  const client = new OpenAI({ apiKey: "sk-not-needed", baseURL: `${process.env.HUB_WSS_URL}/v1` });
  const options = { ca: readFileSync(process.env.HUB_CERTIFICATE) };
  const realtime = new OpenAIRealtimeWS({ ...props, options }, client);
  const hub = new Talk(realtime);
  try {
    assert.equal((await hub.next()).type, "session.created");
    await program(hub);
    assert.equal(realtime.socket.readyState, realtime.socket.OPEN, "the session lives to the end");
  } catch (error) {
    console.log(error.message);
    process.exitCode = 1;
  }
  realtime.close();
  if (realtime.socket.readyState !== realtime.socket.CLOSED) await once(realtime.socket, "close");
}

/** `expected` stands in `types` in this order; other events may lie between. */
export function inOrder(types, expected, what) {
  let at = 0;
  for (const type of expected) {
    const found = types.indexOf(type, at);
    assert.notEqual(found, -1, `${what}: no ${type} behind ${types[at - 1]} in ${[...new Set(types)]}`);
    at = found + 1;
  }
}

/** A recording as mono PCM at 24 kHz. */
export function speech(name) {
  const file = readFileSync(`${process.env.SPEECH_DIR}/${name}.wav`);
  assert.equal(file.readUInt32LE(24), RATE, `${name} is recorded at 24 kHz`);
  const data = file.subarray(file.indexOf("data") + 8);
  return new Int16Array(data.buffer.slice(data.byteOffset, data.byteOffset + data.length - (data.length % 2)));
}

/** The PCM of `response.output_audio.delta` events. */
export function samples(events) {
  const bytes = Buffer.concat(events.map((event) => Buffer.from(event.delta, "base64")));
  return new Int16Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}

/** Whether there is more in it than -50 dBFS. */
export function loud(pcm) {
  return pcm.some((sample) => Math.abs(sample) > 104);
}

/** Whether a transcript gives this number, in figures or in words. */
export function says(text, number) {
  const words = { 42: /42|forty.two/i, 27: /27|twenty.seven/i };
  return words[number].test(text);
}

const SPOKEN_TURN = ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped",
  "input_audio_buffer.committed", "conversation.item.added", "conversation.item.done", "response.created",
  "response.output_item.added", "conversation.item.added", "response.content_part.added",
  "response.output_audio.delta", "response.output_audio.done", "response.output_audio_transcript.done",
  "response.content_part.done", "conversation.item.done", "response.output_item.done", "response.done"];

const COMPLETED = "conversation.item.input_audio_transcription.completed";

/** One spoken question under `turn_detection`, its events checked. */
export async function ask(hub, name, number) {
  const start = hub.log.length;
  const done = await hub.speaking(speech(name), async () => {
    const done = await hub.until("response.done");
    while (!hub.of(COMPLETED, start).length) await hub.next();
    return done;
  });
  inOrder(hub.types(start), SPOKEN_TURN, name);
  assert.equal(done.response.status, "completed");
  const ids = ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed", COMPLETED].map((type) => hub.of(type, start)[0].item_id);
  assert.equal(new Set(ids).size, 1, `the user's item has several ids: ${ids}`);
  const said = hub.of("response.output_audio_transcript.done", start)[0].transcript;
  assert.ok(says(said, number), `the answer to ${name}: ${said}`);
  const pcm = samples(hub.of("response.output_audio.delta", start));
  assert.ok(loud(pcm) && pcm.length > RATE / 4, `${pcm.length} samples of reply`);
  return done;
}

/** A session that hears its turns by this detection. */
export function listening(hub, turn_detection) {
  return hub.configure({ audio: { input: { turn_detection, transcription: { model: "whisper-1" } } } });
}
