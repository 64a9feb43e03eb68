"""Writes what sherpa-onnx makes of a sentence with the models of the fixtures: FOLDER/sherpa.json and FOLDER/sherpa.f32.

    python -m antiphon_export.synthetic.sherpa_golden tests/fixtures/transducer

sherpa-onnx computes features of its own: its frames are centred elsewhere, and it puts no zeros before the first chunk. So its
features are written too, and the hub's test gives the same ones to its engine: windows, caches, predictor and search are what
is judged. Each utterance is a part of the sentence, and all of them are decoded together, until no whole window is left.

sherpa.f32 has the features of the utterances one after the other, [frames, 80]. sherpa.json has their numbers of frames and, for
each model, the tokens of each utterance with the encoder frame. Needs the Python packages numpy, sherpa-onnx and soundfile.
"""

import json
import pathlib
import sys

import numpy
import sherpa_onnx
import soundfile

SENTENCE = pathlib.Path(__file__).parents[4] / "tests/fixtures/speech/bambatse_02_haggard_0323.flac"
RATE, N_MELS, FRAME_S = 16_000, 80, 0.08
# Parts of the sentence: the first sample, and how many.
UTTERANCES = [(0, 32_000), (6_000, 9_000), (10_000, 14_800), (20_000, 20_600)]
# By folder: the encoder. `nemo` has NeMo's own export, with the metadata of sherpa-onnx's oldest script.
MODELS = {"tiny": "encoder.onnx", "nemo": "encoder_nemo.onnx"}


def pieces(path):
    """The number of each piece, as sherpa-onnx writes it."""
    numbers = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        piece, number = line.rsplit(" ", 1)
        piece = piece.replace("▁", " ")
        assert piece not in numbers, piece
        numbers[piece] = int(number)
    return numbers


def tokens(folder, encoder, utterances):
    """The tokens of each utterance with their frames, and the features that they were made of."""
    recognizer = sherpa_onnx.OnlineRecognizer.from_transducer(
        tokens=str(folder / "tokens.txt"), encoder=str(folder / encoder), decoder=str(folder / "decoder.onnx"),
        joiner=str(folder / "joiner.onnx"), num_threads=1, sample_rate=RATE, feature_dim=N_MELS, decoding_method="greedy_search",
    )
    numbers = pieces(folder / "tokens.txt")
    streams, features = [], []
    for pcm in utterances:
        stream = recognizer.create_stream()
        stream.accept_waveform(RATE, pcm.astype(numpy.float32) / 32_768)
        stream.input_finished()
        streams.append(stream)
        # A frame each 10 ms, the last one centred within the samples.
        n_frames = (len(pcm) + 80) // 160
        features.append(numpy.array(stream.get_frames(0, n_frames), numpy.float32).reshape(n_frames, N_MELS))
    while ready := [stream for stream in streams if recognizer.is_ready(stream)]:
        recognizer.decode_streams(ready)
    found = []
    for stream in streams:
        frames = [round(time / FRAME_S) for time in recognizer.timestamps(stream)]
        found.append([[numbers[piece], frame] for piece, frame in zip(recognizer.tokens(stream), frames, strict=True)])
    return found, features


def main():
    folder = pathlib.Path(sys.argv[1])
    pcm, rate = soundfile.read(SENTENCE, dtype="int16")
    assert rate == RATE
    utterances = [numpy.resize(numpy.roll(pcm, -first), n) for first, n in UTTERANCES]
    judged = {name: tokens(folder / name, encoder, utterances) for name, encoder in MODELS.items()}
    features = {name: numpy.concatenate(features) for name, (_, features) in judged.items()}
    assert (features["tiny"] == features["nemo"]).all()
    features["tiny"].tofile(folder / "sherpa.f32")
    n_frames = [len(one) for one in judged["tiny"][1]]
    golden = {"n_frames": n_frames, "tokens": {name: found for name, (found, _) in judged.items()}}
    (folder / "sherpa.json").write_text(json.dumps(golden) + "\n")
    print(n_frames, {name: [len(one) for one in found] for name, (found, _) in judged.items()})


if __name__ == "__main__":
    main()
