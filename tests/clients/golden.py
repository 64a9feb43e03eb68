"""The hub's golden events, each against the SDK's type of it. Needs no hub."""

import json
import pathlib

from hub import check, run, validate

GOLDEN = pathlib.Path(__file__).parents[2] / "crates/protocol/src/golden/server_events.jsonl"
# Sent only to clients that opted into binary audio.
EXTENSION = {
    "output_audio_buffer.held",
    "output_audio_buffer.resumed",
    "antiphon.backchannel",
    "antiphon.output_audio.sent",
    "antiphon.item.heard",
    "antiphon.notice",
    "antiphon.speech.ignored",
    "antiphon.timeline",
    "antiphon.transcription.draft",
}


async def program():
    lines = GOLDEN.read_text().splitlines()
    check(len(lines) > 30, "the golden file is short")
    for line in lines:
        if json.loads(line)["type"] in EXTENSION:
            continue
        try:
            validate(line)
        except Exception as error:
            check(False, f"{line}\n{error}")


if __name__ == "__main__":
    run(program)
