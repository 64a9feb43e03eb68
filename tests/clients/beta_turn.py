"""A typed turn in the names before GA, by the SDK that still speaks them; each event is checked against its types."""

import asyncio
import base64
import warnings

from hub import HUB_URL, RATE, check, run
from openai import AsyncOpenAI

CHAIN = ["session.created", "conversation.created", "session.updated", "conversation.item.created", "response.created",
    "response.output_item.added", "conversation.item.created", "response.content_part.added",
    "response.audio_transcript.delta", "response.audio.delta", "response.audio.done", "response.audio_transcript.done",
    "response.content_part.done", "response.output_item.done", "response.done", "rate_limits.updated"]


async def program():
    warnings.simplefilter("ignore", DeprecationWarning)
    address = HUB_URL.replace("http", "ws", 1) + "/v1"
    client = AsyncOpenAI(base_url=HUB_URL + "/v1", websocket_base_url=address, api_key="none")
    content = [{"type": "input_text", "text": "What is twelve plus thirty?"}]
    kinds, n_bytes, said = [], 0, ""
    async with asyncio.timeout(60), client.beta.realtime.connect(model="gpt-4o-realtime-preview") as hub:
        await hub.session.update(session={"modalities": ["text", "audio"], "temperature": 0.7, "turn_detection": None})
        await hub.conversation.item.create(item={"type": "message", "role": "user", "content": content})
        await hub.response.create()
        async for event in hub:
            type(event).model_validate(event.model_dump(exclude_unset=True, by_alias=True))
            if event.type != (kinds or [None])[-1]:
                kinds.append(event.type)
            if event.type == "response.audio.delta":
                n_bytes += len(base64.b64decode(event.delta))
            if event.type == "response.audio_transcript.done":
                said = event.transcript
            if event.type in ("rate_limits.updated", "error"):
                break
    check([kind for kind in kinds if kind in CHAIN] == kinds and set(kinds) == set(CHAIN), f"the events were {kinds}")
    check("42" in said and n_bytes > RATE, f"{said!r} in {n_bytes} bytes of speech")


if __name__ == "__main__":
    run(program)
