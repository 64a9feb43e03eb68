// Speech while the reply plays stops it; the client then tells what it had heard, and the new question is answered.

import assert from "node:assert/strict";
import { RATE, listening, run, samples, says, speech } from "./hub.mjs";

await run(async (hub) => {
  await listening(hub, { type: "server_vad", silence_duration_ms: 300, interrupt_response: true });
  hub.write("Count from one to two hundred.");
  hub.send({ type: "response.create" });
  const first = await hub.until("response.output_audio.delta");
  const began = performance.now();
  const answer = await hub.speaking(speech("sum"), async () => {
    await hub.until("input_audio_buffer.speech_started");
    const played = Math.floor(performance.now() - began);
    const isFirst = (event) => event.response.id === first.response_id;
    // The whole reply may have been made before the speech began.
    const stopped = hub.of("response.done").find(isFirst) ?? (await hub.until("response.done"));
    assert.ok(isFirst(stopped), "another response ended");
    assert.ok(["completed", "cancelled"].includes(stopped.response.status), stopped.response.status);
    if (stopped.response.status === "cancelled") assert.equal(stopped.response.status_details.reason, "turn_detected");
    const sent = samples(hub.of("response.output_audio.delta").filter((event) => event.item_id === first.item_id));
    const audio_end_ms = Math.min(played, Math.floor((sent.length * 1000) / RATE));
    hub.send({ type: "conversation.item.truncate", item_id: first.item_id, content_index: 0, audio_end_ms });
    assert.equal((await hub.until("conversation.item.truncated")).audio_end_ms, audio_end_ms);
    let answer = await hub.until("response.done");
    while (isFirst(answer)) answer = await hub.until("response.done");
    const after = hub.log.slice(hub.log.indexOf(stopped) + 1);
    assert.deepEqual(after.filter((event) => event.response_id === first.response_id), [], "events after the end");
    return answer;
  });
  assert.equal(answer.response.status, "completed");
  const { transcript } = answer.response.output[0].content[0];
  assert.ok(says(transcript, 42), `the answer: ${transcript}`);
});
