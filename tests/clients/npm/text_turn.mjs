// Written question, written answer; then the item is fetched and deleted.

import assert from "node:assert/strict";
import { inOrder, run, says } from "./hub.mjs";

const CHAIN = ["conversation.item.added", "conversation.item.done", "response.created", "response.output_item.added",
  "conversation.item.added", "response.content_part.added", "response.output_text.delta", "response.output_text.done",
  "response.content_part.done", "conversation.item.done", "response.output_item.done", "response.done"];

await run(async (hub) => {
  const session = await hub.configure({ output_modalities: ["text"] });
  assert.deepEqual(session.output_modalities, ["text"]);
  hub.write("What is twelve plus thirty?");
  hub.send({ type: "response.create", response: { metadata: { asked: "1" } } });
  const { response } = await hub.until("response.done");
  inOrder(hub.types(), CHAIN, "text turn");
  assert.deepEqual(response.metadata, { asked: "1" });
  assert.ok(response.usage.total_tokens >= 0, "no usage");
  const { text } = hub.of("response.output_text.done")[0];
  assert.equal(text, hub.of("response.output_text.delta").map((event) => event.delta).join(""));
  assert.ok(says(text, 42), text);
  const [{ id, content }] = response.output;
  assert.deepEqual([content[0].type, content[0].text], ["output_text", text]);
  hub.send({ type: "conversation.item.retrieve", item_id: id });
  assert.equal((await hub.until("conversation.item.retrieved")).item.content[0].text, text);
  hub.send({ type: "conversation.item.delete", item_id: id });
  assert.equal((await hub.until("conversation.item.deleted")).item_id, id);
});
