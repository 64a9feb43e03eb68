"""What the programs beside this file share: a connection whose every event is checked against the SDK's own types.

The address of the hub comes from HUB_URL, the recordings from SPEECH_DIR; `run.py` sets both.
"""

import asyncio
import base64
import json
import os
import sys
from contextlib import asynccontextmanager, suppress
from typing import get_args

from openai import AsyncOpenAI
from openai._models import BaseModel
from openai.types.realtime import RealtimeServerEvent

from recordings import FRAME, RATE, loud, people, samples, speech  # noqa: F401 - the programs take them from here

HUB_URL = os.environ.get("HUB_URL", "http://127.0.0.1:8080")
DEADLINE_S = 120

_UNION = get_args(RealtimeServerEvent)[0]
TYPES = {get_args(event.model_fields["type"].annotation)[0]: event for event in get_args(_UNION)}

# What the live service sends beyond the SDK's types, and the hub's own: the language that was heard (docs/guide/languages.md),
# and the id of a key press, whose type in the SDK has none.
KNOWN_EXTRAS = {"session.id", "session.object", "session.expires_at", "language", "event_id"}


class Failure(Exception):
    """The hub did something else than the protocol says."""


def check(holds, message):
    if not holds:
        raise Failure(message)


def validate(raw):
    """The event as the SDK's type, strictly: no missing field, no wrong type, no field nobody knows."""
    event = json.loads(raw)
    kind = event.get("type")
    check(kind in TYPES, f"the SDK knows no event {kind!r}")
    check(isinstance(event.get("event_id"), str) and event["event_id"], f"{kind} without event_id")
    model = TYPES[kind].model_validate(event, strict=True)
    unknown = set(_extras(model, "")) - KNOWN_EXTRAS
    check(not unknown, f"{kind} carries fields the SDK does not know: {sorted(unknown)}")
    return model


def _extras(model, path):
    for name in model.model_extra or {}:
        yield f"{path}{name}"
    for name in type(model).model_fields:
        value = getattr(model, name)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, BaseModel):
                yield from _extras(one, f"{path}{name}.")


class Talk:
    """One session. `log` holds every event, in order."""

    def __init__(self, connection):
        self.connection = connection
        self.log = []

    async def next(self, deadline_s=DEADLINE_S):
        try:
            raw = await asyncio.wait_for(self.connection.recv_bytes(), deadline_s)
        except TimeoutError:
            raise Failure(f"no event for {deadline_s} s after {self.types()[-5:]}") from None
        event = validate(raw)
        check(event.event_id not in {seen.event_id for seen in self.log}, f"event_id {event.event_id} came twice")
        self.log.append(event)
        return event

    async def until(self, kind, deadline_s=DEADLINE_S):
        """Reads up to the next event of this type. An `error` nobody asked for ends the program."""
        while True:
            event = await self.next(deadline_s)
            if event.type == kind:
                return event
            check(event.type != "error", f"while waiting for {kind}: {getattr(event, 'error', None)}")

    def types(self):
        return [event.type for event in self.log]

    def of(self, kind, start=0):
        return [event for event in self.log[start:] if event.type == kind]

    async def configure(self, **session):
        await self.connection.session.update(session={"type": "realtime", **session})
        return (await self.until("session.updated")).session

    async def write(self, text):
        content = [{"type": "input_text", "text": text}]
        await self.connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})

    async def send_audio(self, pcm):
        await self.connection.input_audio_buffer.append(audio=base64.b64encode(pcm.tobytes()).decode())

    async def speak(self, pcm):
        """Sends a recording at real time, and silence behind it until cancelled."""
        clock = asyncio.get_running_loop()
        start = clock.time()
        n = 0
        while True:
            frame = pcm[n * FRAME : (n + 1) * FRAME]
            frame.extend([0] * (FRAME - len(frame)))
            await self.send_audio(frame)
            n += 1
            await asyncio.sleep(max(0, start + n * 0.02 - clock.time()))

    @asynccontextmanager
    async def speaking(self, pcm):
        task = asyncio.create_task(self.speak(pcm))
        try:
            yield
            check(not task.done() or task.exception() is None, f"the microphone broke: {task}")
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


@asynccontextmanager
async def talk(model="gpt-realtime", query=None):
    client = AsyncOpenAI(base_url=f"{HUB_URL}/v1", api_key="sk-not-needed")
    named = {} if model is None else {"model": model}
    async with client.realtime.connect(**named, extra_query=query or {}) as connection:
        session = Talk(connection)
        first = await session.next()
        check(first.type == "session.created", f"the first event is {first.type}")
        yield session


def in_order(types, expect, what):
    """`expect` stands in `types` in this order; other events may lie between."""
    types = [kind for i, kind in enumerate(types) if i == 0 or kind != types[i - 1]]
    at = 0
    for kind in expect:
        check(kind in types[at:], f"{what}: no {kind} behind {types[:at][-3:]} in {types}")
        at = types.index(kind, at) + 1


def says(text, *words):
    return any(word in text.lower() for word in words)


def run(program):
    """Runs one program; a failure is told in one line."""
    try:
        asyncio.run(program())
    except Failure as failure:
        sys.exit(f"{failure}")
