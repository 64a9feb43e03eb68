"""Three turns of a person, with real weights: Whisper base hears recordings, the voice hibari answers, and is heard right."""

import io
import re
import wave

from openai import AsyncOpenAI

from hub import HUB_URL, RATE, check, people, run, samples, speech, talk


def words(text):
    return re.findall(r"[a-z0-9']+", text.lower().replace("-", " "))


def word_errors(expected, heard):
    """The fewest words that have to be replaced, left out or put in."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(expected):
        following = [i + 1]
        for j, other in enumerate(heard):
            following.append(min(row[j] + (word != other), row[j + 1] + 1, following[j] + 1))
        row = following
    return row[-1]


def is_like(expected, heard):
    return 5 * word_errors(words(expected), words(heard)) <= len(words(expected))


async def transcribed(client, pcm):
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, RATE, 0, "NONE", ""))
        out.writeframes(pcm)
    return (await client.audio.transcriptions.create(model="whisper-1", file=("a.wav", file.getvalue()), language="en")).text


async def program():
    client = AsyncOpenAI(base_url=f"{HUB_URL}/v1", api_key="sk-not-needed")
    async with talk() as hub:
        await hub.configure(audio={"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 400}}})
        for name, text in people().items():
            start = len(hub.log)
            async with hub.speaking(speech(name)):
                await hub.until("response.done")
            heard = hub.of("conversation.item.input_audio_transcription.completed", start)
            check(len(heard) == 1 and is_like(text, heard[0].transcript), f"{text!r} was heard as {heard}")
            answer = hub.of("response.output_audio_transcript.done", start)[-1].transcript
            pcm = samples(hub.of("response.output_audio.delta", start))
            spoken = await transcribed(client, pcm.tobytes())
            check(is_like(answer, spoken), f"{answer!r} was spoken as {spoken!r}")


if __name__ == "__main__":
    run(program)
