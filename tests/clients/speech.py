"""The speech API by the unchanged SDK: a text to sound in every format, that sound to words, models, errors, a job."""

import asyncio
import io
import json
import urllib.request
import wave

import openai
from openai import AsyncOpenAI

from hub import HUB_URL, RATE, Failure, check, run, says, speech

TEXT = "What is twelve plus thirty?"
# Its sound is the same each time. The other voices are excited with noise, and in one of a hundred a word is misheard.
EVEN_VOICE = "kal16"
FORMATS = {"mp3": (b"\xff",), "opus": (b"OggS",), "flac": (b"fLaC",), "wav": (b"RIFF",), "pcm": (b"",)}
JOB_DEADLINE_S = 120


async def spoken(client):
    """Each format, streamed; the files by format."""
    files = {}
    for name, begins in FORMATS.items():
        speaking = client.audio.speech.with_streaming_response.create(
            model="tts-1", voice=EVEN_VOICE, input=TEXT, response_format=name)
        async with speaking as response:
            pieces = [piece async for piece in response.iter_bytes()]
        check(len(pieces) > 1, f"{name} came in one piece")
        files[name] = b"".join(pieces)
        check(files[name].startswith(begins), f"{name} begins with {files[name][:4]}")
    seconds = len(files["pcm"]) / 48_000
    check(1 < seconds < 5, f"{seconds} s of speech")
    slow = await client.audio.speech.create(model="tts-1", voice=EVEN_VOICE, input=TEXT, response_format="pcm", speed=0.5)
    check(len(slow.content) > 1.5 * len(files["pcm"]), "speed 0.5 is not slower")
    return files


async def written(client, files):
    for name in ("wav", "mp3", "opus", "flac"):
        heard = await client.audio.transcriptions.create(model="whisper-1", file=(f"a.{name}", files[name]))
        check(says(heard.text, "twelve plus thirty", "12 plus 30"), f"{name} was heard as {heard.text!r}")
        check(heard.usage.type == "duration" and heard.usage.seconds >= 1, f"{heard.usage}")
    wav = ("a.wav", files["wav"])
    verbose = await client.audio.transcriptions.create(
        model="whisper-1", file=wav, response_format="verbose_json", timestamp_granularities=["segment"], language="en")
    check(verbose.language == "english" and verbose.duration > 1, f"{verbose}")
    check(verbose.segments and verbose.segments[0].end > verbose.segments[0].start >= 0, f"{verbose.segments}")
    srt = await client.audio.transcriptions.create(model="whisper-1", file=wav, response_format="srt")
    check(srt.startswith("1\n00:00:0"), srt)
    deltas, done = "", None
    async for event in await client.audio.transcriptions.create(model="gpt-4o-transcribe", file=wav, stream=True):
        if event.type == "transcript.text.delta":
            deltas += event.delta
        else:
            done = event
    check(done is not None and done.type == "transcript.text.done" and done.text == deltas, f"{deltas!r} and {done}")
    check(says(deltas, "twelve", "12"), deltas)


async def long_audio(client):
    """Two recordings with a pause between them are two segments, in order."""
    pcm = speech("sum").tobytes() + bytes(2 * 24_000 * 2) + speech("other_sum").tobytes()
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, 24_000, 0, "NONE", ""))
        out.writeframes(pcm)
    heard = await client.audio.transcriptions.create(
        model="whisper-1", file=("long.wav", file.getvalue()), response_format="verbose_json")
    check(len(heard.segments) == 2, f"{heard.segments}")
    # A recognizer may count the pause to the segment before it.
    check(heard.segments[1].start >= max(heard.segments[0].end, len(speech("sum")) / RATE), f"{heard.segments}")
    check(says(heard.segments[1].text, "seven", "7"), heard.text)


async def refused(client):
    wrong = {"voice": "../../etc/passwd"}, {"speed": 0}, {"input": ""}, {"input": "🎉"}, {"model": "no-such-model"}
    for change in wrong:
        try:
            await client.audio.speech.create(**{"model": "tts-1", "voice": "alloy", "input": "Hello.", **change})
        except openai.BadRequestError as error:
            check(error.param == list(change)[0] and error.code, f"{change}: {error.body}")
        else:
            raise Failure(f"{change} was taken")
    try:
        await client.audio.transcriptions.create(model="whisper-1", file=("a.wav", b"no sound"))
    except openai.BadRequestError as error:
        check(error.code == "unsupported_format", f"{error.body}")
    else:
        raise Failure("a file that is no sound was taken")


async def listed(client):
    models = [model.id async for model in client.models.list()]
    check("antiphon" in models and len(models) >= 3, f"{models}")
    check((await client.models.retrieve(models[1])).id == models[1], "another model was retrieved")
    try:
        await client.models.retrieve("no-such-model")
    except openai.NotFoundError:
        return
    raise Failure("a model that is not there was retrieved")


async def jobs(method, path="", wish=None):
    """No SDK has them. The status, and the body."""
    body = None if wish is None else json.dumps(wish).encode()
    request = urllib.request.Request(f"{HUB_URL}/v1/audio/speech/jobs{path}", data=body, method=method)

    def ask():
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as response:
            return response.status, response.read()

    return await asyncio.to_thread(ask)


async def job():
    wish = {"model": "tts-1", "voice": "alloy", "input": f"{TEXT} " * 3, "response_format": "wav"}
    status, made = await jobs("POST", wish=wish)
    check(status == 202, f"{status}")
    path = f"/{json.loads(made)['id']}"
    clock = asyncio.get_running_loop()
    start = clock.time()
    while (state := json.loads((await jobs("GET", path))[1]))["status"] != "completed":
        check(state["status"] in ("queued", "running"), f"{state}")
        check(clock.time() - start < JOB_DEADLINE_S, f"not done after {JOB_DEADLINE_S} s: {state}")
        await asyncio.sleep(0.1)
    check(state["progress"]["chunks_done"] == state["progress"]["chunks_total"] >= 2, f"{state}")
    _, file = await jobs("GET", f"{path}/audio")
    check(file.startswith(b"RIFF") and len(file) == state["audio"]["bytes"], f"{len(file)} bytes of {state}")
    check((await jobs("DELETE", path))[0] == 200, "it was not removed")


async def program():
    async with AsyncOpenAI(base_url=f"{HUB_URL}/v1", api_key="sk-not-needed", max_retries=0) as client:
        files = await spoken(client)
        await written(client, files)
        await long_audio(client)
        await refused(client)
        await listed(client)
        await job()


if __name__ == "__main__":
    run(program)
