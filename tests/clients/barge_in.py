"""Speech while the reply plays stops it; the client then tells what it had heard, and the new question is answered."""

import asyncio

from hub import RATE, check, run, samples, says, speech, talk


async def program():
    async with talk() as hub:
        vad = {"type": "server_vad", "silence_duration_ms": 300, "interrupt_response": True}
        await hub.configure(audio={"input": {"turn_detection": vad, "transcription": {"model": "whisper-1"}}})
        await hub.write("Count from one to two hundred.")
        await hub.connection.response.create()
        first = await hub.until("response.output_audio.delta")
        clock = asyncio.get_running_loop()
        began = clock.time()
        async with hub.speaking(speech("sum")):
            await hub.until("input_audio_buffer.speech_started")
            at = len(hub.log) - 1
            played_ms = int(1000 * (clock.time() - began))
            stopped = next(iter(hub.of("response.done")), None) or await hub.until("response.done")
            check(stopped.response.id == first.response_id, "another response ended")
            if hub.log.index(stopped) > at:
                # It was still being made: speech must have cancelled it, and every open part is closed.
                details = stopped.response.status_details
                check(stopped.response.status == "cancelled" and details.reason == "turn_detected", f"{stopped.response}")
                late = [event for event in hub.of("response.output_item.done") if event.response_id == first.response_id]
                check(late and late[-1].item.status == "incomplete", "the item was not closed as incomplete")

            sent = samples(event for event in hub.of("response.output_audio.delta") if event.item_id == first.item_id)
            sent_ms = len(sent) * 1000 // RATE
            cut_ms = min(played_ms, sent_ms)
            await hub.connection.conversation.item.truncate(item_id=first.item_id, content_index=0, audio_end_ms=cut_ms)
            cut = await hub.until("conversation.item.truncated")
            check((cut.item_id, cut.audio_end_ms) == (first.item_id, cut_ms), f"{cut}")

            answer = await hub.until("response.done")
            while answer.response.id == first.response_id:
                answer = await hub.until("response.done")
        done_at = hub.log.index(stopped)
        after = [event for event in hub.log[done_at + 1 :] if getattr(event, "response_id", None) == first.response_id]
        check(not after, f"events of the stopped response after its end: {[event.type for event in after]}")
        check(answer.response.status == "completed", f"{answer.response.status_details}")
        said = hub.of("response.output_audio_transcript.done")[-1].transcript
        check(says(said, "42", "forty-two", "forty two"), f"the answer: {said!r}")


if __name__ == "__main__":
    run(program)
