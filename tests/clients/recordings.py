"""Recordings: made by the hub's own voice before the programs run, and read by them as mono PCM at 24 kHz."""

import array
import base64
import json
import math
import operator
import os
import pathlib
import subprocess
import wave

import av

RATE = 24_000
FRAME = RATE // 50
SENTENCES = {"sum": "What is twelve plus thirty?", "other_sum": "What is twenty plus seven?"}
# Clips of a person who reads, in words that Whisper base knows: those of tests/browser/real_voice.test.mjs.
HUMAN = pathlib.Path(__file__).parents[1] / "fixtures/speech"
HUMAN_CLIPS = ["nada_lily_02_haggard_0216.flac", "bambatse_02_haggard_0323.flac", "bambatse_10_haggard_0284.flac"]


def record(binary, folder, deadline_s):
    """Fills `folder` with the sentences, and with people's clips and their texts in `human.json`."""
    folder = pathlib.Path(folder)
    for name, text in SENTENCES.items():
        file = folder / f"{name}.wav"
        subprocess.run([binary, "say", text, "-o", str(file)], check=True, timeout=deadline_s)
        write(file, read(file))
    texts = {}
    text_of = dict(line.split("\t") for line in (HUMAN / "texts.tsv").read_text().splitlines())
    for name in HUMAN_CLIPS:
        clip = pathlib.Path(name).stem
        write(folder / f"{clip}.wav", decoded(HUMAN / name))
        texts[clip] = text_of[name]
    (folder / "human.json").write_text(json.dumps(texts))


def speech(name):
    """A recording of the test's, as mono PCM at 24 kHz."""
    return read(pathlib.Path(os.environ["SPEECH_DIR"]) / f"{name}.wav")


def people():
    """A person's recordings: name and text."""
    return json.loads((pathlib.Path(os.environ["SPEECH_DIR"]) / "human.json").read_text())


def decoded(path):
    """A file of any codec, as mono PCM at 24 kHz."""
    pcm = array.array("h")
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    with av.open(str(path)) as file:
        frames = [*file.decode(audio=0), None]
        for frame in frames:
            for piece in resampler.resample(frame):
                pcm.frombytes(bytes(piece.planes[0])[: 2 * piece.samples])
    return pcm


def read(path):
    with wave.open(str(path)) as file:
        assert file.getnchannels() == 1 and file.getsampwidth() == 2, f"{path} is not mono PCM16"
        rate, pcm = file.getframerate(), array.array("h", file.readframes(file.getnframes()))
    return resample(pcm, rate)


def write(path, pcm):
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(pcm.tobytes())


def resample(pcm, rate, taps=32):
    """By windowed sinc: a cheaper way dulls the sibilants, and a recognizer hears other words."""
    if rate == RATE:
        return pcm
    assert rate < RATE, f"a recording at {rate} Hz"
    padded = [0] * taps + list(pcm) + [0] * taps
    n_phases = RATE // math.gcd(rate, RATE)
    phases = [_sinc(phase / n_phases, taps) for phase in range(n_phases)]
    out = array.array("h")
    for i in range(len(pcm) * RATE // rate):
        at, part = divmod(i * rate, RATE)
        weights = phases[part * n_phases // RATE]
        total = sum(map(operator.mul, weights, padded[at + 1 : at + 1 + 2 * taps]))
        out.append(max(-32768, min(32767, round(total))))
    return out


def _sinc(fraction, taps):
    """Weights of the samples from `taps - 1` before to `taps` behind a point, Hann-windowed."""
    weights = []
    for k in range(2 * taps):
        x = k - (taps - 1) - fraction
        shape = 1.0 if x == 0 else math.sin(math.pi * x) / (math.pi * x)
        weights.append(shape * (0.5 + 0.5 * math.cos(math.pi * x / (taps + 1))))
    return weights


def samples(events):
    """The PCM of `response.output_audio.delta` events."""
    pcm = array.array("h")
    for event in events:
        pcm.frombytes(base64.b64decode(event.delta, validate=True))
    return pcm


def loud(pcm):
    """Whether there is more in it than -50 dBFS."""
    return max(map(abs, pcm), default=0) > 104
