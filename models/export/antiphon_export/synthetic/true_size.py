"""Writes voice models of realistic size and signature with random weights: realistic cost, but no intelligible output.

    python -m antiphon_export.synthetic.true_size FOLDER [free] [piper] [kokoro]

The dimensions are those of the published models: Piper's "medium" VITS (hidden 192, 6 encoder layers, 4 flows, HiFi-GAN
8x8x4 from 256 channels, 22.05 kHz) and Kokoro-82M (ALBERT of 768, text encoder and prosody of 512, iSTFTNet 10x6 from
512 channels with 20-point frames, 24 kHz). Weights are random with a fixed seed. The duration predictor runs, but its
output is not used: each token lasts a fixed number of frames, so that a text always causes the same amount of work.
Omitted are the relative positions in VITS' attention and the sine of Kokoro's harmonic source (its convolutions are
included): small parts of the work. `free` has Piper's inputs and outputs and computes nothing. All models accept a
batch and return the number of samples of each item as `lengths`.

Needs the Python packages onnx and numpy; `make true-size` has them.
"""

import json
import pathlib
import sys

import numpy
from onnx import helper

from .graphs import FLOAT, INT64, Graph, value

def piper(path):
    """Frames of 256 samples; 3 per token, about the speed of English with Piper's blanks between phonemes."""
    g, size, frames = Graph(1), 192, 3
    mask = g.mask("input", "input_lengths")
    far = g.far(mask)
    scale = [g.op("Slice", "scales", g.i(k), g.i(k + 1)) for k in range(3)]

    x = g.times(g.op("Gather", g.weight(256, size, fan_in=1), "input"), g.f(size**0.5))
    x = g.times(g.swap(x), mask)
    for _ in range(6):
        y = g.swap(g.attention(g.swap(x), size, 2, far))
        x = g.norm_channels(g.plus(x, y), size)
        y = g.op("Relu", g.conv(g.times(x, mask), size, 768, 3))
        y = g.conv(g.times(y, mask), 768, size, 3)
        x = g.norm_channels(g.plus(x, g.times(y, mask)), size)
    x = g.times(x, mask)
    stats = g.times(g.conv(x, size, 2 * size), mask)
    mean, spread = g.op("Split", stats, n=2, axis=1)

    # The stochastic duration predictor: the conditioning stack, and three flows of three layers.
    d = g.conv(x, size, size)
    for layer in range(12):
        y = g.conv(g.times(d, mask), size, size, 3, dilation=3 ** (layer % 3), groups=size)
        y = g.gelu(g.norm_channels(g.conv(g.gelu(g.norm_channels(y, size)), size, size), size))
        d = g.plus(d, y)
    # Its output is multiplied by zero and added, so that it stays part of the graph.
    unused = g.times(g.op("ReduceMean", g.conv(d, size, 29), axes=[1], keepdims=1), g.f(0.0))
    mean = g.plus(mean, g.times(unused, scale[2]))

    mask = g.repeat(mask, 1, frames)
    mean, spread = g.repeat(mean, size, frames), g.repeat(spread, size, frames)
    noise = g.times(g.op("RandomNormalLike", mean, dtype=FLOAT), scale[0])
    z = g.times(g.plus(mean, g.times(noise, g.op("Exp", spread))), mask)

    for _ in range(4):
        z = g.op("Slice", z, g.i(-1), g.i(-size - 1), g.i(1), g.i(-1))
        kept, changed = g.op("Split", z, n=2, axis=1)
        h = g.times(g.conv(kept, size // 2, size), mask)
        out = None
        for layer in range(4):
            a = g.conv(h, size, 2 * size, 5)
            left, right = g.op("Split", a, n=2, axis=1)
            a = g.times(g.op("Tanh", left), g.op("Sigmoid", right))
            if layer < 3:
                res, skip = g.op("Split", g.conv(a, size, 2 * size), n=2, axis=1)
                h = g.times(g.plus(h, res), mask)
            else:
                skip = g.conv(a, size, size)
            out = g.plus(out, skip) if out else skip
        shift = g.times(g.conv(g.times(out, mask), size, size // 2), mask)
        z = g.op("Concat", kept, g.times(g.op("Sub", changed, shift), mask), axis=1)

    y, channels = g.conv(g.times(z, mask), size, 256, 7), 256
    for rate, kernel in ((8, 16), (8, 16), (4, 8)):
        y = g.up(g.leaky(y), channels, channels // 2, kernel, rate)
        channels //= 2
        blocks = []
        for kernel, dilations in ((3, (1, 2)), (5, (2, 6)), (7, (3, 12))):
            b = y
            for dilation in dilations:
                b = g.plus(b, g.conv(g.leaky(b), channels, channels, kernel, dilation))
            blocks.append(b)
        y = g.times(g.plus(g.plus(blocks[0], blocks[1]), blocks[2]), g.f(1 / 3))
    y = g.op("Tanh", g.times(g.conv(g.leaky(y), channels, 1, 7, bias=False), g.f(0.1)))
    # scales[1], the length scale, is accepted and has no effect.
    y = g.plus(y, g.times(scale[1], g.f(0.0)))
    g.nodes.append(helper.make_node("Unsqueeze", [y, g.i(1)], ["output"]))
    g.nodes.append(helper.make_node("Mul", ["input_lengths", g.i(frames * 256)], ["lengths"]))
    g.save(
        path, "piper",
        [
            value("input", INT64, ["batch", "n"]),
            value("input_lengths", INT64, ["batch"]),
            value("scales", FLOAT, [3]),
        ],
        [value("output", FLOAT, ["batch", 1, 1, "time"]), value("lengths", INT64, ["batch"])],
    )


def kokoro(path):
    """Frames of 600 samples (25 ms); 3 per token."""
    g, frames = Graph(2), 3
    n = g.op("Slice", g.op("Shape", "input_ids"), g.i(1), g.i(2))
    batch = g.op("Slice", g.op("Shape", "input_ids"), g.i(0), g.i(1))
    far = g.far(g.mask("input_ids", "input_lengths"))
    decoding, prosody = g.op("Split", "style", n=2, axis=1)

    # ALBERT: the weights of one layer, used twelve times.
    x = g.plus(g.op("Gather", g.weight(178, 128, fan_in=1), "input_ids"),
               g.op("Slice", g.weight(512, 128, fan_in=1), g.i(0), n, g.i(0)))
    x = g.linear(g.norm(x, 128), 128, 768)
    g.made = []
    for turn in range(12):
        g.used = 0 if turn else None
        x = g.norm(g.plus(x, g.attention(x, 768, 12, far)), 768)
        x = g.norm(g.plus(x, g.linear(g.gelu(g.linear(x, 768, 2048)), 2048, 768)), 768)
    g.made = g.used = None
    d_en = g.linear(x, 768, 512)

    # The prosody predictor: three layers of an LSTM and an adaptive norm; then durations, pitch, loudness.
    styles = g.op("Expand", g.op("Unsqueeze", prosody, g.i(1)), g.op("Concat", batch, n, g.i(128), axis=0))
    d = g.op("Concat", d_en, styles, axis=2)
    for _ in range(3):
        d = adaptive(g, g.lstm(d, 640, 256), prosody, 512)
        d = g.op("Concat", d, styles, axis=2)
    durations = g.linear(g.lstm(d, 640, 256), 512, 50)
    speed = g.op("Unsqueeze", "speed", g.i(1, 2))
    d = g.plus(d, g.times(g.times(g.op("ReduceMean", durations, axes=[2], keepdims=1), speed), g.f(0.0)))
    p = g.swap(g.lstm(g.swap(g.repeat(g.swap(d), 640, frames)), 640, 256))
    curves = []
    for _ in range(2):
        c = adain_block(g, p, prosody, 512, 512)
        c = adain_block(g, c, prosody, 512, 256, up=True)
        c = adain_block(g, c, prosody, 256, 256)
        curves.append(g.conv(c, 256, 1))

    # The text encoder: three convolutions and an LSTM.
    t = g.swap(g.op("Gather", g.weight(178, 512, fan_in=1), "input_ids"))
    for _ in range(3):
        t = g.leaky(g.norm_channels(g.conv(t, 512, 512, 5), 512), 0.2)
    t = g.repeat(g.swap(g.lstm(g.swap(t), 512, 256)), 512, frames)

    # The decoder: one input block, then four blocks that receive the input again; the last one doubles the length.
    pitch, loudness = (g.conv(curve, 1, 1, 3, stride=2) for curve in curves)
    y = adain_block(g, g.op("Concat", t, pitch, loudness, axis=1), decoding, 514, 1024)
    asked = g.conv(t, 512, 64)
    for last in (False, False, False, True):
        y = g.op("Concat", y, asked, pitch, loudness, axis=1)
        y = adain_block(g, y, decoding, 1090, 512 if last else 1024, up=last)

    # The generator: upsampling by 10 and 6; the source is added at each stage.
    source = g.repeat(g.op("Concat", *[curves[0]] * 22, axis=1), 22, 60)
    channels = 512
    for stage, (rate, kernel) in enumerate(((10, 20), (6, 12))):
        y = g.up(g.leaky(y), channels, channels // 2, kernel, rate)
        channels //= 2
        if stage == 0:
            s = g.op("Conv", source, g.weight(channels, 22, 12), g.weight(channels, fan_in=100),
                     kernel_shape=[12], strides=[6], pads=[3, 3])
        else:
            s = g.conv(source, 22, channels)
        y = g.plus(y, resblock(g, s, decoding, channels, 7 if stage == 0 else 11))
        blocks = [resblock(g, y, decoding, channels, kernel) for kernel in (3, 7, 11)]
        y = g.times(g.plus(g.plus(blocks[0], blocks[1]), blocks[2]), g.f(1 / 3))
    spectrum = g.times(g.conv(g.leaky(y), channels, 22, 7), g.f(0.1))
    size, phase = g.op("Split", spectrum, n=2, axis=1)
    size, phase = g.op("Exp", size), g.op("Sin", phase)
    wave = g.op("Concat", g.times(size, g.op("Cos", phase)), g.times(size, g.op("Sin", phase)), axis=1)
    # The inverse transform: overlapping frames of 20 samples with a hop of 5.
    y = g.op("ConvTranspose", wave, g.weight(22, 1, 20), kernel_shape=[20], strides=[5], pads=[8, 7])
    y = g.op("Tanh", g.times(y, g.f(0.1)))
    g.nodes.append(helper.make_node("Squeeze", [y, g.i(1)], ["waveform"]))
    g.nodes.append(helper.make_node("Mul", ["input_lengths", g.i(frames * 600)], ["lengths"]))
    g.save(
        path, "kokoro",
        [
            value("input_ids", INT64, ["batch", "n"]),
            value("input_lengths", INT64, ["batch"]),
            value("style", FLOAT, ["batch", 256]),
            value("speed", FLOAT, [1]),
        ],
        [value("waveform", FLOAT, ["batch", "time"]), value("lengths", INT64, ["batch"])],
    )


def adaptive(g, x, style, size):
    """A layer norm with scale and shift derived from the style; x: [batch, n, size]."""
    scale, shift = g.op("Split", g.op("Unsqueeze", g.linear(style, 128, 2 * size), g.i(1)), n=2, axis=2)
    return g.plus(g.times(g.norm(x, size), g.plus(scale, g.f(1.0))), shift)


def adain(g, x, style, size):
    """The same per channel over time; x: [batch, size, n]."""
    ones, zeros = numpy.ones(size, numpy.float32), numpy.zeros(size, numpy.float32)
    x = g.op("InstanceNormalization", x, g.constant(ones), g.constant(zeros))
    scale, shift = g.op("Split", g.op("Unsqueeze", g.linear(style, 128, 2 * size), g.i(2)), n=2, axis=1)
    return g.plus(g.times(x, g.plus(scale, g.f(1.0))), shift)


def adain_block(g, x, style, n_in, n_out, up=False):
    y = g.leaky(adain(g, x, style, n_in), 0.2)
    if up:
        y = g.op("ConvTranspose", y, g.weight(n_in, 1, 3, fan_in=2), kernel_shape=[3], strides=[2], pads=[1, 1],
                 output_padding=[1], group=n_in)
        x = g.repeat(x, n_in, 2)
    y = g.conv(y, n_in, n_out, 3)
    y = g.conv(g.leaky(adain(g, y, style, n_out), 0.2), n_out, n_out, 3)
    if n_in != n_out:
        x = g.conv(x, n_in, n_out, bias=False)
    return g.times(g.plus(x, y), g.f(0.70710678))


def snake(g, x, size):
    alpha = g.constant(numpy.ones((1, size, 1), numpy.float32))
    sine = g.op("Sin", g.times(x, alpha))
    return g.plus(x, g.times(sine, sine))


def resblock(g, x, style, size, kernel):
    for dilation in (1, 3, 5):
        y = g.conv(snake(g, adain(g, x, style, size), size), size, size, kernel, dilation)
        y = g.conv(snake(g, adain(g, y, style, size), size), size, size, kernel)
        x = g.plus(x, y)
    return x


def free(path):
    """Piper's inputs and outputs without work; what remains is the hub's overhead."""
    g = Graph(3)
    each = g.times(g.op("Cast", "input", to=FLOAT), g.f(0.001))
    sound = g.op("Reshape", g.op("Expand", g.op("Unsqueeze", each, g.i(2)), g.i(1, 1, 256)), g.i(0, 1, 1, -1))
    g.nodes.append(helper.make_node("Identity", [sound], ["output"]))
    g.nodes.append(helper.make_node("Mul", ["input_lengths", g.i(256)], ["lengths"]))
    g.save(
        path, "free",
        [
            value("input", INT64, ["batch", "n"]),
            value("input_lengths", INT64, ["batch"]),
            value("scales", FLOAT, [3]),
        ],
        [value("output", FLOAT, ["batch", 1, 1, "time"]), value("lengths", INT64, ["batch"])],
    )


def piper_json(path):
    """The configuration file of a Piper voice, with the ids that English needs in the order of Piper's own table."""
    letters = ["_", "^", "$", *" !'(),-.:;?", *"abcdefhijklmnopqrstuvwxyz", *"æçðøħŋœǀǁǂǃɐɑɒɓɔɕɖɗɘəɚɛɜɞɟɠɡɢɣɤɥɦɧɨɪɫɬɭɮɯɰɱɲɳɴɵɶɸɹɺɻɽ",
               *"ɾʀʁʂʃʄʈʉʊʋʌʍʎʏʐʑʒʔʕʘʙʛʜʝʟʡʢʲˈˌːˑ˞βθχᵻⱱ"]
    ids = {letter: [place] for place, letter in enumerate(letters)}
    text = {
        "audio": {"sample_rate": 22050, "quality": "medium"},
        "espeak": {"voice": "en-us"},
        "inference": {"noise_scale": 0.667, "length_scale": 1, "noise_w": 0.8},
        "phoneme_type": "espeak",
        "phoneme_id_map": ids,
        "num_speakers": 1,
        "language": {"code": "en_US"},
    }
    path.write_text(json.dumps(text, ensure_ascii=False) + "\n")


def kokoro_voice(path):
    """A voice file: one style row for each number of tokens."""
    styles = numpy.random.default_rng(4).standard_normal((510, 1, 256), numpy.float32) * numpy.float32(0.1)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(styles.tobytes())


def main():
    folder, *wanted = sys.argv[1:] or sys.exit(__doc__)
    folder = pathlib.Path(folder)
    for name, write in (("free", free), ("piper", piper), ("kokoro", kokoro)):
        if wanted and name not in wanted:
            continue
        # One folder per model, as the engines expect; the model is renamed once it is complete.
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        part = place / "model.part"
        write(part)
        if name == "kokoro":
            kokoro_voice(place / "voices" / "af_heart.bin")
        else:
            piper_json(place / "model.onnx.json")
        part.rename(place / "model.onnx")


main()
