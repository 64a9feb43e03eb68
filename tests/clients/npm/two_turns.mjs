// Two spoken questions in one session: each has its own items in one chain, and its own answer.

import assert from "node:assert/strict";
import { ask, listening, run } from "./hub.mjs";

await run(async (hub) => {
  await listening(hub, { type: "server_vad" });
  await ask(hub, "sum", 42);
  await ask(hub, "other_sum", 27);
  const added = hub.of("conversation.item.added");
  assert.deepEqual(added.map((event) => event.item.role), ["user", "assistant", "user", "assistant"]);
  added.forEach((event, i) => assert.equal(event.previous_item_id ?? null, i ? added[i - 1].item.id : null));
});
