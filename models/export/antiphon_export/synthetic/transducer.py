"""Writes a streaming recognizer (cache-aware FastConformer-RNNT) with random weights, in the form that sherpa-onnx publishes.

    python -m antiphon_export.synthetic.transducer FOLDER tiny|medium|large|xlarge [--chunk-ms 80|160|320|560|1120] [--prompts] [--fixed-state]
                         [--fixtures]

FOLDER gets encoder.onnx, decoder.onnx, joiner.onnx and tokens.txt. The structure is that of the exported graphs: eightfold
subsampling by causal convolutions whose first two frames are dropped, conformer layers with caches for attention and
convolution, an LSTM predictor, a joiner of two projections. `medium`, `large` and `xlarge` have the sizes of the models of
about 32 M, 114 M and 600 M weights; `tiny` is for tests. The cost is realistic, the words are not.

    --prompts      the encoder takes a language's number, and the vocabulary has tags of languages
    --fixed-state  the predictor declares a batch of 1 for its second state, as the published export of 114 M does
    --fixtures     beside `tiny`: the graphs of both kinds as encoder_prompts.onnx, tokens_prompts.txt and decoder_fixed.onnx

Needs the Python packages onnx and numpy.
"""

import argparse
import json
import pathlib

import numpy

from .graphs import FLOAT, INT32, INT64, Graph, value

KERNEL = 9
FACTOR = 8
# Mel frames before a chunk that its first outputs need, and outputs of the subsampling that are dropped with them.
LEAD, DROPPED = 9, 2

# Layers, width, heads, left context in encoder frames, channels of the subsampling, mel bands, layers of the predictor, width of
# predictor and joiner, pieces without the blank.
SIZES = {
    "tiny": dict(layers=2, width=8, heads=2, left=6, channels=4, mels=80, lstms=2, hidden=12, pieces=40),
    "medium": dict(layers=16, width=256, heads=4, left=70, channels=256, mels=80, lstms=1, hidden=640, pieces=1024),
    "large": dict(layers=17, width=512, heads=8, left=70, channels=256, mels=80, lstms=1, hidden=640, pieces=1024),
    "xlarge": dict(layers=24, width=1024, heads=8, left=70, channels=256, mels=128, lstms=2, hidden=640, pieces=1024),
}
# Of the random weights, and the blank's bias: chosen so that some frames have a token and few have many.
SEEDS = {"tiny": 1, "medium": 1, "large": 1, "xlarge": 1}
BLANK_BIAS = {"tiny": 3.0, "medium": 3.0, "large": 3.0, "xlarge": 3.0}
TAGS = {"en-US": 0, "de-DE": 1, "fr-FR": 2}
AUTO = 101
N_PROMPTS = 128


class Transducer(Graph):
    def conv2d(self, x, n_in, n_out, kernel, stride=1, groups=1):
        """Convolution over time and bands; x: [batch, channels, time, bands]. Causal: a frame looks one ahead by its stride."""
        pads = [kernel - 1, kernel - 1, stride - 1, stride - 1] if kernel > 1 else [0, 0, 0, 0]
        fan_in = n_in // groups * kernel * kernel
        return self.op(
            "Conv", x, self.weight(n_out, n_in // groups, kernel, kernel, fan_in=fan_in), self.weight(n_out, fan_in=100),
            kernel_shape=[kernel, kernel], pads=pads, strides=[stride, stride], group=groups,
        )

    def swish(self, x):
        return self.times(x, self.op("Sigmoid", x))

    def feed_forward(self, x, width):
        y = self.linear(self.swish(self.linear(self.norm(x, width), width, 4 * width)), 4 * width, width)
        return self.plus(x, self.times(y, self.f(0.5)))

    def slice(self, x, begin, end, axis):
        return self.op("Slice", x, self.i(begin), self.i(end), self.i(axis))

    def relative_attention(self, x, memory, far, positions, size, n_new):
        """x: [batch, n_new, width] attends to memory: [batch, n, width]; far: [batch, 1, 1, n]."""
        width, n_heads, n = size["width"], size["heads"], size["left"] + n_new
        each = width // n_heads

        def heads(y):
            return self.op("Reshape", y, self.i(0, 0, n_heads, each))

        q = heads(self.linear(x, width, width))
        k = self.op("Transpose", heads(self.linear(memory, width, width)), perm=[0, 2, 3, 1])
        v = self.op("Transpose", heads(self.linear(memory, width, width)), perm=[0, 2, 1, 3])
        p = self.op("Transpose", heads(self.op("MatMul", positions, self.weight(width, width))), perm=[0, 2, 3, 1])
        content = self.op("Transpose", self.plus(q, self.weight(n_heads, each, fan_in=100)), perm=[0, 2, 1, 3])
        place = self.op("Transpose", self.plus(q, self.weight(n_heads, each, fan_in=100)), perm=[0, 2, 1, 3])
        # The shift of relative positions: a column in front, seen as a row more.
        shifted = self.op("Pad", self.op("MatMul", place, p), self.i(0, 0, 0, 1, 0, 0, 0, 0))
        shifted = self.op("Reshape", shifted, self.i(0, 0, 2 * n, n_new))
        shifted = self.op("Reshape", self.slice(shifted, 1, 2 * n, 2), self.i(0, 0, n_new, 2 * n - 1))
        scores = self.plus(self.op("MatMul", content, k), self.slice(shifted, 0, n, 3))
        scores = self.plus(self.times(scores, self.f(1.0 / each**0.5)), far)
        mixed = self.op("Transpose", self.op("MatMul", self.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        return self.linear(self.op("Reshape", mixed, self.i(0, 0, width)), width, width)

    def cached_convolution(self, x, cache, width):
        """x: [batch, n, width]; cache: [batch, width, KERNEL - 1]. The result and the next cache."""
        gate = self.op("Split", self.linear(x, width, 2 * width), n=2, axis=-1)
        y = self.swap(self.times(gate[0], self.op("Sigmoid", gate[1])))
        y = self.op("Concat", cache, y, axis=2)
        following = self.slice(y, -(KERNEL - 1), 1 << 30, 2)
        y = self.conv(y, width, width, KERNEL, groups=width, pads=[0, 0])
        y = self.swish(self.norm(self.swap(y), width))
        return self.linear(y, width, width), following


def encoder(path, name, size, chunk_ms, prompts, external):
    g = Transducer(size["seed"])
    mels, width, left, layers = size["mels"], size["width"], size["left"], size["layers"]
    shift = FACTOR * chunk_ms // 80
    window, n_new = LEAD + shift, shift // FACTOR

    # Trained weights centre the features; random ones would hear little but their mean.
    x = g.times(g.plus("audio_signal", g.f(8.0)), g.f(0.3))
    x = g.op("Unsqueeze", g.op("Transpose", x, perm=[0, 2, 1]), g.i(1))
    bands = mels
    for stage in range(3):
        n_in = 1 if stage == 0 else size["channels"]
        x = g.conv2d(x, n_in, size["channels"], 3, stride=2, groups=n_in)
        if stage > 0:
            x = g.conv2d(x, size["channels"], size["channels"], 1)
        x = g.op("Relu", x)
        bands = bands // 2 + 1
    x = g.slice(x, DROPPED, DROPPED + n_new, 2)
    x = g.op("Reshape", g.op("Transpose", x, perm=[0, 2, 1, 3]), g.i(0, 0, size["channels"] * bands))
    x = g.linear(x, size["channels"] * bands, width)

    valid = "length"
    for _ in range(3):
        valid = g.plus(g.op("Div", valid, g.i(2)), g.i(1))
    g.node("Sub", [valid, g.i(DROPPED)], ["encoded_lengths"])
    n = left + n_new
    places = g.constant(numpy.arange(n, dtype=numpy.int64)[None, :])
    first = g.op("Unsqueeze", g.op("Sub", g.i(left), "cache_last_channel_len"), g.i(1))
    last = g.op("Unsqueeze", g.plus("encoded_lengths", g.i(left)), g.i(1))
    there = g.op("And", g.op("GreaterOrEqual", places, first), g.op("Less", places, last))
    far = g.times(g.op("Sub", g.op("Cast", there, to=FLOAT), g.f(1.0)), g.f(1e4))
    far = g.op("Unsqueeze", far, g.i(1, 2))
    g.node("Min", [g.plus("cache_last_channel_len", g.i(n_new)), g.i(left)], ["cache_last_channel_next_len"])

    angles = numpy.arange(n - 1, -n, -1)[:, None] * numpy.exp(-numpy.log(1e4) / width * numpy.arange(0, width, 2))
    table = numpy.stack([numpy.sin(angles), numpy.cos(angles)], axis=-1).reshape(1, 2 * n - 1, width)
    positions = g.constant(table.astype(numpy.float32))

    channel, time = [], []
    for layer in range(layers):
        x = g.feed_forward(x, width)
        y = g.norm(x, width)
        cache = g.op("Squeeze", g.slice("cache_last_channel", layer, layer + 1, 1), g.i(1))
        memory = g.op("Concat", cache, y, axis=1)
        channel.append(g.op("Unsqueeze", g.slice(memory, -left, 1 << 30, 1), g.i(1)))
        x = g.plus(x, g.relative_attention(y, memory, far, positions, size, n_new))
        cache = g.op("Squeeze", g.slice("cache_last_time", layer, layer + 1, 1), g.i(1))
        y, following = g.cached_convolution(g.norm(x, width), cache, width)
        time.append(g.op("Unsqueeze", following, g.i(1)))
        x = g.plus(x, y)
        x = g.norm(g.feed_forward(x, width), width)
    if prompts:
        x = g.plus(x, g.op("Unsqueeze", g.op("Gather", g.weight(N_PROMPTS, width, fan_in=1), "prompt_index"), g.i(1)))
        x = g.linear(g.op("Relu", g.linear(x, width, 2 * width)), 2 * width, width)
    g.node("Transpose", [x], ["outputs"], perm=[0, 2, 1])
    g.node("Concat", channel, ["cache_last_channel_next"], axis=1)
    g.node("Concat", time, ["cache_last_time_next"], axis=1)

    n_pieces = size["pieces"]
    g.metadata = {
        "vocab_size": n_pieces, "window_size": window, "chunk_shift": shift, "chunk_size_ms": chunk_ms,
        "normalize_type": "", "cache_last_channel_dim1": layers, "cache_last_channel_dim2": left,
        "cache_last_channel_dim3": width, "cache_last_time_dim1": layers, "cache_last_time_dim2": width,
        "cache_last_time_dim3": KERNEL - 1, "pred_rnn_layers": size["lstms"], "pred_hidden": size["hidden"],
        "subsampling_factor": FACTOR, "feat_dim": mels, "model_type": "EncDecRNNTBPEModel", "version": 1,
        "model_author": "antiphon", "comment": "random weights",
    }
    if prompts:
        g.metadata |= {"prompt_dictionary": json.dumps(TAGS | {"auto": AUTO}), "auto_prompt_id": AUTO}
    inputs = [
        value("audio_signal", FLOAT, ["batch", mels, window]), value("length", INT64, ["batch"]),
        value("cache_last_channel", FLOAT, ["batch", layers, left, width]),
        value("cache_last_time", FLOAT, ["batch", layers, width, KERNEL - 1]),
        value("cache_last_channel_len", INT64, ["batch"]),
    ]
    if prompts:
        inputs.append(value("prompt_index", INT64, ["batch"]))
    outputs = [
        value("outputs", FLOAT, ["batch", width, n_new]), value("encoded_lengths", INT64, ["batch"]),
        value("cache_last_channel_next", FLOAT, ["batch", layers, left, width]),
        value("cache_last_time_next", FLOAT, ["batch", layers, width, KERNEL - 1]),
        value("cache_last_channel_next_len", INT64, ["batch"]),
    ]
    g.save(path / name, "encoder", inputs, outputs, external)


def decoder(path, name, size, is_fixed):
    g = Transducer(size["seed"] + 1)
    hidden, lstms, n_tokens = size["hidden"], size["lstms"], size["pieces"] + 1
    table = g.weight(n_tokens, hidden, fan_in=1)
    x = g.op("Transpose", g.op("Gather", table, "targets"), perm=[1, 0, 2])
    h, c = [], []
    for layer in range(lstms):
        w = g.weight(1, 4 * hidden, hidden, fan_in=hidden)
        r = g.weight(1, 4 * hidden, hidden, fan_in=hidden)
        b = g.weight(1, 8 * hidden, fan_in=100)
        before = [g.slice(state, layer, layer + 1, 0) for state in ("states.1", "onnx::LSTM_3")]
        y, h_next, c_next = g.op("LSTM", x, w, r, b, "", *before, n=3, hidden_size=hidden)
        x = g.op("Squeeze", y, g.i(1))
        h.append(h_next)
        c.append(c_next)
    g.node("Transpose", [x], ["outputs"], perm=[1, 2, 0])
    g.node("Identity", ["target_length"], ["prednet_lengths"])
    g.node("Concat", h, ["states"], axis=0)
    g.node("Concat", c, ["162"], axis=0)
    batch = 1 if is_fixed else "batch"
    inputs = [
        value("targets", INT32, ["batch", 1]), value("target_length", INT32, ["batch"]),
        value("states.1", FLOAT, [lstms, "batch", hidden]), value("onnx::LSTM_3", FLOAT, [lstms, batch, hidden]),
    ]
    outputs = [
        value("outputs", FLOAT, ["batch", hidden, 1]), value("prednet_lengths", INT32, ["batch"]),
        value("states", FLOAT, [lstms, "batch", hidden]), value("162", FLOAT, [lstms, batch, hidden]),
    ]
    g.save(path / name, "decoder", inputs, outputs)


def joiner(path, size, bias):
    g = Transducer(size["seed"] + 2)
    width, hidden, n_tokens = size["width"], size["hidden"], size["pieces"] + 1
    heard = g.times(g.linear(g.swap("encoder_outputs"), width, hidden), g.f(2.0))
    heard = g.op("Unsqueeze", heard, g.i(2))
    # The outputs of a random LSTM are small.
    said = g.times(g.swap("decoder_outputs"), g.f(8.0))
    said = g.op("Unsqueeze", g.linear(said, hidden, hidden), g.i(1))
    x = g.op("MatMul", g.op("Relu", g.plus(heard, said)), g.weight(hidden, n_tokens, fan_in=hidden))
    biases = numpy.zeros(n_tokens, numpy.float32)
    biases[-1] = bias
    # No token in angle brackets is likely.
    biases[0] = -9.0
    g.node("Add", [x, g.constant(biases)], ["outputs"])
    inputs = [value("encoder_outputs", FLOAT, ["batch", width, "t"]), value("decoder_outputs", FLOAT, ["batch", hidden, "u"])]
    g.save(path / "joiner.onnx", "joiner", inputs, [value("outputs", FLOAT, ["batch", "t", "u", n_tokens])])


def tokens(path, name, size, prompts):
    """Pieces of one or two syllables, half of them with a space in front."""
    syllables = [a + b for a in ("b", "d", "k", "l", "m", "n", "r", "s", "t", "v") for b in ("a", "e", "i", "o", "u")]
    pieces = ["<unk>"] + ([f"<{tag}>" for tag in TAGS] if prompts else [])
    for i in range(size["pieces"] - len(pieces)):
        text = syllables[i % 50] + (syllables[i // 50 - 1] if i >= 50 else "")
        pieces.append(text if i % 2 else "▁" + text)
    lines = [f"{piece} {i}\n" for i, piece in enumerate(pieces + ["<blk>"])]
    (path / name).write_text("".join(lines), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("--chunk-ms", type=int, default=160, choices=[80, 160, 320, 480, 560, 1040, 1120])
    parser.add_argument("--prompts", action="store_true")
    parser.add_argument("--fixed-state", action="store_true")
    parser.add_argument("--fixtures", action="store_true")
    given = parser.parse_args()
    size = SIZES[given.size] | {"seed": SEEDS[given.size]}
    given.folder.mkdir(parents=True, exist_ok=True)
    external = given.size == "xlarge"
    encoder(given.folder, "encoder.onnx", size, given.chunk_ms, given.prompts, external)
    decoder(given.folder, "decoder.onnx", size, given.fixed_state)
    joiner(given.folder, size, BLANK_BIAS[given.size])
    tokens(given.folder, "tokens.txt", size, given.prompts)
    if given.fixtures:
        encoder(given.folder, "encoder_prompts.onnx", size, given.chunk_ms, True, external)
        decoder(given.folder, "decoder_fixed.onnx", size, True)
        tokens(given.folder, "tokens_prompts.txt", size, True)


if __name__ == "__main__":
    main()
