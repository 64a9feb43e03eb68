"""Written question, written answer; then the item is fetched and deleted."""

from hub import check, in_order, run, says, talk


async def program():
    async with talk() as hub:
        session = await hub.configure(output_modalities=["text"])
        check(session.output_modalities == ["text"], f"the update was not taken: {session}")
        await hub.write("What is twelve plus thirty?")
        await hub.connection.response.create(response={"metadata": {"asked": "1"}})
        done = await hub.until("response.done")
        chain = ["conversation.item.added", "conversation.item.done", "response.created", "response.output_item.added",
            "conversation.item.added", "response.content_part.added", "response.output_text.delta",
            "response.output_text.done", "response.content_part.done", "conversation.item.done",
            "response.output_item.done", "response.done"]
        in_order(hub.types(), chain, "text turn")
        check(not hub.of("response.output_audio.delta"), "audio in a text response")
        check(done.response.status == "completed", f"{done.response.status_details}")
        for event in (hub.of("response.created")[0], done):
            check(event.response.metadata == {"asked": "1"}, f"{event.type} does not echo the metadata")
        check(done.response.usage is not None, "no usage")
        text = hub.of("response.output_text.done")[0].text
        check(text == "".join(event.delta for event in hub.of("response.output_text.delta")), "deltas are not the text")
        part = done.response.output[0].content[0]
        check((part.type, part.text) == ("output_text", text), f"the item holds {part}")
        check(says(text, "42", "forty-two", "forty two"), f"twelve plus thirty: {text!r}")

        item = done.response.output[0].id
        await hub.connection.conversation.item.retrieve(item_id=item)
        got = await hub.until("conversation.item.retrieved")
        check(got.item.content[0].text == text, f"retrieved {got.item}")
        await hub.connection.conversation.item.delete(item_id=item)
        check((await hub.until("conversation.item.deleted")).item_id == item, "another item was deleted")


if __name__ == "__main__":
    run(program)
