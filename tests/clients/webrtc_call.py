"""WebRTC: aiortc through a network that loses, delays and reorders packets; the SDK opens, joins and hangs up the call."""

import array
import asyncio
import random
import re
import time
from contextlib import suppress

import av
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription
from aiortc.codecs.opus import OpusDecoder
from aiortc.mediastreams import MediaStreamError
from openai import AsyncOpenAI, NotFoundError

from hub import DEADLINE_S, FRAME, HUB_URL, RATE, Talk, check, in_order, run, says, speech, validate

LOSS, JITTER_S = 0.05, 0.04
AUDIBLE = 300  # of 32768


def has_fec(packet):
    """Whether an Opus packet holds a copy of the one before: RFC 6716, sections 3.1 and 4.2.3, for mono and 20 ms."""
    return packet[0] >> 3 < 16 and packet[1] & 0x40 != 0


class Packets:
    """Counts what is decoded: packets, and those with a copy of the one before."""

    def __init__(self):
        self.n, self.n_fec, self.decode = 0, 0, OpusDecoder.decode
        OpusDecoder.decode = lambda decoder, frame: self.count(frame.data) or self.decode(decoder, frame)

    def count(self, packet):
        self.n += 1
        self.n_fec += len(packet) > 1 and has_fec(packet)


class Relay(asyncio.DatagramProtocol):
    """One direction of a bad network; the other is another instance."""

    def __init__(self, seed):
        self.random, self.target, self.peer, self.other = random.Random(seed), None, None, None
        self.impaired = False

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, source):
        self.peer = source
        # The handshake and the events are retransmitted, which is not what is tested; media is not.
        is_media = 128 <= data[0] <= 191
        if self.impaired and is_media and self.random.random() < LOSS:
            return
        delay = self.random.random() * JITTER_S if self.impaired and is_media else 0
        asyncio.get_running_loop().call_later(delay, self.forward, data)

    def forward(self, data):
        target = self.target or self.other.peer
        if target is not None:
            self.other.transport.sendto(data, target)


async def relay(target):
    """A relay to the hub; gives its own port."""
    loop = asyncio.get_running_loop()
    (_, near), (_, far) = [
        await loop.create_datagram_endpoint(lambda seed=seed: Relay(seed), local_addr=("127.0.0.1", 0)) for seed in (1, 2)
    ]
    near.target, near.other, far.other = target, far, near
    return near, far, near.transport.get_extra_info("sockname")[1]


class Microphone(MediaStreamTrack):
    """What is said, then silence, in real time."""

    kind = "audio"

    def __init__(self):
        super().__init__()
        self.waiting, self.n, self.begin = array.array("h"), 0, time.monotonic()

    def say(self, pcm):
        self.waiting = array.array("h", pcm)

    async def recv(self):
        await asyncio.sleep(max(0, self.begin + self.n * 0.02 - time.monotonic()))
        samples = self.waiting[:FRAME]
        del self.waiting[:FRAME]
        samples.extend([0] * (FRAME - len(samples)))
        frame = av.AudioFrame(format="s16", layout="mono", samples=FRAME)
        frame.planes[0].update(samples.tobytes())
        frame.sample_rate, frame.pts = RATE, self.n * FRAME
        self.n += 1
        return frame


class Call:
    """A call whose every event is checked against the SDK's own types."""

    def __init__(self):
        self.peer, self.microphone, self.log, self.arrived = RTCPeerConnection(), Microphone(), [], asyncio.Event()
        self.audible_s, self.failure = 0.0, None
        self.channel = self.peer.createDataChannel("oai-events")
        self.channel.on("message", self.on_message)
        self.peer.addTrack(self.microphone)
        self.peer.on("track", lambda track: setattr(self, "listening", asyncio.create_task(self.listen(track))))

    def on_message(self, raw):
        try:
            self.log.append(validate(raw))
        except Exception as failure:  # noqa: BLE001 - reported by the program
            self.failure = failure
        self.arrived.set()

    async def listen(self, track):
        with suppress(MediaStreamError):
            await self.measure(track)

    async def measure(self, track):
        while True:
            frame = await track.recv()
            samples = array.array("h", bytes(frame.planes[0]))
            if max(map(abs, samples), default=0) > AUDIBLE:
                self.audible_s += frame.samples / frame.sample_rate

    async def open(self, client):
        await self.peer.setLocalDescription(await self.peer.createOffer())
        answer = await client.realtime.calls.create(
            sdp=self.peer.localDescription.sdp, session={"type": "realtime", "instructions": "Be brief."}
        )
        self.id = answer.response.headers["location"].rsplit("/", 1)[1]
        candidates = re.findall(r"a=candidate:\S+ \d+ udp \d+ (\S+) (\d+) .*\r\n", answer.text, re.IGNORECASE)
        host, port = next((host, port) for host, port in candidates if "." in host)
        *self.network, own_port = await relay((host, int(port)))
        sdp = re.sub(r"a=candidate:.* tcp .*\r\n", "", answer.text, flags=re.IGNORECASE).replace(f" {port} ", f" {own_port} ")
        await self.peer.setRemoteDescription(RTCSessionDescription(sdp=sdp, type="answer"))
        await self.until("session.created")

    def impair(self):
        for direction in self.network:
            direction.impaired = True

    async def until(self, kind, start=0):
        async def wait():
            at = start
            while True:
                for event in self.log[at:]:
                    at += 1
                    check(event.type != "error", f"while waiting for {kind}: {getattr(event, 'error', None)}")
                    if event.type == kind:
                        return event
                check(self.failure is None, self.failure)
                self.arrived.clear()
                await self.arrived.wait()

        try:
            return await asyncio.wait_for(wait(), DEADLINE_S)
        except TimeoutError:
            check(False, f"no {kind} after {[event.type for event in self.log]}; heard {self.audible_s:.1f} s")

    def types(self):
        return [event.type for event in self.log]


async def turn(call):
    """A spoken question: what was understood, and the answer, which was audible."""
    start, audible_s = len(call.log), call.audible_s
    call.microphone.say(speech("sum"))
    await call.until("output_audio_buffer.stopped", start)
    words = await call.until("conversation.item.input_audio_transcription.completed", start)
    answer = await call.until("response.output_audio_transcript.done", start)
    in_order(call.types()[start:], ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped",
        "response.created", "output_audio_buffer.started", "response.output_audio.done", "response.done",
        "output_audio_buffer.stopped"], "a turn by WebRTC")
    check(call.audible_s - audible_s > 0.5, f"only {call.audible_s - audible_s:.2f} s were audible")
    return words.transcript, answer.transcript


async def program():
    client = AsyncOpenAI(base_url=f"{HUB_URL}/v1", api_key="sk-not-needed")
    call, packets = Call(), Packets()
    await call.open(client)
    check(call.log[0].session.instructions == "Be brief.", "the settings of the offer")
    understood, answered = await turn(call)
    check(says(understood, "twelve", "12"), f"it understood {understood!r}")
    check(says(answered, "42", "forty"), f"it answered {answered!r}")
    check(packets.n_fec > 0, f"none of {packets.n} packets could replace a lost one")
    # How many words the recognizer misses then is measured by `antiphon-bench transports`.
    call.impair()
    understood, answered = await turn(call)
    check(understood and answered, f"through the impaired network it understood {understood!r} and answered {answered!r}")

    async with client.realtime.connect(call_id=call.id) as connection:
        joined = Talk(connection)
        check((await joined.next()).type == "session.created", joined.types())
        start = len(call.log)
        await joined.write("What is one plus one?")
        await connection.response.create()
        said = (await joined.until("response.output_audio_transcript.done")).transcript
        check((await call.until("response.output_audio_transcript.done", start)).transcript == said, "both see the same")
        await call.until("output_audio_buffer.stopped", start)
        await client.realtime.calls.hangup(call.id)

    try:
        await client.realtime.calls.hangup(call.id)
        check(False, "a call that has ended was hung up")
    except NotFoundError:
        pass
    print(f"audible for {call.audible_s:.1f} s through {LOSS:.0%} loss and {JITTER_S * 1000:.0f} ms jitter")
    await call.peer.close()


if __name__ == "__main__":
    run(program)
