"""A spoken question whose end the semantic turn detection finds."""

from hub import check, in_order, run, says, speech, talk
from voice_turn import CHAIN


async def program():
    async with talk() as hub:
        vad = {"type": "semantic_vad", "eagerness": "high", "create_response": True, "interrupt_response": True}
        session = await hub.configure(audio={"input": {"turn_detection": vad, "transcription": {"model": "whisper-1"}}})
        seen = session.audio.input.turn_detection
        check((seen.type, seen.eagerness, seen.create_response) == ("semantic_vad", "high", True), f"effective: {seen}")
        for name, words in (("sum", ("42", "forty-two", "forty two")), ("other_sum", ("27", "twenty-seven"))):
            start = len(hub.log)
            async with hub.speaking(speech(name)):
                done = await hub.until("response.done")
            check(done.response.status == "completed", f"{done.response.status_details}")
            in_order([event.type for event in hub.log[start:]], CHAIN, f"semantic turn {name}")
            said = hub.of("response.output_audio_transcript.done", start)[0].transcript
            check(says(said, *words), f"the answer to {name}: {said!r}")


if __name__ == "__main__":
    run(program)
