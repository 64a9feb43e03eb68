#!/usr/bin/env python3
"""Starts the hub on a free port, runs every program here against it, and says how many passed.

    python tests/clients/run.py [PROGRAM ...]

Needs `pip install -r tests/clients/requirements.txt`, `npm ci` in tests/clients/npm and in
examples/agents/typescript, and `cargo build`. The npm
SDK speaks TLS only, so a second hub speaks that. HUB_URL set: that hub is used and no first one started.
ANTIPHON names another binary than target/debug/antiphon. RETRIES=1 runs a program that failed once more.
TEST_TIMES names the folder into which the programs' durations are written. Exit code 0: all passed; 1: some failed; 2: nothing could run.
"""

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
PROGRAMS = ["golden", "text_turn", "voice_turn", "manual_turn", "two_turns", "barge_in", "g711", "tool_call", "slow_tool", "errors",
    "semantic_vad", "transcription", "beta_turn", "speech", "human_turns", "wyoming_home", "webrtc_call", "npm/text_turn", "npm/voice_turn", "npm/manual_turn", "npm/two_turns",
    "npm/barge_in", "npm/semantic_vad", "npm/transcription", "npm/tool_call", "npm/speech", "example_agents"]
# The settings of the hub for human_turns: models that `make real-models` fetches.
REAL = {
    "ANTIPHON_MODELS__DIR": str(ROOT / "models"),
    "ANTIPHON_STT__MODEL": str(ROOT / "target/models/whisper-base/ggml-base.bin"),
    "ANTIPHON_TTS__ENGINE": "hibari",
}
# How often a program that failed runs again.
RETRIES = int(os.environ.get("RETRIES", "0"))
START_DEADLINE_S, PROGRAM_DEADLINE_S, STOP_DEADLINE_S = 60, 120, 20


class Hub:
    """The hub as a child process, its output kept for the case of failure."""

    def __init__(self, jobs, *options, **settings):
        command = [BINARY, "serve", "--listen", "127.0.0.1:0", *options]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        # The jobs and models of this machine are not a test's. `make real-models` fetches the recognizer.
        models = os.path.join(os.path.dirname(jobs), "models")
        whisper = str(ROOT / "target/models/whisper-tiny.en/ggml-tiny.en.bin")
        recognizer = {"ANTIPHON_STT__ENGINE": "whisper", "ANTIPHON_STT__MODEL": whisper, "ANTIPHON_STT__THREADS": "1"}
        wyoming = {"ANTIPHON_WYOMING__LISTEN": "127.0.0.1:0"}
        # Longer than any answer of the other programs takes.
        filler = {"ANTIPHON_SESSION__FILLER_AFTER_MS": "5000"}
        env = {**os.environ, "ANTIPHON_SPEECH__JOBS_DIR": jobs, "ANTIPHON_MODELS__DIR": models, **recognizer, **wyoming, **filler, **settings}
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


def passes(program, env, n_failed=0):
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
    if passed and n_failed:
        print(f"FLAKY  {program}: passed when it ran again", flush=True)
        return True
    print(f"{'ok' if passed else 'FAILED':7}{program}", flush=True)
    if passed:
        return True
    print(output.rstrip(), flush=True)
    return n_failed < RETRIES and passes(program, env, n_failed + 1)


def main():
    programs = sys.argv[1:] or PROGRAMS
    hubs, env = [], dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        certificate = os.path.join(folder, "certificate.pem")
        try:
            record(BINARY, folder, START_DEADLINE_S)
            env["SPEECH_DIR"] = folder
            if "HUB_URL" not in env:
                hubs.append(Hub(os.path.join(folder, "jobs")))
                env["HUB_URL"] = hubs[-1].address()
                env["WYOMING_URI"] = hubs[-1].wyoming
            real = {}
            if "human_turns" in programs:
                hubs.append(Hub(os.path.join(folder, "jobs-real"), **REAL))
                real["HUB_URL"] = hubs[-1].address()
            if any(program.startswith("npm/") for program in programs):
                hubs.append(Hub(os.path.join(folder, "jobs-tls"), "--tls-self-signed", "--tls-cert-out", certificate))
                env |= {"HUB_WSS_URL": hubs[-1].address(), "HUB_CERTIFICATE": certificate}
        except (OSError, subprocess.SubprocessError) as error:
            print(f"cannot run {BINARY}: {error}", file=sys.stderr)
            for hub in hubs:
                hub.stop()
            return 2
        results = [passes(program, env | real if program == "human_turns" else env) for program in programs]
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
