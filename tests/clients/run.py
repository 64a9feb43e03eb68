#!/usr/bin/env python3
"""Starts hubs on free ports, runs every program here against them, as many at once as the machine has cores, and says how many
passed.

    python tests/clients/run.py [PROGRAM ...]

Needs `pip install -r tests/clients/requirements.txt`, `npm ci` in tests/clients/npm and in examples/agents/typescript, and
`cargo build`. The npm SDK speaks TLS only, so one hub speaks that; a program that needs settings of its own has a hub of its own.
HUB_URL set: that hub is used and no plain one started. ANTIPHON names another binary than target/debug/antiphon. RETRIES=1 runs a
program that failed once more, alone. TEST_TIMES names the folder into which the programs' durations are written. Exit code 0: all
passed; 1: some failed; 2: nothing could run.

What the hub does is shown by one SDK; a program of the other one shows what only that one does: its handshake and TLS, its
transcription sessions, its events of speech.
"""

import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from recordings import record

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
BINARY = os.environ.get("ANTIPHON", str(ROOT / "target/debug/antiphon"))
# Those that take longest come first, so that none of them begins when the others have ended.
PROGRAMS = [
    "human_turns", "webrtc_call", "example_agents", "speech", "wyoming_home", "two_turns", "slow_tool", "barge_in", "semantic_vad",
    "voice_turn", "transcription", "beta_turn", "errors", "golden", "text_turn", "manual_turn", "g711", "tool_call",
    "npm/voice_turn", "npm/transcription", "npm/speech",
]
# The settings of the hub for human_turns: models that `make real-models` fetches.
REAL = {
    "ANTIPHON_MODELS__DIR": str(ROOT / "models"),
    "ANTIPHON_STT__MODEL": str(ROOT / "target/models/whisper-base/ggml-base.bin"),
    "ANTIPHON_TTS__ENGINE": "hibari",
}
# The settings of the hub for slow_tool: longer than its other answers take.
FILLER = {"ANTIPHON_SESSION__FILLER_AFTER_MS": "5000"}
# How often a program that failed runs again.
RETRIES = int(os.environ.get("RETRIES", "0"))
# They bound what fails; no program is about speed.
START_DEADLINE_S, PROGRAM_DEADLINE_S, STOP_DEADLINE_S = 120, 600, 20


class Hub:
    """The hub as a child process, its output kept for the case of failure."""

    def __init__(self, jobs, *options, **settings):
        command = [BINARY, "serve", "--listen", "127.0.0.1:0", *options]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        # The jobs and models of this machine are not a test's. `make real-models` fetches the recognizer.
        models = os.path.join(os.path.dirname(jobs), "models")
        whisper = str(ROOT / "target/models/whisper-tiny.en/ggml-tiny.en.bin")
        recognizer = {"ANTIPHON_STT__ENGINE": "whisper", "ANTIPHON_STT__MODEL": whisper, "ANTIPHON_STT__THREADS": "1",
            "ANTIPHON_STT__TIMEOUT_MS": "60000"}
        wyoming = {"ANTIPHON_WYOMING__LISTEN": "127.0.0.1:0"}
        env = {**os.environ, "ANTIPHON_SPEECH__JOBS_DIR": jobs, "ANTIPHON_MODELS__DIR": models, **recognizer, **wyoming, **settings}
        self.process = subprocess.Popen(command, cwd=ROOT, env=env, text=True, start_new_session=True, **pipes)
        self.lines, self.url, self.wyoming, self.listening = [], None, None, threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            if found := re.search(r"serving Wyoming on (tcp://[\d.]+:\d+)", line):
                self.wyoming = found[1]
            # The line that comes when it is ready; the log says where it listens before that.
            if self.url is None and (found := re.search(r"is listening on (https?://[\d.]+:\d+)", line)):
                self.url = found[1]
                self.listening.set()
        self.listening.set()

    def address(self):
        self.listening.wait(START_DEADLINE_S)
        if self.url is None:
            self.stop()
            raise OSError(f"it did not say where it listens:\n{''.join(self.lines)}")
        return self.url

    def stop(self):
        """Asks it to end; whether it did so by itself, and in time."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_DEADLINE_S) == 0
        except subprocess.TimeoutExpired:
            self.process.kill()
            return False


def passes(program, env):
    """Runs a program to its end, and prints what came of it in one piece."""
    npm = program.startswith("npm/")
    command = ["node", str(HERE / f"{program}.mjs")] if npm else [sys.executable, str(HERE / f"{program}.py")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    start = time.monotonic()
    try:
        done = subprocess.run(command, env=env, text=True, timeout=PROGRAM_DEADLINE_S, **pipes)
        passed, output = done.returncode == 0, done.stdout
    except subprocess.TimeoutExpired as late:
        passed, output = False, f"no end after {late.timeout} s"
    if "TEST_TIMES" in os.environ:
        with open(os.path.join(os.environ["TEST_TIMES"], "clients.tsv"), "a", encoding="utf-8") as times:
            times.write(f"{time.monotonic() - start:.3f}\tclients\t{program}\n")
    print(f"ok     {program}" if passed else f"FAILED {program}\n{output.rstrip()}", flush=True)
    return passed


def passes_again(program, env):
    """Whether a program that failed passes when it runs again, alone."""
    if not any(passes(program, env) for _ in range(RETRIES)):
        return False
    print(f"FLAKY  {program}: passed when it ran again", flush=True)
    return True


def run_all(programs, env, env_of):
    """Runs the programs, as many at once as there are cores; returns whether each has passed."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as lanes:
        results = list(lanes.map(lambda program: passes(program, env | env_of.get(program, {})), programs))
    return [passed or passes_again(program, env | env_of.get(program, {})) for program, passed in zip(programs, results)]


def main():
    programs = sys.argv[1:] or PROGRAMS
    hubs, env, env_of = [], dict(os.environ), {}
    with tempfile.TemporaryDirectory() as folder:
        certificate = os.path.join(folder, "certificate.pem")

        def start(jobs, *options, **settings):
            hubs.append(Hub(os.path.join(folder, jobs), *options, **settings))
            return hubs[-1]

        try:
            plain = start("jobs") if "HUB_URL" not in env else None
            real = start("jobs-real", **REAL) if "human_turns" in programs else None
            filler = start("jobs-filler", **FILLER) if "slow_tool" in programs else None
            needs_tls = any(program.startswith("npm/") for program in programs)
            tls = start("jobs-tls", "--tls-self-signed", "--tls-cert-out", certificate) if needs_tls else None
            record(BINARY, folder, START_DEADLINE_S)
            env["SPEECH_DIR"] = folder
            if plain:
                env |= {"HUB_URL": plain.address(), "WYOMING_URI": plain.wyoming}
            if real:
                env_of["human_turns"] = {"HUB_URL": real.address()}
            if filler:
                env_of["slow_tool"] = {"HUB_URL": filler.address()}
            if tls:
                env |= {"HUB_WSS_URL": tls.address(), "HUB_CERTIFICATE": certificate}
        except (OSError, subprocess.SubprocessError) as error:
            print(f"cannot run {BINARY}: {error}", file=sys.stderr)
            for hub in hubs:
                hub.stop()
            return 2
        results = run_all(programs, env, env_of)
        for hub in hubs:
            results.append(hub.stop())
            print(f"{'ok' if results[-1] else 'FAILED':7}shutdown of {hub.url}", flush=True)
    if not all(results):
        for hub in hubs:
            print(f"the last words of {hub.url}:\n" + "".join(hub.lines[-40:]))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
