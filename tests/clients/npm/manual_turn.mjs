// Without turn detection: audio is sent at once, committed and answered when the client says so.

import assert from "node:assert/strict";
import { RATE, inOrder, listening, loud, run, samples, says, speech } from "./hub.mjs";

await run(async (hub) => {
  const session = await listening(hub, null);
  assert.equal(session.audio.input.turn_detection, null);
  const pcm = speech("sum");
  for (let at = 0; at < pcm.length; at += RATE / 10) hub.append(pcm.subarray(at, at + RATE / 10));
  hub.send({ type: "input_audio_buffer.commit" });
  await hub.until("conversation.item.input_audio_transcription.completed");
  inOrder(hub.types(), ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"], "commit");
  assert.deepEqual(hub.of("response.created"), [], "a response nobody asked for");
  hub.send({ type: "response.create" });
  const { response } = await hub.until("response.done");
  assert.equal(response.status, "completed");
  assert.ok(says(response.output[0].content[0].transcript, 42), response.output[0].content[0].transcript);
  assert.ok(loud(samples(hub.of("response.output_audio.delta"))), "the reply is silent");
  hub.append(pcm.subarray(0, RATE / 2));
  hub.send({ type: "input_audio_buffer.clear" });
  await hub.until("input_audio_buffer.cleared");
});
