// The assistant calls the client's function, and speaks once it has the result.

import assert from "node:assert/strict";
import { inOrder, run } from "./hub.mjs";

const TOOL = { type: "function", name: "get_weather", description: "Tells the present weather in a city.",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } };
const CHAIN = ["response.created", "response.output_item.added", "conversation.item.added",
  "response.function_call_arguments.delta", "response.function_call_arguments.done", "conversation.item.done",
  "response.output_item.done", "response.done"];

await run(async (hub) => {
  const session = await hub.configure({ tools: [TOOL], tool_choice: "auto" });
  assert.equal(session.tools[0].name, "get_weather");
  hub.write("What is the weather in Paris?");
  hub.send({ type: "response.create" });
  const { response } = await hub.until("response.done");
  inOrder(hub.types(), CHAIN, "tool call");
  const [call] = response.output.filter((item) => item.type === "function_call");
  const done = hub.of("response.function_call_arguments.done")[0];
  assert.deepEqual([done.name, done.call_id, done.arguments], [call.name, call.call_id, call.arguments]);
  assert.equal(JSON.parse(call.arguments).city.toLowerCase(), "paris");
  const item = { type: "function_call_output", call_id: call.call_id, output: '{"weather": "sunny", "degrees": 21}' };
  hub.send({ type: "conversation.item.create", item });
  hub.send({ type: "response.create" });
  const answer = await hub.until("response.done");
  assert.equal(answer.response.output[0].type, "message");
  const { transcript } = answer.response.output[0].content[0];
  assert.match(transcript, /sunny/i, "the result is not in the answer");
});
