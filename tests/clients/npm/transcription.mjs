// A transcription session: what is said is written down, and never answered.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { inOrder, run, speech } from "./hub.mjs";

const CHAIN = ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped",
  "input_audio_buffer.committed", "conversation.item.added", "conversation.item.done",
  "conversation.item.input_audio_transcription.completed"];

const program = async (hub) => {
  assert.equal(hub.log[0].session.type, "transcription");
  const input = { transcription: { model: "whisper-1" }, turn_detection: { type: "server_vad", silence_duration_ms: 400 } };
  const session = await hub.configure({ type: "transcription", audio: { input } });
  assert.equal(session.audio.input.turn_detection.silence_duration_ms, 400);
  const heard = await hub.speaking(speech("sum"), async () => {
    const heard = await hub.until(CHAIN.at(-1));
    await sleep(500);
    return heard;
  });
  inOrder(hub.types(), CHAIN, "transcription");
  assert.match(heard.transcript, /plus/i);
  assert.ok(heard.usage, "no usage");
  assert.ok(hub.of("conversation.item.input_audio_transcription.delta").length, "nothing while it was spoken");
  assert.deepEqual(hub.types().filter((type) => type.startsWith("response.") || type === "rate_limits.updated"), []);
};

await run(program, { intent: "transcription" });
