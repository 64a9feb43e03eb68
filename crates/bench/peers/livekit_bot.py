"""A LiveKit agent with local models, for `antiphon-bench conversation --livekit`: livekit-agents 1.8 with its defaults.

    pip install 'livekit-agents[openai]' faster-whisper piper-tts

Whisper and Piper run in its process, the language model is at MOCK_URL. The session has no room: each WebSocket at /ws is a
caller, with pipecat's frames and RTVI messages, so that the benchmark talks to it as to a pipecat bot. Turns, interruptions and
pauses are the framework's: its VAD, its local turn detector (whose licence permits it within LiveKit Agents), and false
interruptions that resume. Only the warm-up of an echo canceller is off, in which nothing interrupts: there is no echo.

Environment: MOCK_URL, PORT, WHISPER (folder of CTranslate2 files), COMPUTE (its type of numbers), PIPER (folder) and VOICE
(name).
"""

import asyncio
import json
import os
import sys
import time
import uuid
from pathlib import Path

import numpy as np
from aiohttp import WSMsgType, web
from faster_whisper import WhisperModel
from livekit import rtc
from livekit.agents import Agent, AgentSession, APIConnectOptions, stt, tts, utils
from livekit.agents.voice import io
from livekit.agents.voice.transcription import TranscriptSynchronizer
from livekit.plugins import openai
from piper import PiperVoice

INPUT_RATE = 16_000
OUTPUT_RATE = 24_000
FRAME_SECONDS = 0.02
FRAME_BYTES = int(OUTPUT_RATE * FRAME_SECONDS) * 2


# pipecat's protobuf frames: `Frame` holds one of AudioRawFrame (2), MessageFrame (4) and InterruptionFrame (5).

AUDIO, MESSAGE, INTERRUPTION = 2, 4, 5
VARINT, BYTES = 0, 2


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value)
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def audio_frame(pcm):
    return field(AUDIO, field(2, b"audio") + field(3, pcm) + field(4, OUTPUT_RATE) + field(5, 1))


def message_frame(message):
    return field(MESSAGE, field(1, json.dumps(message).encode()))


def fields(data):
    """The fields of a message: (number, value)."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = number()
        if key & 7 == VARINT:
            yield key >> 3, number()
        else:
            length = number()
            yield key >> 3, data[at : at + length]
            at += length


class Whisper(stt.STT):
    """Whole stretches of speech, as the VAD gives them."""

    def __init__(self, model):
        super().__init__(capabilities=stt.STTCapabilities(streaming=False, interim_results=False))
        self._whisper = model

    async def _recognize_impl(self, buffer, *, language=None, conn_options=None):
        frame = rtc.combine_audio_frames(buffer)
        samples = np.frombuffer(frame.data, dtype=np.int16)
        if frame.sample_rate != INPUT_RATE:
            resampler = rtc.AudioResampler(frame.sample_rate, INPUT_RATE)
            frames = [*resampler.push(frame), *resampler.flush()]
            samples = np.concatenate([np.frombuffer(one.data, dtype=np.int16) for one in frames])
        text = await asyncio.to_thread(self._transcribe, samples.astype(np.float32) / 32_768)
        data = stt.SpeechData(text=text, language="en")
        return stt.SpeechEvent(type=stt.SpeechEventType.FINAL_TRANSCRIPT, alternatives=[data])

    def _transcribe(self, samples):
        segments, _ = self._whisper.transcribe(samples, language="en")
        return " ".join(segment.text.strip() for segment in segments).strip()


class Piper(tts.TTS):
    def __init__(self, voice):
        rate = voice.config.sample_rate
        super().__init__(capabilities=tts.TTSCapabilities(streaming=False), sample_rate=rate, num_channels=1)
        self.voice = voice

    def synthesize(self, text, *, conn_options=APIConnectOptions()):
        return PiperSpeech(tts=self, input_text=text, conn_options=conn_options)


class PiperSpeech(tts.ChunkedStream):
    async def _run(self, output_emitter):
        output_emitter.initialize(
            request_id=utils.shortuuid(), sample_rate=self._tts.sample_rate, num_channels=1, mime_type="audio/pcm"
        )
        chunks = iter(self._tts.voice.synthesize(self.input_text))
        while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
            output_emitter.push(chunk.audio_int16_bytes)
        output_emitter.flush()


class Microphone(io.AudioInput):
    def __init__(self):
        super().__init__(label="caller")
        self.frames = utils.aio.Chan()

    def push(self, pcm):
        samples = len(pcm) // 2
        self.frames.send_nowait(
            rtc.AudioFrame(data=pcm, sample_rate=INPUT_RATE, num_channels=1, samples_per_channel=samples)
        )

    async def __anext__(self):
        return await self.frames.__anext__()


class Loudspeaker(io.AudioOutput):
    """Sends a reply as fast as it sounds, and says what has sounded of it."""

    def __init__(self, caller):
        super().__init__(
            label="caller", capabilities=io.AudioOutputCapabilities(pause=True), sample_rate=OUTPUT_RATE
        )
        self.caller = caller
        self.waiting = bytearray()
        self.played = 0.0
        self.is_open = False
        self.is_whole = False
        self.is_cut = False
        self.may_sound = asyncio.Event()
        self.may_sound.set()
        self.changed = asyncio.Event()

    async def capture_frame(self, frame):
        await super().capture_frame(frame)
        self.is_open = True
        if not self.is_cut:
            self.waiting += bytes(frame.data)
            self.changed.set()

    def flush(self):
        super().flush()
        # A reply that was cut before its first sound is flushed, too.
        if self.is_open:
            self.is_whole = True
            self.changed.set()

    def clear_buffer(self):
        if self.is_open and not self.is_cut:
            self.is_cut = True
            self.waiting.clear()
            self.caller.send(field(INTERRUPTION, b""))
            self.may_sound.set()
            self.changed.set()

    def pause(self):
        self.may_sound.clear()

    def resume(self):
        self.may_sound.set()

    async def play(self):
        """Runs as long as the call."""
        due = 0.0
        while True:
            await self.changed.wait()
            self.changed.clear()
            while len(self.waiting) >= FRAME_BYTES or (self.is_whole and self.waiting):
                await self.may_sound.wait()
                due = max(due, time.monotonic() - FRAME_SECONDS)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                due += FRAME_SECONDS
                # It may have been cut or paused meanwhile.
                if not self.waiting or not self.may_sound.is_set():
                    continue
                pcm = bytes(self.waiting[:FRAME_BYTES])
                del self.waiting[:FRAME_BYTES]
                if self.played == 0.0:
                    self.on_playback_started(created_at=time.time())
                self.played += len(pcm) / 2 / OUTPUT_RATE
                self.caller.send(audio_frame(pcm))
            if self.is_open and self.is_whole and not self.waiting:
                self.finish()

    def finish(self):
        if not self.is_cut:
            self.caller.rtvi("bot-stopped-speaking")
        played, cut = self.played, self.is_cut
        self.played = 0.0
        self.is_open = self.is_whole = self.is_cut = False
        self.may_sound.set()
        self.on_playback_finished(playback_position=played, interrupted=cut)


class Teller(Agent):
    def __init__(self, caller):
        super().__init__(instructions="You are a helpful voice assistant.")
        self.caller = caller

    async def transcription_node(self, text, model_settings):
        has_begun = False
        async for delta in text:
            if not has_begun:
                self.caller.rtvi("bot-llm-started")
                has_begun = True
            self.caller.rtvi("bot-llm-text", text=str(delta))
            yield delta


class Caller:
    """A WebSocket, and the session behind it."""

    def __init__(self, socket):
        self.socket = socket
        self.outbox = utils.aio.Chan()

    def send(self, frame):
        self.outbox.send_nowait(frame)

    def rtvi(self, kind, **data):
        self.send(message_frame({"label": "rtvi-ai", "type": kind, "id": uuid.uuid4().hex, "data": data}))

    async def write(self):
        async for frame in self.outbox:
            await self.socket.send_bytes(frame)

    async def serve(self, whisper, voice):
        microphone, loudspeaker = Microphone(), Loudspeaker(self)
        session = AgentSession(
            stt=Whisper(whisper),
            llm=openai.LLM(model="mock", base_url=os.environ["MOCK_URL"], api_key="mock"),
            tts=Piper(voice),
            aec_warmup_duration=None,
            user_away_timeout=None,
        )
        # As its room has it: the conversation keeps the words that have sounded.
        synchronizer = TranscriptSynchronizer(next_in_chain_audio=loudspeaker, next_in_chain_text=None)
        session.input.audio = microphone
        session.output.audio = synchronizer.audio_output
        session.output.transcription = synchronizer.text_output
        session.on("user_state_changed", self.user_state)
        session.on("user_input_transcribed", self.transcribed)
        tasks = [asyncio.create_task(self.write()), asyncio.create_task(loudspeaker.play())]
        try:
            await session.start(Teller(self), record=False)
            async for message in self.socket:
                if message.type != WSMsgType.BINARY:
                    continue
                for kind, body in fields(message.data):
                    if kind == AUDIO:
                        microphone.push(dict(fields(body))[3])
                    elif kind == MESSAGE and b"client-ready" in body:
                        self.rtvi("bot-ready", version="1.4.0")
        finally:
            microphone.frames.close()
            await session.aclose()
            await synchronizer.aclose()
            for task in tasks:
                task.cancel()

    def user_state(self, event):
        if event.new_state == "speaking":
            self.rtvi("user-started-speaking")
        elif event.old_state == "speaking":
            self.rtvi("user-stopped-speaking")

    def transcribed(self, event):
        if event.is_final:
            self.rtvi("user-transcription", text=event.transcript, final=True)


def main():
    whisper = WhisperModel(os.environ["WHISPER"], device="cpu", compute_type=os.getenv("COMPUTE", "int8"))
    voice = PiperVoice.load(Path(os.environ["PIPER"]) / f"{os.environ['VOICE']}.onnx")

    async def answer(request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await Caller(socket).serve(whisper, voice)
        return socket

    app = web.Application()
    app.router.add_get("/ws", answer)
    web.run_app(app, host="127.0.0.1", port=int(os.getenv("PORT", "8765")), print=None)


if __name__ == "__main__":
    sys.exit(main())
