"""The agents in `examples/agents`, as a reader starts them: each calls its function and speaks the result."""

import os
import pathlib
import subprocess
import sys
import tempfile
import wave

from hub import check

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples/agents"
DEADLINE_S = 500


def answered(command, question, expected):
    """Runs an agent; its output has these, and the reply is sound."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([*command, question], cwd=folder, text=True, timeout=DEADLINE_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        check(done.returncode == 0, f"{command}: {done.stdout}")
        for line in expected:
            check(line in done.stdout, f"{command}: no {line!r} in {done.stdout}")
        with wave.open(os.path.join(folder, "reply.wav")) as reply:
            check(reply.getframerate() == 24_000 and reply.getnframes() > 24_000, f"{command}: {reply.getparams()}")


def program():
    python = [sys.executable, str(EXAMPLES / "python/agent.py")]
    answered(python, "What is the weather in Paris?", ["called: get_weather({'city': 'Paris'})", "said: ", "sunny"])
    # Speech, which its recognizer hears.
    answered(python, os.path.join(os.environ["SPEECH_DIR"], "sum.wav"), ["said: "])
    typescript = EXAMPLES / "typescript"
    subprocess.run([str(typescript / "node_modules/.bin/tsc"), "--noEmit", "-p", str(typescript)], check=True, timeout=DEADLINE_S)
    tsx = [str(typescript / "node_modules/.bin/tsx"), str(typescript / "agent.ts")]
    answered(tsx, "What is the weather in Rome?", ["called: get_weather(Rome)", "said: ", "sunny"])


if __name__ == "__main__":
    program()
