"""A tool that the client runs for long: the hub fills the silence, out of band, and the answer follows."""

from hub import check, in_order, run, talk
from tool_call import TOOL, answered, called

FILLER = ["response.created", "response.output_item.added", "response.content_part.added", "response.output_audio.delta",
    "response.output_audio.done", "response.output_audio_transcript.done", "response.content_part.done",
    "response.output_item.done", "response.done"]


async def program():
    async with talk() as hub:
        await hub.configure(tools=[TOOL], tool_choice="auto")
        call = await called(hub, "Paris")
        start = len(hub.log)
        # The tool runs until the hub has filled the silence: `run.py` sets session.filler_after_ms.
        filler = (await hub.until("response.done")).response
        in_order([event.type for event in hub.log[start:]], FILLER, "filler")
        check(filler.status == "completed" and filler.conversation_id is None, f"{filler}")
        check([item.content[0].transcript for item in filler.output] == ["One moment."], f"{filler.output}")
        check(not hub.of("conversation.item.added", start), "a filler is no item")
        said = await answered(hub, call, '{"weather": "sunny", "degrees": 21}')
        check("sunny" in said.lower(), f"the result is not in the answer: {said!r}")


if __name__ == "__main__":
    run(program)
