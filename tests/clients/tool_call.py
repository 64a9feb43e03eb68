"""A declared function is called, its result is given, and the next response speaks of it."""

import json

from hub import check, in_order, run, says, talk

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "The city."}},
        "required": ["city"],
    },
}


async def program():
    async with talk() as hub:
        session = await hub.configure(output_modalities=["text"], tools=[WEATHER], tool_choice="auto")
        check(session.tools[0].name == "get_weather", f"the tools were not taken: {session.tools}")
        await hub.write("What is the weather in Paris?")
        await hub.connection.response.create()
        done = await hub.until("response.done")
        chain = ["response.created", "response.output_item.added", "conversation.item.added",
            "response.function_call_arguments.delta", "response.function_call_arguments.done",
            "conversation.item.done", "response.output_item.done", "response.done"]
        in_order(hub.types(), chain, "tool call")
        added = hub.of("response.output_item.added")[0].item
        check((added.type, added.arguments) == ("function_call", ""), f"a call begins without arguments: {added}")
        call = done.response.output[-1]
        check(call.type == "function_call" and call.status == "completed", f"no call: {done.response}")
        check(json.loads(call.arguments) == {"city": "Paris"}, f"the call's arguments: {call.arguments}")
        arguments = hub.of("response.function_call_arguments.done")[0]
        check((arguments.call_id, arguments.name) == (call.call_id, "get_weather"), f"another call: {arguments}")
        deltas = "".join(event.delta for event in hub.of("response.function_call_arguments.delta"))
        check(deltas == call.arguments, f"the deltas are {deltas!r}")

        output = json.dumps({"temperature": 21, "sky": "clear"})
        result = {"type": "function_call_output", "call_id": call.call_id, "output": output}
        await hub.connection.conversation.item.create(item=result)
        shown = (await hub.until("conversation.item.added")).item
        check((shown.type, shown.output) == ("function_call_output", output), f"the result is shown as {shown}")
        await hub.connection.response.create()
        done = await hub.until("response.done")
        text = done.response.output[0].content[0].text
        check(says(text, "21", "twenty-one") and says(text, "clear"), f"the result is not spoken of: {text!r}")

        wrong = {"type": "function_call_output", "call_id": "call_of_nobody", "output": "x"}
        await hub.connection.conversation.item.create(item=wrong, event_id="wrong")
        error = (await hub.next()).error
        check(error.event_id == "wrong" and error.param == "item.call_id", f"a result without its call: {error}")


if __name__ == "__main__":
    run(program)
