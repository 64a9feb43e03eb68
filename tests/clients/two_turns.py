"""Two spoken questions in one session: each has its own items in one chain, and its own answer."""

from hub import check, run, says, speech, talk


async def program():
    async with talk() as hub:
        await hub.configure(audio={"input": {"transcription": {"model": "whisper-1"}}})
        answers, users = [], []
        for name in ("sum", "other_sum"):
            start = len(hub.log)
            async with hub.speaking(speech(name)):
                done = await hub.until("response.done")
            check(done.response.status == "completed", f"{name}: {done.response.status_details}")
            users.append(hub.of("input_audio_buffer.committed", start)[0].item_id)
            answers.append(hub.of("response.output_audio_transcript.done", start)[0].transcript)
        check(len(set(users)) == 2, f"the two questions share an item: {users}")
        check(says(answers[0], "42", "forty-two", "forty two"), f"first answer: {answers[0]!r}")
        check(says(answers[1], "27", "twenty-seven", "twenty seven"), f"second answer: {answers[1]!r}")

        previous = None
        for event in hub.of("conversation.item.added"):
            check(event.previous_item_id == previous, f"{event.item.id} follows {event.previous_item_id}, not {previous}")
            previous = event.item.id
        check(len(hub.of("conversation.item.added")) == 4, "two questions and two answers are four items")


if __name__ == "__main__":
    run(program)
