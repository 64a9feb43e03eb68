"""A transcription session: what is said is written down, and never answered."""

import asyncio

from hub import check, in_order, people, run, says, speech, talk

CHAIN = ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped", "input_audio_buffer.committed",
    "conversation.item.added", "conversation.item.done", "conversation.item.input_audio_transcription.completed"]
COMPLETED = CHAIN[-1]


async def program():
    async with talk(model=None, query={"intent": "transcription"}) as hub:
        check(hub.log[0].session.type == "transcription", f"session.created: {hub.log[0].session}")
        vad = {"type": "server_vad", "silence_duration_ms": 400}
        audio = {"input": {"transcription": {"model": "whisper-1", "language": "en"}, "turn_detection": vad}}
        session = await hub.configure(type="transcription", audio=audio)
        check(session.type == "transcription" and session.audio.input.turn_detection.silence_duration_ms == 400, f"{session}")
        clips = [("sum", "what is twelve plus thirty"), *people().items()]
        for name, text in clips:
            start = len(hub.log)
            async with hub.speaking(speech(name)):
                heard = await hub.until(COMPLETED)
                await asyncio.sleep(0.5)
            in_order([event.type for event in hub.log[start:]], CHAIN, name)
            deltas = [event.delta for event in hub.of("conversation.item.input_audio_transcription.delta", start)]
            check(deltas, f"{name}: nothing was written down while it was spoken")
            check(heard.usage is not None, f"{name}: no usage")
            check(heard.transcript.strip(), f"{name}: nothing was understood of {text!r}")
            check(heard.item_id == hub.of(CHAIN[0], start)[0].item_id, f"{name}: the transcript is of another item")
        check(says(hub.of(COMPLETED)[0].transcript, "plus"), f"transcript: {hub.of(COMPLETED)[0].transcript!r}")
        check(not [kind for kind in hub.types() if kind.startswith("response.") or kind == "rate_limits.updated"], "an answer")

        await hub.connection.response.create(event_id="mine")
        error = await hub.next()
        while error.type != "error":
            error = await hub.next()
        check(error.error.event_id == "mine", f"{error}")


if __name__ == "__main__":
    run(program)
