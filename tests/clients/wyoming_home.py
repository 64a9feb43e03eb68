"""Wyoming by the unchanged PyPI package, as Home Assistant's integration uses it: one connection for each request.

The address comes from WYOMING_URI; `run.py` sets it.
"""

import asyncio
import os

from wyoming.asr import Transcribe, Transcript, TranscriptChunk, TranscriptStart, TranscriptStop
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.handle import Handled, HandledChunk, HandledStart, HandledStop
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped, SynthesizeVoice

from hub import RATE, check, run, says, speech

URI = os.environ.get("WYOMING_URI", "tcp://127.0.0.1:10300")
DEADLINE_S = 120
TEXT = "What is twelve plus thirty?"
# Its sound is the same each time. The other voices are excited with noise, and in one of a hundred a word is misheard.
EVEN_VOICE = "kal16"


async def exchange(events, last):
    """Sends the events over a connection of their own; what the hub sends, up to the first event of the type `last`."""
    client = AsyncClient.from_uri(URI)
    async with client:
        for event in events:
            await client.write_event(event.event() if hasattr(event, "event") else event)
        received = []
        while True:
            event = await asyncio.wait_for(client.read_event(), DEADLINE_S)
            check(event is not None, f"the connection ended before {last.__name__}: {[one.type for one in received]}")
            received.append(event)
            if last.is_type(event.type):
                return received


def types(events):
    kinds = [event.type for event in events]
    return [kind for i, kind in enumerate(kinds) if i == 0 or kind != kinds[i - 1]]


async def described():
    info = Info.from_event((await exchange([Describe()], Info))[-1])
    check(info.asr[0].models[0].languages and info.asr[0].supports_transcript_streaming, f"{info.asr}")
    check(info.tts[0].voices[0].languages and info.tts[0].supports_synthesize_streaming, f"{info.tts}")
    check(info.handle[0].models[0].languages and info.handle[0].supports_handled_streaming, f"{info.handle}")
    return info.tts[0].voices[0].name


def sound(events):
    """The format, and the bytes of all chunks."""
    start = AudioStart.from_event(next(event for event in events if AudioStart.is_type(event.type)))
    chunks = [AudioChunk.from_event(event) for event in events if AudioChunk.is_type(event.type)]
    check(all((one.rate, one.width, one.channels) == (start.rate, start.width, start.channels) for one in chunks),
        "the format changes")
    return start, b"".join(one.audio for one in chunks)


async def spoken(voice):
    events = await exchange([Synthesize(text=TEXT, voice=SynthesizeVoice(name=voice))], AudioStop)
    check(types(events) == ["audio-start", "audio-chunk", "audio-stop"], f"{types(events)}")
    start, audio = sound(events)
    seconds = len(audio) / start.rate / start.width
    check(1 < seconds < 5, f"{seconds} s of speech")
    by_language = await exchange([Synthesize(text="Hello.", voice=SynthesizeVoice(language="en-GB"))], AudioStop)
    check(len(sound(by_language)[1]) > 0, "a voice by its language is silent")
    return start, audio


async def spoken_while_written(whole):
    parts = ["What is twel", "ve plus", " thirty?"]
    events = await exchange([SynthesizeStart(), *(SynthesizeChunk(text=part) for part in parts),
        Synthesize(text=TEXT), SynthesizeStop()], SynthesizeStopped)
    check(types(events) == ["audio-start", "audio-chunk", "audio-stop", "synthesize-stopped"], f"{types(events)}")
    ratio = len(sound(events)[1]) / len(whole)
    check(0.8 < ratio < 1.25, f"as a stream it is {ratio} times as long: the text was spoken twice or in part")


async def sound_before_the_end():
    """The first sentence sounds while the second is not written."""
    async with AsyncClient.from_uri(URI) as client:
        await client.write_event(SynthesizeStart().event())
        await client.write_event(SynthesizeChunk(text="The first sentence is complete. And the").event())
        while True:
            event = await asyncio.wait_for(client.read_event(), DEADLINE_S)
            if AudioChunk.is_type(event.type):
                break
        await client.write_event(SynthesizeChunk(text=" second.").event())
        await client.write_event(SynthesizeStop().event())
        while not SynthesizeStopped.is_type((await asyncio.wait_for(client.read_event(), DEADLINE_S)).type):
            pass


async def heard(rate, audio):
    step = rate // 50 * 2
    chunks = [AudioChunk(rate=rate, width=2, channels=1, audio=audio[at:at + step]) for at in range(0, len(audio), step)]
    events = await exchange([Transcribe(language="en"), AudioStart(rate=rate, width=2, channels=1), *chunks, AudioStop()],
        Transcript)
    text = Transcript.from_event(events[-1]).text
    check(says(text, "twelve plus thirty", "12 plus 30"), f"it was heard as {text!r}")
    words = "".join(TranscriptChunk.from_event(event).text for event in events if TranscriptChunk.is_type(event.type))
    check(TranscriptStart.is_type(events[0].type), f"{types(events)}")
    # The end is what counts: the recognizer may still revise a word that two of its partial transcripts agreed on.
    streamed, final = words.split(), text.split()
    check(len(streamed) == len(final) and sum(a != b for a, b in zip(streamed, final)) <= 1,
        f"the stream says {words!r}, the end {text!r}")


async def silence():
    start = AudioStart(rate=16_000, width=2, channels=1)
    chunk = AudioChunk(rate=16_000, width=2, channels=1, audio=bytes(32_000))
    events = await exchange([start, chunk, AudioStop()], Transcript)
    check([event.type for event in events] == ["transcript"], f"{types(events)}")
    check(Transcript.from_event(events[0]).text == "", f"{events[0].data}")


async def answered():
    context = {"conversation_id": "01K0000000000000000000TEST"}
    events = await exchange([Transcript(text=TEXT, context=context)], Handled)
    handled = Handled.from_event(events[-1])
    check(says(handled.text, "42", "forty-two", "forty two"), f"the answer is {handled.text!r}")
    check(handled.context == context, f"{handled.context}")
    check(HandledStart.is_type(events[0].type), f"{types(events)}")
    words = "".join(HandledChunk.from_event(event).text for event in events if HandledChunk.is_type(event.type))
    check(words.strip() == handled.text, f"the stream says {words!r}")


async def one_connection_for_several():
    async with AsyncClient.from_uri(URI) as client:
        await client.write_event(Event(type="run-satellite"))
        await client.write_event(Ping(text="one").event())
        pong = await asyncio.wait_for(client.read_event(), DEADLINE_S)
        check(Pong.from_event(pong).text == "one", f"{pong}")
        for text in ("Hello.", "And again."):
            await client.write_event(Synthesize(text=text).event())
            while not AudioStop.is_type((await asyncio.wait_for(client.read_event(), DEADLINE_S)).type):
                pass


async def refused():
    wrong = [
        Synthesize(text="Hello.", voice=SynthesizeVoice(name="nobody's")),
        Event(type="synthesize", data={"text": 7}),
        Event(type="audio-chunk", data={"rate": 1, "width": 2, "channels": 1}, payload=b"ab"),
        Event(type="audio-chunk", data={"rate": 16_000, "width": 2, "channels": 1}, payload=b"abc"),
        Event(type="ping", data={"text": "x" * 70_000}),
    ]
    for event in wrong:
        error = Error.from_event((await exchange([event], Error))[-1])
        check(error.text and error.code, f"{error}")


async def program():
    voice = await described()
    _, audio = await spoken(voice)
    await spoken_while_written(audio)
    await sound_before_the_end()
    start, even = await spoken(EVEN_VOICE)
    await heard(start.rate, even)
    await heard(RATE, speech("sum").tobytes())
    await silence()
    await answered()
    await one_connection_for_several()
    await refused()


if __name__ == "__main__":
    run(program)
