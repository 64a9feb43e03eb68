"""A spoken question, found by the server's VAD, and a spoken answer."""

from hub import RATE, check, in_order, loud, run, samples, says, speech, talk

CHAIN = ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped", "input_audio_buffer.committed",
    "conversation.item.added", "conversation.item.done", "response.created", "response.output_item.added",
    "conversation.item.added", "response.content_part.added", "response.output_audio.delta",
    "response.output_audio.done", "response.output_audio_transcript.done", "response.content_part.done",
    "conversation.item.done", "response.output_item.done", "response.done"]


async def program():
    vad = {"type": "server_vad", "silence_duration_ms": 300, "create_response": True}
    async with talk() as hub:
        audio = {"input": {"turn_detection": vad, "transcription": {"model": "whisper-1"}}}
        session = await hub.configure(audio=audio)
        seen = session.audio.input.turn_detection
        check((seen.silence_duration_ms, seen.interrupt_response) == (300, True), f"effective session: {seen}")
        async with hub.speaking(speech("sum")):
            done = await hub.until("response.done")
            while not hub.of("conversation.item.input_audio_transcription.completed"):
                await hub.next()
        in_order(hub.types(), CHAIN, "voice turn")
        check(done.response.status == "completed", f"{done.response.status_details}")

        heard = hub.of("conversation.item.input_audio_transcription.completed")[0]
        started, stopped = hub.of(CHAIN[0])[0], hub.of(CHAIN[1])[0]
        committed, added = hub.of("input_audio_buffer.committed")[0], hub.of("conversation.item.added")[0]
        ids = {heard.item_id, started.item_id, stopped.item_id, committed.item_id, added.item.id}
        check(len(ids) == 1, f"the user's item has several ids: {ids}")
        check(started.audio_start_ms < stopped.audio_end_ms, f"{started} {stopped}")
        check(says(heard.transcript, "plus"), f"transcript: {heard.transcript!r}")

        said = "".join(event.delta for event in hub.of("response.output_audio_transcript.delta"))
        check(said == hub.of("response.output_audio_transcript.done")[0].transcript, "deltas are not the transcript")
        check(says(said, "42", "forty-two", "forty two"), f"the answer: {said!r}")
        pcm = samples(hub.of("response.output_audio.delta"))
        check(loud(pcm) and len(pcm) > RATE // 4, f"{len(pcm)} samples of reply")


if __name__ == "__main__":
    run(program)
