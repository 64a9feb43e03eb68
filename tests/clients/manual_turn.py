"""Without turn detection: audio is sent at once, committed and answered when the client says so."""

from hub import RATE, check, in_order, loud, run, samples, says, speech, talk


async def program():
    async with talk() as hub:
        session = await hub.configure(audio={"input": {"turn_detection": None, "transcription": {"model": "whisper-1"}}})
        check(session.audio.input.turn_detection is None, f"turn detection is on: {session.audio.input}")
        pcm = speech("sum")
        for at in range(0, len(pcm), RATE // 10):
            await hub.send_audio(pcm[at : at + RATE // 10])
        await hub.connection.input_audio_buffer.commit()
        heard = await hub.until("conversation.item.input_audio_transcription.completed")
        in_order(hub.types(), ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"], "commit")
        check(says(heard.transcript, "plus"), f"transcript: {heard.transcript!r}")
        check(not hub.of("response.created"), "a response nobody asked for")
        check(not hub.of("input_audio_buffer.speech_started"), "turn detection is off, and yet speech_started")

        await hub.connection.response.create()
        done = await hub.until("response.done")
        check(done.response.status == "completed", f"{done.response.status_details}")
        said = hub.of("response.output_audio_transcript.done")[0].transcript
        check(says(said, "42", "forty-two", "forty two"), f"the answer: {said!r}")
        check(loud(samples(hub.of("response.output_audio.delta"))), "the reply is silent")

        await hub.send_audio(pcm[: RATE // 2])
        await hub.connection.input_audio_buffer.clear()
        await hub.until("input_audio_buffer.cleared")


if __name__ == "__main__":
    run(program)
