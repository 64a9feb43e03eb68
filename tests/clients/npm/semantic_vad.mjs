// Spoken questions whose ends the semantic turn detection finds.

import assert from "node:assert/strict";
import { ask, listening, run } from "./hub.mjs";

await run(async (hub) => {
  const session = await listening(hub, { type: "semantic_vad", eagerness: "high" });
  const { type, eagerness, create_response, interrupt_response } = session.audio.input.turn_detection;
  assert.deepEqual([type, eagerness, create_response, interrupt_response], ["semantic_vad", "high", true, true]);
  await ask(hub, "sum", 42);
  await ask(hub, "other_sum", 27);
});
