"""An agent with tools, over the unchanged OpenAI SDK for Python and a hub on this machine.

    python agent.py "What is the weather in Paris?"
    python agent.py question.wav            # PCM16, mono

It prints what is said and called, and writes the spoken answer to reply.wav.
"""

import asyncio
import base64
import json
import os
import sys
import wave
from array import array

from openai import AsyncOpenAI

HUB_URL = os.environ.get("HUB_URL", "http://127.0.0.1:8080")
RATE_HZ = 24_000


def get_weather(city: str) -> dict:
    """Your own function: ask a service, a database, a device."""
    return {"city": city, "weather": "sunny", "degrees": 21}


# What the model knows of the functions: a name, when to call it, and the arguments as JSON Schema.
TOOLS = {
    "get_weather": (
        get_weather,
        "Tells the present weather in a city.",
        {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    ),
}


def declared() -> list[dict]:
    tools = ((name, description, schema) for name, (_, description, schema) in TOOLS.items())
    return [{"type": "function", "name": name, "description": text, "parameters": schema} for name, text, schema in tools]


def sound_of(path: str) -> bytes:
    """The file's sound at the protocol's rate."""
    with wave.open(path) as file:
        if (file.getnchannels(), file.getsampwidth()) != (1, 2):
            raise SystemExit(f"{path} is not PCM16, mono")
        rate_hz, samples = file.getframerate(), array("h", file.readframes(file.getnframes()))
    if rate_hz == RATE_HZ:
        return samples.tobytes()
    # Linear interpolation; a program for more than speech takes a library.
    positions = (i * rate_hz / RATE_HZ for i in range((len(samples) - 1) * RATE_HZ // rate_hz))
    between = lambda at: samples[int(at)] + (samples[int(at) + 1] - samples[int(at)]) * (at % 1)
    return array("h", (round(between(at)) for at in positions)).tobytes()


async def ask(connection, question: str) -> None:
    """Sends the question: a text, or the sound of a file."""
    if question.endswith(".wav"):
        content = {"type": "input_audio", "audio": base64.b64encode(sound_of(question)).decode()}
    else:
        content = {"type": "input_text", "text": question}
    await connection.conversation.item.create(item={"type": "message", "role": "user", "content": [content]})
    await connection.response.create()


async def call(connection, item) -> None:
    """Calls the function that the model wants, and gives it the result."""
    function, _, _ = TOOLS[item.name]
    arguments = json.loads(item.arguments)
    result = function(**arguments)
    print(f"called: {item.name}({arguments}) = {result}")
    output = {"type": "function_call_output", "call_id": item.call_id, "output": json.dumps(result)}
    await connection.conversation.item.create(item=output)


async def converse(question: str) -> None:
    # A hub without keys takes any.
    client = AsyncOpenAI(base_url=f"{HUB_URL}/v1", api_key=os.environ.get("ANTIPHON_API_KEY", "none"))
    spoken = bytearray()
    async with client.realtime.connect(model="antiphon") as connection:
        session = {"type": "realtime", "instructions": "You help travellers. Be brief.", "tools": declared()}
        await connection.session.update(session=session)
        await ask(connection, question)
        async for event in connection:
            match event.type:
                case "conversation.item.input_audio_transcription.completed":
                    print(f"heard: {event.transcript}")
                case "response.output_audio.delta":
                    spoken += base64.b64decode(event.delta)
                case "response.output_audio_transcript.done":
                    print(f"said: {event.transcript}")
                case "response.done":
                    if event.response.status == "failed":
                        raise SystemExit(f"the response failed: {event.response.status_details}")
                    calls = [item for item in event.response.output or [] if item.type == "function_call"]
                    if not calls:
                        break
                    for item in calls:
                        await call(connection, item)
                    # The model speaks once it has the results.
                    await connection.response.create()
                case "error":
                    raise SystemExit(event.error.message)
    with wave.open("reply.wav", "wb") as file:
        file.setframerate(RATE_HZ)
        file.setnchannels(1)
        file.setsampwidth(2)
        file.writeframes(spoken)
    print(f"wrote: reply.wav, {len(spoken) / 2 / RATE_HZ:.1f} s")


if __name__ == "__main__":
    asyncio.run(converse(sys.argv[1] if len(sys.argv) > 1 else "What is the weather in Paris?"))
