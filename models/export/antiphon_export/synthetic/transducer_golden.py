"""Writes the tokens of a sentence that NeMo's streaming loop gives with the graphs of a folder: FOLDER/golden.json.

    python -m antiphon_export.synthetic.transducer_golden FOLDER

Written from NeMo's own description, apart from the hub's code: features by numpy and librosa, nine frames of zeros before the
first chunk, silence behind the sentence to the end of its last chunk, greedy search with at most ten symbols a frame. Needs the
Python packages librosa, numpy, onnxruntime and soundfile.
"""

import json
import pathlib
import sys

import librosa
import numpy
import onnxruntime
import soundfile

SENTENCE = pathlib.Path(__file__).parents[4] / "tests/fixtures/speech/bambatse_02_haggard_0323.flac"
MOST_SYMBOLS = 10


def features(pcm, n_mels, n_frames):
    x = pcm.astype(numpy.float64) / 32_768
    x = numpy.concatenate([x[:1], x[1:] - 0.97 * x[:-1]])
    x = numpy.pad(x, (256, n_frames * 160 + 512))
    window = numpy.pad(numpy.hanning(400), 56)
    frames = numpy.lib.stride_tricks.sliding_window_view(x, 512)[::160][:n_frames]
    power = numpy.abs(numpy.fft.rfft(frames * window, axis=1)) ** 2
    filters = librosa.filters.mel(sr=16_000, n_fft=512, n_mels=n_mels, fmin=0, fmax=8_000, norm="slaney", dtype=numpy.float64)
    return numpy.log(power @ filters.T + 2.0**-24).astype(numpy.float32)


class Judge:
    def __init__(self, folder, encoder="encoder.onnx", decoder="decoder.onnx"):
        load = lambda name: onnxruntime.InferenceSession(folder / name, providers=["CPUExecutionProvider"])
        self.encoder, self.decoder, self.joiner = load(encoder), load(decoder), load("joiner.onnx")
        self.meta = self.encoder.get_modelmeta().custom_metadata_map

    def number(self, key):
        return int(self.meta[key])

    def tokens(self, pcm, prompt=None):
        """Pairs of the token and the encoder frame, counted from the beginning."""
        n_mels, shift, window = (self.number(key) for key in ("feat_dim", "chunk_shift", "window_size"))
        blank = self.number("vocab_size")
        # The frames whose window ends within the sentence, then silence to the end of the chunk.
        n_chunks = -(-((len(pcm) - 200) // 160 + 1) // shift)
        mel = features(pcm, n_mels, n_chunks * shift)
        mel = numpy.concatenate([numpy.zeros((window - shift, n_mels), numpy.float32), mel])
        dims = lambda name: [1] + [self.number(f"{name}_dim{i}") for i in (1, 2, 3)]
        channel = numpy.zeros(dims("cache_last_channel"), numpy.float32)
        time = numpy.zeros(dims("cache_last_time"), numpy.float32)
        length = numpy.zeros(1, numpy.int64)
        state = [numpy.zeros((self.number("pred_rnn_layers"), 1, self.number("pred_hidden")), numpy.float32)] * 2
        said, *state = self.predict(blank, state)
        found, first = [], 0
        for chunk in range(n_chunks):
            x = mel[chunk * shift : chunk * shift + window].T[None]
            values = [x, numpy.array([window]), channel, time, length] + ([] if prompt is None else [numpy.array([prompt])])
            heard, n, channel, time, length = self.encoder.run(
                None, {port.name: value for port, value in zip(self.encoder.get_inputs(), values)}
            )
            for frame in range(int(n[0])):
                for _ in range(MOST_SYMBOLS):
                    [logits] = self.joiner.run(None, {"encoder_outputs": heard[:, :, frame : frame + 1], "decoder_outputs": said})
                    token = int(logits.argmax())
                    if token == blank:
                        break
                    found.append([token, first + frame])
                    said, *state = self.predict(token, state)
            first += int(n[0])
        return found

    def predict(self, token, state):
        values = [numpy.array([[token]], numpy.int32), numpy.ones(1, numpy.int32), *state]
        said, _, h, c = self.decoder.run(None, {port.name: value for port, value in zip(self.decoder.get_inputs(), values)})
        return said, h, c


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    pcm, rate = soundfile.read(SENTENCE, dtype="int16")
    assert rate == 16_000
    golden = {"tokens": Judge(folder).tokens(pcm)}
    if (folder / "encoder_prompts.onnx").exists():
        judge = Judge(folder, encoder="encoder_prompts.onnx")
        golden["prompted"] = {str(prompt): judge.tokens(pcm, prompt) for prompt in (0, 1)}
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    print({key: len(value) for key, value in golden.items()}, golden["tokens"][:30])
