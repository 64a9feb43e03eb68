"""Telephone audio both ways: G.711 u-law at 8 kHz."""

import base64

from hub import RATE, check, run, speech, talk

BIAS, CLIP = 0x84, 32_635


def mulaw(sample):
    """ITU-T G.711, table 2a."""
    sign, level = (0x80, -sample) if sample < 0 else (0, sample)
    level = min(level, CLIP) + BIAS
    exponent = level.bit_length() - 8
    return ~(sign | exponent << 4 | level >> exponent + 3 & 0x0F) & 0xFF


async def program():
    pcm = speech("sum")
    narrow = bytes(mulaw(sum(pcm[i : i + 3]) // 3) for i in range(0, len(pcm) - 2, RATE // 8000))
    async with talk() as hub:
        form = {"type": "audio/pcmu"}
        session = await hub.configure(
            audio={"input": {"format": form, "turn_detection": None, "transcription": {}}, "output": {"format": form}}
        )
        check(session.audio.output.format.type == "audio/pcmu", f"{session.audio.output}")
        await hub.connection.input_audio_buffer.append(audio=base64.b64encode(narrow).decode())
        await hub.connection.input_audio_buffer.commit()
        heard = await hub.until("conversation.item.input_audio_transcription.completed")
        # The recognizer at hand is made for wideband speech: that it heard words is what the codec owes.
        check(heard.transcript.strip(), "nothing was understood")
        await hub.connection.response.create()
        done = await hub.until("response.done")
        check(done.response.status == "completed", f"{done.response.status_details}")
        reply = b"".join(base64.b64decode(event.delta) for event in hub.of("response.output_audio.delta"))
        seconds = len(reply) / 8000
        check(0.3 < seconds < 30, f"the reply lasts {seconds:.2f} s at 8 kHz")
        # Code words of either sign near full silence are 0x7x and 0xFx; speech has others.
        check(sum(code & 0x70 < 0x60 for code in reply) > 400, "the reply is silent")


if __name__ == "__main__":
    run(program)
