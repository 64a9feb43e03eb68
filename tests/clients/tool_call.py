"""The assistant calls the client's function, and speaks once it has the result."""

import json

from hub import check, in_order, run, talk

TOOL = {"type": "function", "name": "get_weather", "description": "Tells the present weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
CHAIN = ["response.created", "response.output_item.added", "conversation.item.added",
    "response.function_call_arguments.delta", "response.function_call_arguments.done", "conversation.item.done",
    "response.output_item.done", "response.done"]


async def called(hub, city, **response):
    """Asks for the weather; the call that came of it."""
    start = len(hub.log)
    await hub.write(f"What is the weather in {city}?")
    await hub.connection.response.create(response=response)
    done = (await hub.until("response.done")).response
    check(done.status == "completed", f"{done.status_details}")
    in_order([event.type for event in hub.log[start:]], CHAIN, "tool call")
    calls = [item for item in done.output if item.type == "function_call"]
    check(len(calls) == 1 and calls[0].name == "get_weather", f"{city}: {done.output}")
    arguments = hub.of("response.function_call_arguments.done", start)[0]
    pieces = [event.delta for event in hub.of("response.function_call_arguments.delta", start)]
    check("".join(pieces) == arguments.arguments == calls[0].arguments, "the deltas are not the arguments")
    check(arguments.name == "get_weather" and arguments.call_id == calls[0].call_id, f"{arguments}")
    check(json.loads(calls[0].arguments)["city"].lower() == city.lower(), f"arguments: {calls[0].arguments}")
    return calls[0]


async def answered(hub, call, output):
    """Gives the result; the transcript of what is then spoken."""
    item = {"type": "function_call_output", "call_id": call.call_id, "output": output}
    await hub.connection.conversation.item.create(item=item)
    added = (await hub.until("conversation.item.added")).item
    check(added.type == "function_call_output" and added.call_id == call.call_id, f"{added}")
    await hub.connection.response.create()
    done = (await hub.until("response.done")).response
    check(done.status == "completed", f"{done.status_details}")
    check([item.type for item in done.output] == ["message"], f"{done.output}")
    return done.output[0].content[0].transcript


async def program():
    async with talk() as hub:
        session = await hub.configure(tools=[TOOL], tool_choice="auto")
        check([tool.name for tool in session.tools] == ["get_weather"], f"{session.tools}")
        call = await called(hub, "Paris")
        said = await answered(hub, call, '{"weather": "sunny", "degrees": 21}')
        check("sunny" in said.lower(), f"the result is not in the answer: {said!r}")
        call = await called(hub, "Rome", tool_choice={"type": "function", "name": "get_weather"})
        said = await answered(hub, call, "It rains.")
        check("rain" in said.lower(), f"the result is not in the answer: {said!r}")
        # Without tools for one response the assistant speaks itself.
        await hub.write("What is the weather in Oslo?")
        await hub.connection.response.create(response={"tool_choice": "none"})
        done = (await hub.until("response.done")).response
        check([item.type for item in done.output] == ["message"], f"tool_choice none: {done.output}")


if __name__ == "__main__":
    run(program)
