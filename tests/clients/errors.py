"""What no SDK would send: each is answered by its error, and the session lives."""

import asyncio
import base64
import json

from hub import HUB_URL, RATE, TYPES, check, run, talk, validate
from websockets.asyncio.client import connect

AUDIO = "Invalid 'audio'. Expected base64-encoded audio bytes (mono PCM16 at 24kHz) but got"


def update(**session):
    return {"type": "session.update", "session": {"type": "realtime", **session}}


def about(kind, **more):
    return {"type": f"conversation.item.{kind}", "item_id": "item_nobody", **more}


# (what is sent, code, param, how the message begins)
ROWS = [
    ("nonsense", "invalid_json", None, "Invalid event: failed to parse JSON value."),
    ("[]", "invalid_event", None, "Invalid event: expected a JSON object."),
    (b"\x01\x00", "invalid_event", None, "Expected a text WebSocket message; binary frames are not supported."),
    ({}, "invalid_event", None, "The 'type' field is missing."),
    ({"type": "x"}, "invalid_value", "type", "Invalid value: 'x'. Supported values are: 'session.update', "),
    (update(x=1), "unknown_parameter", "session.x", "Unknown parameter: 'session.x'."),
    (update(audio={"input": {"format": {"type": "audio/pcm", "rate": 16000}}}), "integer_below_min_value",
        "session.audio.input.format.rate", "Invalid 'session.audio.input.format.rate': integer below minimum value."),
    (update(audio={"input": {"turn_detection": {"type": "server_vad", "threshold": 2}}}), "decimal_above_max_value",
        "session.audio.input.turn_detection.threshold", "Invalid 'session.audio.input.turn_detection.threshold':"),
    ({"type": "session.update"}, "missing_required_parameter", "session", "Missing required parameter: 'session'."),
    ({"type": "input_audio_buffer.append", "audio": "%"}, "invalid_value", "audio", f"{AUDIO} an invalid value."),
    ({"type": "input_audio_buffer.append", "audio": ""}, "invalid_value", "audio", f"{AUDIO} empty bytes."),
    ({"type": "input_audio_buffer.commit"}, "input_audio_buffer_commit_empty", None,
        "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, but buffer only has 0.00ms"),
    ({"type": "response.cancel"}, "response_cancel_not_active", None, "Cancellation failed: no active response found"),
    (about("truncate", content_index=0, audio_end_ms=0), "item_truncate_invalid_item_id", "item_id",
        "Error truncating item: the item with id 'item_nobody' does not exist."),
    (about("delete"), "item_delete_invalid_item_id", "item_id", "Error deleting item: the item with id 'item_nobody'"),
    (about("retrieve"), "item_retrieve_invalid_item_id", "item_id", "Error retrieving item: the item with id"),
]


class Raw:
    """A socket without an SDK. Events are checked all the same."""

    def __init__(self, socket):
        self.socket, self.n = socket, 0

    async def send(self, message):
        """Sends `message`; an event gets an id of its own, which is returned."""
        if not isinstance(message, dict):
            await self.socket.send(message)
            return None
        self.n += 1
        await self.socket.send(json.dumps({**message, "event_id": f"mine_{self.n}"}))
        return f"mine_{self.n}"

    async def until(self, *kinds):
        async with asyncio.timeout(120):
            while True:
                event = validate(await self.socket.recv())
                if event.type in kinds:
                    return event

    async def refused(self, message, code, param, begins):
        event_id = await self.send(message)
        error = (await self.until("error")).error
        told = f"{message!r} was answered by {error!r}"
        check((error.code, error.param, error.event_id) == (code, param, event_id), told)
        check(error.type == "invalid_request_error" and error.message.startswith(begins), told)


async def at_rest(hub):
    for row in ROWS:
        await hub.refused(*row)
    item = {"id": "twice", "type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]}
    create = {"type": "conversation.item.create", "item": item}
    await hub.send(create)
    await hub.until("conversation.item.done")
    await hub.refused(create, "item_create_duplicate_item_id", "item.id", "Error creating item: ")
    cut = {"type": "conversation.item.truncate", "item_id": "twice", "content_index": 0, "audio_end_ms": 0}
    await hub.refused(cut, None, None, "Only model output audio messages can be truncated")


async def around_a_response(hub):
    await hub.send({"type": "response.create"})
    await hub.refused({"type": "response.create"}, "conversation_already_has_active_response", None,
        "Conversation already has an active response in progress: resp_")
    n_bytes, item = 0, None
    while (event := await hub.until("response.output_audio.delta", "response.done")).type != "response.done":
        n_bytes += len(base64.b64decode(event.delta))
        item = event.item_id
    check(event.response.status == "completed" and item, f"the first response suffered: {event.response}")
    sent_ms = -(-n_bytes * 1000 // (2 * RATE))
    cut = {"type": "conversation.item.truncate", "item_id": item, "content_index": 0}
    await hub.refused({**cut, "audio_end_ms": sent_ms + 60}, "invalid_value", "audio_end_ms", "Audio content of ")
    # A client that counts what it was sent must not be refused: some end the session at any error.
    await hub.send({**cut, "audio_end_ms": n_bytes * 1000 // (2 * RATE)})
    check((await hub.until("conversation.item.truncated", "error")).type == "conversation.item.truncated", "the whole length")
    voice = update(audio={"output": {"voice": "marin"}}, instructions="dropped")
    await hub.refused(voice, "cannot_update_voice", "session.audio.output.voice", "Cannot update a conversation's voice")
    await hub.send(update())
    session = (await hub.until("session.updated")).session
    check(session.instructions != "dropped", "a refused update was taken in part")


async def program():
    address = HUB_URL.replace("http", "ws", 1) + "/v1/realtime?model=gpt-realtime"
    async with connect(address, compression=None) as socket:
        hub = Raw(socket)
        check((await hub.until(*TYPES)).type == "session.created", "the first event is another")
        await at_rest(hub)
        await around_a_response(hub)
    async with talk() as other:
        check(other.log[0].session is not None, "a new session after all that")


if __name__ == "__main__":
    run(program)
