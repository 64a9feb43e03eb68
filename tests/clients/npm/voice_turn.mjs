// A spoken question, found by the server's VAD, and a spoken answer.

import assert from "node:assert/strict";
import { ask, listening, run } from "./hub.mjs";

await run(async (hub) => {
  const session = await listening(hub, { type: "server_vad", silence_duration_ms: 300 });
  const { silence_duration_ms, interrupt_response } = session.audio.input.turn_detection;
  assert.deepEqual([silence_duration_ms, interrupt_response], [300, true]);
  await ask(hub, "sum", 42);
});
