"""Writes the four graphs and the tokenizer of a speech language model, with random weights and the published ports.

    python -m antiphon_export.synthetic.speech_lm FOLDER tiny
    python -m antiphon_export.synthetic.speech_lm FOLDER chatterbox-nano|chatterbox-turbo|chatterbox-multilingual [--gqa] [--fp16]

`tiny` are the fixtures of the tests (tests/fixtures/speechlm/tiny). The other names have the dimensions of the
published models: realistic cost, but no intelligible output. Their weights lie beside the graphs in `.onnx_data` files.
`--gqa` writes the language model with GroupQueryAttention, whose past and present can be one buffer of fixed length;
`--fp16` writes the language model in half precision. With both, that is the form that a GPU runs best.

Weights are random with a fixed seed and named as in the makers' PyTorch module `T3`, so that the same weights can be
loaded there (speech_lm_golden.py). Four channels of the hidden state are not random: they count text against speech, so
that the language model stops after a fixed number of speech tokens for each text token, and never writes START or an id
that is no speech.

Needs the Python packages onnx and numpy.
"""

import dataclasses
import json
import math
import pathlib
import sys
import wave
import zlib

import numpy

from .graphs import FLOAT, FLOAT16, INT32, INT64, Graph, value

# Channels of the hidden state that are not random: 2 for text and less than zero for speech, the mean of these over the
# context, a constant 2, and zero. All others are.
COUNT, DONE, ONE, ZERO = range(4)
FIXED = 4
MEL, SPEAKER = 80, 192
SAMPLES = 960


@dataclasses.dataclass(frozen=True)
class Family:
    name: str
    form: str  # "gpt2" or "llama"
    layers: int
    heads: int
    dim: int
    inner: int
    speech: int  # size of the speech vocabulary, which is the width of the logits
    start: int
    stop: int
    codes: int  # speech ids below this are sound
    text: int  # rows of the text embedding
    end: int  # the id that the tokenizer appends twice, and that stands for START among speech ids; -1: none
    positions: int
    prompt: int  # length of audio_features
    longest: int  # most prompt tokens of the vocoder
    ratio: float  # speech tokens for each text token
    spread: float  # standard deviation of the logits

    @property
    def hidden(self):
        return self.heads * self.dim


FAMILIES = {
    # The sources are the makers' models/t3 and tts_turbo.py: 15 s of prompt (375 tokens) and a speaker for Turbo and
    # Nano; 32 vectors of a perceiver and a speaker for Multilingual; 10 s of prompt for the vocoder.
    "tiny": Family("tiny", "gpt2", 2, 2, 8, 64, 99, 97, 98, 97, 0, 0, 512, 4, 25, 3.0, 2.5),
    "chatterbox-turbo": Family(
        "chatterbox-turbo", "gpt2", 24, 16, 64, 4096, 6563, 6561, 6562, 6561, 50276, 50256, 8196, 376, 250, 2.5, 3.0
    ),
    "chatterbox-nano": Family(
        "chatterbox-nano", "gpt2", 12, 12, 64, 3072, 6563, 6561, 6562, 6561, 50276, 50256, 8196, 376, 250, 2.5, 3.0
    ),
    "chatterbox-multilingual": Family(
        "chatterbox-multilingual", "llama", 30, 16, 64, 4096, 8194, 6561, 6562, 6561, 2352, -1, 4100, 33, 250, 2.0, 3.0
    ),
}
MULTILINGUAL_TEXT_POSITIONS = 2050
EXAGGERATION, START_TEXT, STOP_TEXT = 6563, 255, 0


class Weights:
    """Weights by the names of the makers' `T3`; each depends on its name and the seed only."""

    def __init__(self, family, seed=7):
        self.family, self.seed = family, seed

    def take(self, name, shape):
        f = self.family
        random = numpy.random.default_rng([self.seed, zlib.crc32(name.encode())])
        w = random.standard_normal(shape, numpy.float32)
        kind = name.rsplit(".", 1)[-1]
        if "emb.weight" in name and "pos_emb" not in name:
            return centered(w, 2.0 if name.startswith("text") else -2.0 / f.ratio, 2.0)
        if "wpe" in name or "pos_emb" in name:
            return centered(0.3 * w, 0.0, 0.0)
        if "ln_" in name or "norm" in name:
            w *= 0.1
            w += 1.0 if kind == "weight" else 0.0
            w[:FIXED] = 1.0 if kind == "weight" else 0.0
            return w
        if name.startswith("speech_head"):
            if kind == "bias":
                w *= 0.1
                w[f.codes :] = 0.0
                return w
            w *= f.spread / math.sqrt(f.hidden)
            w[:, :FIXED] = 0.0
            w[f.codes :] = 0.0
            w[f.codes :, ONE] = -30.0
            # The mean of the counter changes by about 1 / context a step; the final norm divides by about √layers, and
            # subtracts a mean, which ZERO cancels.
            gain = (f.prompt + 60.0) * math.sqrt(f.layers)
            w[f.stop, ONE], w[f.stop, DONE], w[f.stop, ZERO] = 0.0, -gain, gain
            return w
        if name.startswith("cond_enc.spkr_enc"):
            w *= 0.1 if kind == "bias" else 1 / 16
            w[:FIXED] = 0.0
            if kind == "bias":
                w[ONE] = 2.0
            return w
        if name.startswith("cond_enc.emotion"):
            w[:FIXED] = 0.0
            return w
        # Layers. GPT-2 has matrices of [in, out], Llama of [out, in].
        gpt2 = f.form == "gpt2"
        if kind == "bias":
            w *= 0.1
        else:
            w /= math.sqrt(shape[0] if gpt2 else shape[1])
        first = ".0." in name
        if name.endswith(("c_proj.weight", "c_proj.bias")):
            w[..., :FIXED] = 0.0
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            w[:FIXED] = 0.0
        if not first:
            return w
        # Layer 0: head 0 averages the counter over all positions and writes the average to DONE.
        if name.endswith("c_attn.weight"):
            w[:, : f.dim] = 0.0
            w[:, 2 * f.hidden] = 0.0
            w[COUNT, 2 * f.hidden] = 1.0
        elif name.endswith("c_attn.bias"):
            w[: f.dim] = 0.0
            w[2 * f.hidden] = 0.0
        elif name.endswith("attn.c_proj.weight"):
            w[0] = 0.0
            w[0, DONE] = 1.0
        elif name.endswith("q_proj.weight"):
            w[: f.dim] = 0.0
        elif name.endswith("v_proj.weight"):
            w[0] = 0.0
            w[0, COUNT] = 1.0
        elif name.endswith("o_proj.weight"):
            w[:, 0] = 0.0
            w[DONE, 0] = 1.0
        return w


def centered(vectors, count, one):
    """Sets the fixed channels, and shifts the others so that the mean is zero: norms then leave the counter alone."""
    vectors[..., FIXED:] -= vectors[..., FIXED:].mean(axis=-1, keepdims=True)
    vectors[..., FIXED:] -= (count + one) / (vectors.shape[-1] - FIXED)
    vectors[..., :FIXED] = (count, 0.0, one, 0.0)
    return vectors


class HalfGraph(Graph):
    """A graph whose floating-point weights are written in half precision."""

    half = False

    def w(self, array):
        self.n_parameters += array.size
        return self.constant(array.astype(numpy.float16 if self.half else numpy.float32))

    def f(self, *numbers):
        kind = numpy.float16 if self.half else numpy.float32
        return self.constant(numpy.array(numbers if len(numbers) != 1 else numbers[0], kind))

    def size(self, x, axis):
        """The size of an axis, as a vector of one."""
        return self.op("Slice", self.op("Shape", x), self.i(axis), self.i(axis + 1))

    def scalar(self, x):
        return self.op("Squeeze", x, self.i(0))


def language_model(path, family, weights, gqa=False, half=False, defect=False, external=False):
    """inputs_embeds and the past -> logits and the present.

    `defect` writes a mask as one published export has it: a row sees as many columns as its mask has ones, wherever
    they are. That is right if all rows have the same length, and wrong where rows are padded.
    """
    g, f = HalfGraph(0), family
    g.half = half
    take = lambda name, *shape: weights.take(name, shape)
    h, kind = f.hidden, FLOAT16 if half else FLOAT
    x = "inputs_embeds"

    length = g.size(x, 1)
    if gqa:
        total = g.op("Unsqueeze", g.op("Cast", "total_sequence_length", to=INT64), g.i(0))
    else:
        total = g.size("attention_mask", 1)
    past = g.op("Sub", total, length)
    if not gqa:
        zero, one = g.constant(numpy.int64(0)), g.constant(numpy.int64(1))
        columns = g.op("Unsqueeze", g.op("Range", zero, g.scalar(total), one), g.i(0))
        rows = g.op("Unsqueeze", g.op("Range", g.scalar(past), g.scalar(total), one), g.i(1))
        causal = g.op("LessOrEqual", columns, rows)
        if defect:
            n = g.op("ReduceSum", "attention_mask", g.i(1), keepdims=1)
            there = g.op("Less", columns, n)
        else:
            there = g.op("Greater", "attention_mask", g.i(0))
        there = g.op("And", g.op("Unsqueeze", there, g.i(1, 2)), causal)
        far = g.op("Where", there, g.f(0.0), g.f(-1e4))

    turn = None
    if f.form == "gpt2":
        x = g.plus(x, g.op("Gather", g.w(take("tfmr.wpe.weight", f.positions, h)), "position_ids"))
    else:
        # Positions are columns, as in the published export, which has no position_ids.
        if gqa:
            places = "position_ids"
        else:
            places = g.op("Unsqueeze", g.op("Range", g.scalar(past), g.scalar(total), one), g.i(0))
        angle = g.op(
            "Mul", g.op("Unsqueeze", g.op("Cast", places, to=FLOAT), g.i(1, 3)), g.constant(llama3_frequencies(f.dim))
        )
        angle = g.op("Concat", angle, angle, axis=3)
        turn = [g.op("Cast", g.op(wave, angle), to=kind) for wave in ("Cos", "Sin")]

    def split(y):
        return g.op("Transpose", g.op("Reshape", y, g.i(0, 0, f.heads, f.dim)), perm=[0, 2, 1, 3])

    def rotate(y):
        a, b = g.op("Split", y, n=2, axis=3)
        return g.plus(g.times(y, turn[0]), g.times(g.op("Concat", g.op("Neg", b), a, axis=3), turn[1]))

    def norm(y, name):
        if f.form == "gpt2":
            return g.op(
                "LayerNormalization",
                y,
                g.w(take(f"{name}.weight", h)),
                g.w(take(f"{name}.bias", h)),
                axis=-1,
                epsilon=1e-5,
            )
        y = g.op("Cast", y, to=FLOAT) if half else y
        mean = g.op("ReduceMean", g.op("Mul", y, y), axes=[-1], keepdims=1)
        y = g.op("Div", y, g.op("Sqrt", g.op("Add", mean, g.constant(numpy.float32(1e-5)))))
        y = g.op("Cast", y, to=FLOAT16) if half else y
        return g.times(y, g.w(take(f"{name}.weight", h)))

    def linear(y, name, n_in, n_out):
        if f.form == "gpt2":
            return g.plus(g.op("MatMul", y, g.w(take(f"{name}.weight", n_in, n_out))), g.w(take(f"{name}.bias", n_out)))
        return g.op("MatMul", y, g.w(numpy.ascontiguousarray(take(f"{name}.weight", n_out, n_in).T)))

    for layer in range(f.layers):
        at = f"tfmr.h.{layer}" if f.form == "gpt2" else f"tfmr.layers.{layer}"
        y = norm(x, f"{at}.ln_1" if f.form == "gpt2" else f"{at}.input_layernorm")
        if f.form == "gpt2":
            q, k, v = g.op("Split", linear(y, f"{at}.attn.c_attn", h, 3 * h), n=3, axis=2)
        else:
            q, k, v = (linear(y, f"{at}.self_attn.{each}_proj", h, h) for each in "qkv")
        before = [f"past_key_values.{layer}.{each}" for each in ("key", "value")]
        after = [f"present.{layer}.{each}" for each in ("key", "value")]
        if gqa:
            if turn:
                join = lambda y: g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.i(0, 0, h))
                q, k = (join(rotate(split(y))) for y in (q, k))
            y = g.name("attention")
            g.node(
                "GroupQueryAttention",
                [q, k, v, *before, "seqlens_k", "total_sequence_length"],
                [y, *after],
                domain="com.microsoft",
                num_heads=f.heads,
                kv_num_heads=f.heads,
                scale=1 / math.sqrt(f.dim),
            )
        else:
            q, k, v = split(q), split(k), split(v)
            if turn:
                q, k = rotate(q), rotate(k)
            for past_one, one_more, present in zip(before, (k, v), after):
                g.node("Concat", [past_one, one_more], [present], axis=2)
            scores = g.times(
                g.op("MatMul", q, g.op("Transpose", after[0], perm=[0, 1, 3, 2])), g.f(1 / math.sqrt(f.dim))
            )
            y = g.op("MatMul", g.op("Softmax", g.plus(scores, far), axis=-1), after[1])
            y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.i(0, 0, h))
        if f.form == "gpt2":
            x = g.plus(x, linear(y, f"{at}.attn.c_proj", h, h))
            y = linear(norm(x, f"{at}.ln_2"), f"{at}.mlp.c_fc", h, f.inner)
            # GELU in the form of GPT-2: y / 2 (1 + tanh(√(2/π) (y + 0.044715 y³))).
            cube = g.times(g.times(g.times(y, y), y), g.f(0.044715))
            gate = g.plus(g.op("Tanh", g.times(g.plus(y, cube), g.f(math.sqrt(2 / math.pi)))), g.f(1.0))
            x = g.plus(x, linear(g.times(g.times(y, g.f(0.5)), gate), f"{at}.mlp.c_proj", f.inner, h))
        else:
            x = g.plus(x, linear(y, f"{at}.self_attn.o_proj", h, h))
            y = norm(x, f"{at}.post_attention_layernorm")
            gate = linear(y, f"{at}.mlp.gate_proj", h, f.inner)
            y = g.times(g.times(gate, g.op("Sigmoid", gate)), linear(y, f"{at}.mlp.up_proj", h, f.inner))
            x = g.plus(x, linear(y, f"{at}.mlp.down_proj", f.inner, h))
    x = norm(x, "tfmr.ln_f" if f.form == "gpt2" else "tfmr.norm")
    head = numpy.ascontiguousarray(take("speech_head.weight", f.speech, h).T)
    if f.form == "gpt2":
        g.node("Add", [g.op("MatMul", x, g.w(head)), g.w(take("speech_head.bias", f.speech))], ["logits"])
    else:
        g.node("MatMul", [x, g.w(head)], ["logits"])

    inputs = [value("inputs_embeds", kind, ["batch", "length", h])]
    if gqa:
        inputs += [value("seqlens_k", INT32, ["batch"]), value("total_sequence_length", INT32, [])]
    else:
        inputs.append(value("attention_mask", INT64, ["batch", "total"]))
    if f.form == "gpt2" or gqa:
        inputs.append(value("position_ids", INT64, ["batch", "length"]))
    outputs = [value("logits", kind, ["batch", "length", f.speech])]
    now, then = ("fixed", "fixed") if gqa else ("past", "total")
    for layer in range(f.layers):
        for each in ("key", "value"):
            inputs.append(value(f"past_key_values.{layer}.{each}", kind, ["batch", f.heads, now, f.dim]))
            outputs.append(value(f"present.{layer}.{each}", kind, ["batch", f.heads, then, f.dim]))
    g.save(path, "language_model", inputs, outputs, external)


def llama3_frequencies(dim):
    """The rotation of each pair of channels, in radians a position, scaled as the makers' llama_configs.py says."""
    theta, factor, low, high, original = 500000.0, 8.0, 1.0, 4.0, 8192.0
    frequency = 1.0 / theta ** (numpy.arange(0, dim, 2, dtype=numpy.float64) / dim)
    wave = 2 * math.pi / frequency
    smooth = (original / wave - low) / (high - low)
    between = (1 - smooth) * frequency / factor + smooth * frequency
    scaled = numpy.where(
        wave > original / low, frequency / factor, numpy.where(wave < original / high, frequency, between)
    )
    return scaled.astype(numpy.float32)


def embed_tokens(path, family, weights, external=False):
    """Text ids and speech ids overlap, and their places tell them apart, as in the published graphs.

    GPT-2: the last two ids of a call are speech, and `end` among them is START; all others are text. Llama: text is
    what stands at or before the first STOP_TEXT, if there is one.
    """
    g, f = HalfGraph(0), family
    speech = weights.take("speech_emb.weight", (f.speech, f.hidden))
    text = weights.take("text_emb.weight", (f.text, f.hidden))
    inputs = [value("input_ids", INT64, ["batch", "length"])]
    if f.form == "gpt2":
        front = g.op("Slice", "input_ids", g.i(0), g.i(-2), g.i(1))
        tail = g.op("Slice", "input_ids", g.i(-2), g.constant(numpy.array([2**62])), g.i(1))
        tail = g.op("Where", g.op("Equal", tail, g.i(f.end)), g.i(f.start), tail)
        front, tail = g.op("Gather", g.w(text), front), g.op("Gather", g.w(speech), tail)
        g.node("Concat", [front, tail], ["inputs_embeds"], axis=1)
    else:
        stops = g.op("Cast", g.op("Equal", "input_ids", g.i(STOP_TEXT)), to=INT64)
        before = g.op("CumSum", stops, g.constant(numpy.int64(1)), exclusive=1)
        has = g.op("ReduceMax", stops, axes=[1], keepdims=1)
        is_text = g.op("And", g.op("Equal", before, g.i(0)), g.op("Greater", has, g.i(0)))
        is_exaggeration = g.op("Equal", "input_ids", g.i(EXAGGERATION))

        def embed(table, positions, mask):
            pick = lambda ids: g.op("Where", mask, ids, g.i(0))
            return g.plus(
                g.op("Gather", g.w(table), pick("input_ids")), g.op("Gather", g.w(positions), pick("position_ids"))
            )

        is_text = g.op("And", is_text, g.op("Not", is_exaggeration))
        is_speech = g.op("Not", g.op("Or", is_text, is_exaggeration))
        text = embed(text, weights.take("text_pos_emb.emb.weight", (MULTILINGUAL_TEXT_POSITIONS, f.hidden)), is_text)
        speech = embed(speech, weights.take("speech_pos_emb.emb.weight", (f.positions, f.hidden)), is_speech)
        emotion = weights.take("cond_enc.emotion_adv_fc.weight", (f.hidden, 1)).reshape(1, 1, f.hidden)
        emotion = g.op("Mul", g.op("Unsqueeze", "exaggeration", g.i(1, 2)), g.w(emotion))
        last = g.i(2)
        x = g.op("Where", g.op("Unsqueeze", is_text, last), text, speech)
        g.node("Where", [g.op("Unsqueeze", is_exaggeration, last), emotion, x], ["inputs_embeds"])
        inputs += [value("position_ids", INT64, ["batch", "length"]), value("exaggeration", FLOAT, ["batch"])]
    g.save(path, "embed_tokens", inputs, [value("inputs_embeds", FLOAT, ["batch", "length", f.hidden])], external)


def speech_encoder(path, family, external=False):
    """Cheap: means of absolute filter outputs, and linear maps of them. Different sound gives different outputs.

    What the published graph computes is not here: it is run once for each voice, and its cost does not matter.
    """
    g, f, n = HalfGraph(11), family, 16
    samples = g.size("audio_values", 1)
    tokens = g.op("Min", g.op("Max", g.op("Div", samples, g.i(SAMPLES)), g.i(1)), g.i(f.longest))
    padded = g.op("Pad", "audio_values", g.i(0, 0, 0, SAMPLES))
    heard = g.op("Slice", padded, g.i(0), g.times(tokens, g.i(SAMPLES)), g.i(1))
    # 32 samples a step, 15 steps a frame.
    y = g.op("Abs", g.op("Conv", g.op("Unsqueeze", heard, g.i(1)), g.weight(n, 1, 32), kernel_shape=[32], strides=[32]))
    y = g.op("AveragePool", y, kernel_shape=[15], strides=[15])
    y = g.swap(g.op("Log", g.plus(y, g.f(1e-3))))
    y = g.times(g.plus(y, g.f(4.0)), g.f(0.5))
    frames = g.linear(y, n, MEL)
    pairs = g.op("ReduceMean", g.op("Reshape", y, g.i(0, -1, 2, n)), axes=[2], keepdims=0)
    mean = g.op("ReduceMean", y, axes=[1], keepdims=0)
    center = g.op("Unsqueeze", mean, g.i(1))
    pairs = g.plus(center, g.times(g.op("Sub", pairs, center), g.f(8.0)))
    codes = g.op("ArgMax", g.linear(pairs, n, f.codes), axis=2, keepdims=0)
    # As many vectors as the published graph has: the mean, shifted by a constant of each place. The mean goes through a
    # matrix whose columns are centered, so that the fixed channels stay what they are.
    places = numpy.random.default_rng(12).standard_normal((1, f.prompt, f.hidden), numpy.float32)
    matrix = numpy.random.default_rng(15).standard_normal((n, f.hidden), numpy.float32) / 4
    features = g.op("MatMul", g.op("Unsqueeze", mean, g.i(1)), g.w(centered(matrix, 0.0, 0.0)))
    places = centered(places, 0.0, 2.0)
    g.node("Add", [features, g.w(places)], ["audio_features"])
    for result, name in (
        (codes, "audio_tokens"),
        (g.linear(mean, n, SPEAKER), "speaker_embeddings"),
        (frames, "speaker_features"),
    ):
        g.node("Identity", [result], [name])
    g.save(
        path,
        "speech_encoder",
        [value("audio_values", FLOAT, [1, "samples"])],
        [
            value("audio_features", FLOAT, [1, f.prompt, f.hidden]),
            value("audio_tokens", INT64, [1, "prompt"]),
            value("speaker_embeddings", FLOAT, [1, SPEAKER]),
            value("speaker_features", FLOAT, [1, "frames", MEL]),
        ],
        external,
    )


def small_decoder(path, family):
    """Sound of a token depends on two tokens before and behind it, and a little on the next ones, and on the speaker.
    """
    g, f, n = HalfGraph(13), family, 8
    x = g.op("Gather", g.weight(f.speech, n, fan_in=1), "speech_tokens")
    voice = g.op("Unsqueeze", g.linear("speaker_embeddings", SPEAKER, n), g.i(1))
    # The frames of the prompt, two for each of its tokens; zero behind it.
    frames = g.op("Div", g.size("speaker_features", 1), g.i(2))
    even = g.op("Slice", "speaker_features", g.i(0), g.times(frames, g.i(2)), g.i(1))
    prompt = g.linear(g.op("ReduceMean", g.op("Reshape", even, g.i(0, -1, 2, MEL)), axes=[2], keepdims=0), MEL, n)
    rest = g.op("Sub", g.size("speech_tokens", 1), frames)
    prompt = g.op("Pad", prompt, g.op("Concat", g.i(0, 0, 0, 0), rest, g.i(0), axis=0))
    x = g.op("Tanh", g.swap(g.plus(g.plus(x, voice), prompt)))
    x = g.op("Tanh", g.conv(x, n, n, 5))
    for rate, kernel, n_in, n_out in ((8, 16, n, n), (8, 16, n, 4), (15, 31, 4, 1)):
        x = g.up(x, n_in, n_out, kernel, rate)
        if n_out > 1:
            x = g.op("Sin", g.times(x, g.f(2.0)))
    x = g.times(g.op("Tanh", x), g.f(0.4))
    x = g.op("Squeeze", x, g.i(1))
    x = g.op("Slice", x, g.times(frames, g.i(SAMPLES)), g.constant(numpy.array([2**62])), g.i(1))
    save_decoder(g, x, path, False)


def true_decoder(path, family, external=True):
    """The dimensions of S3Gen with meanflow (makers' models/s3gen): 136.9 million weights.

    The makers' modules have 135.5 million: 114.6 in the flow (37.8 of them in its encoder and 73.4 in its estimator)
    and 20.8 in HiFT. The other parts of S3Gen, 123.7 million of the tokenizer and 6.8 of CAMPPlus, are the speech
    encoder's.

    An encoder of 6 layers of 512 at 25 Hz and 4 at 50 Hz with relative positions, an estimator of 14 blocks (each a
    residual block and 4 transformer layers of 256) that is run twice, and HiFT (a predictor of pitch, a sine source,
    and an iSTFTNet 8x5x3x4 from 512 channels). Prompt and generated tokens are processed alike up to the mel frames;
    HiFT makes sound of the frames behind the prompt. Left out: the shift of the relative positions (the product is
    there), the random noise (a fixed pattern is in its place), and masks of padding, of which there is none.
    """
    g, f = HalfGraph(14), family
    zero, one = g.constant(numpy.int64(0)), g.constant(numpy.int64(1))
    n = 512

    def norm_leaky(x):
        return g.leaky(x, 0.01)

    def mish(x):
        return g.times(x, g.op("Tanh", g.op("Softplus", x)))

    def waves(length, size, scale):
        """A fixed table of sines [length, size] of positions."""
        places = g.op("Cast", g.op("Range", zero, g.scalar(length), one), to=FLOAT)
        angle = g.times(
            g.op("Unsqueeze", places, g.i(1)), g.constant((scale ** -numpy.arange(size)).astype(numpy.float32))
        )
        return g.op("Sin", angle)

    def heads(x, count, each):
        return g.op("Transpose", g.op("Reshape", x, g.i(0, 0, count, each)), perm=[0, 2, 1, 3])

    def conformer(x):
        y = g.norm(x, n)
        length = g.size(x, 1)
        q, k, v = (heads(g.linear(y, n, n), 8, 64) for _ in range(3))
        double = g.op("Sub", g.times(length, g.i(2)), g.i(1))
        places = g.op("MatMul", g.op("Unsqueeze", waves(double, n, 1.02), g.i(0)), g.weight(n, n, fan_in=n))
        places = g.op("Transpose", heads(places, 8, 64), perm=[0, 1, 3, 2])
        near = g.op("MatMul", g.plus(q, g.weight(1, 8, 1, 64, fan_in=64)), g.op("Transpose", k, perm=[0, 1, 3, 2]))
        far = g.op("MatMul", g.plus(q, g.weight(1, 8, 1, 64, fan_in=64)), places)
        far = g.op("Slice", far, g.i(0), length, g.i(3))
        scores = g.times(g.plus(near, far), g.f(1 / 8))
        y = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = g.plus(x, g.linear(g.op("Reshape", y, g.i(0, 0, n)), n, n))
        y = g.linear(g.norm(x, n), n, 2048)
        return g.plus(x, g.linear(g.times(y, g.op("Sigmoid", y)), 2048, n))

    x = g.op("Gather", g.weight(f.codes, n, fan_in=1), g.op("Min", "speech_tokens", g.i(f.codes - 1)))
    x = g.norm(g.linear(x, n, n), n)
    y = norm_leaky(g.conv(g.swap(x), n, n, 4, pads=[0, 3]))
    x = g.plus(x, g.swap(g.conv(y, n, n, 3, pads=[2, 0])))
    for _ in range(6):
        x = conformer(x)
    x = g.conv(g.repeat(g.swap(x), n, 2), n, n, 5, pads=[4, 0])
    x = g.norm(g.linear(g.swap(x), n, n), n)
    for _ in range(4):
        x = conformer(x)
    mu = g.swap(g.linear(g.norm(x, n), n, MEL))

    # The estimator. mu: [batch, 80, frames].
    blank = g.times(mu, g.f(0.0))
    speaker = g.plus(g.op("Unsqueeze", g.linear("speaker_embeddings", SPEAKER, MEL), g.i(2)), blank)
    frames = g.size("speaker_features", 1)
    rest = g.op("Sub", g.size(mu, 2), frames)
    prompt = g.op("Pad", g.swap("speaker_features"), g.op("Concat", g.i(0, 0, 0, 0, 0), rest, axis=0))
    size = 256

    def block(x, n_in, n_out):
        return mish(g.norm_channels(g.conv(x, n_in, n_out, 3, pads=[2, 0]), n_out))

    def residual(x, time, n_in):
        y = g.plus(block(x, n_in, size), g.op("Unsqueeze", g.linear(mish(time), 1024, size), g.i(2)))
        return g.plus(block(y, size, size), g.conv(x, n_in, size))

    def transformers(x):
        x = g.swap(x)
        for _ in range(4):
            y = g.norm(x, size)
            q, k, v = (heads(g.op("MatMul", y, g.weight(size, n, fan_in=size)), 8, 64) for _ in range(3))
            scores = g.times(g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), g.f(1 / 8))
            y = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
            x = g.plus(x, g.linear(g.op("Reshape", y, g.i(0, 0, n)), n, size))
            x = g.plus(x, g.linear(g.gelu(g.linear(g.norm(x, size), size, 1024)), 1024, size))
        return g.swap(x)

    z = g.plus(blank, g.op("Transpose", waves(g.size(mu, 2), MEL, 0.7), perm=[1, 0]))
    g.made = []
    for step in range(2):
        g.used = 0 if step else None
        times = []
        for moment in (step / 2, (step + 1) / 2):
            angle = moment * 1000 * 10000 ** (-numpy.arange(160) / 159)
            time = g.constant(numpy.concatenate([numpy.sin(angle), numpy.cos(angle)])[None].astype(numpy.float32))
            time = g.linear(time, 320, 1024)
            times.append(g.linear(g.times(time, g.op("Sigmoid", time)), 1024, 1024))
        time = g.op("MatMul", g.op("Concat", *times, axis=1), g.weight(2048, 1024, fan_in=2048))
        x = g.op("Concat", z, mu, speaker, prompt, axis=1)
        first = transformers(residual(x, time, 320))
        x = g.conv(first, size, size, 3, pads=[2, 0])
        for _ in range(12):
            x = transformers(residual(x, time, size))
        x = transformers(residual(g.op("Concat", x, first, axis=1), time, 2 * size))
        x = block(g.conv(x, size, size, 3, pads=[2, 0]), size, size)
        z = g.plus(z, g.times(g.conv(x, size, MEL), g.f(0.5)))
    g.made = g.used = None
    mel = g.op("Slice", z, frames, g.constant(numpy.array([2**62])), g.i(2))

    # HiFT: pitch, then a source of nine harmonics at 24 kHz, and its spectrum.
    y, channels = mel, MEL
    for _ in range(5):
        y, channels = g.op("Elu", g.conv(y, channels, n, 3)), n
    pitch = g.repeat(g.op("Abs", g.conv(y, n, 1)), 1, 480)
    harmonics = g.constant(numpy.arange(1, 10, dtype=numpy.float32).reshape(1, 9, 1))
    phase = g.op("CumSum", g.times(g.times(pitch, g.f(100 / 24_000)), harmonics), g.constant(numpy.int64(2)))
    source = g.op("Sin", g.times(g.op("Sub", phase, g.op("Floor", phase)), g.f(2 * math.pi)))
    source = g.op("Tanh", g.conv(g.times(source, g.f(0.1)), 9, 1))
    spectrum = g.conv(source, 1, 18, 16, bias=False, stride=4, pads=[8, 8])

    def snake(x, channels):
        alpha = g.constant(numpy.ones((1, channels, 1), numpy.float32))
        g.n_parameters += channels
        sine = g.op("Sin", g.times(x, alpha))
        return g.plus(x, g.times(sine, sine))

    def resblock(x, channels, kernel):
        for dilation in (1, 3, 5):
            y = g.conv(snake(x, channels), channels, channels, kernel, dilation)
            x = g.plus(x, g.conv(snake(y, channels), channels, channels, kernel))
        return x

    y, channels = g.conv(mel, MEL, n, 7), n
    for (rate, kernel), (down, wide) in zip(((8, 16), (5, 11), (3, 7)), ((15, 7), (3, 7), (1, 11))):
        y = g.up(g.leaky(y), channels, channels // 2, kernel, rate)
        channels //= 2
        if down == 1:
            y = g.op("Pad", y, g.i(0, 0, 1, 0, 0, 0), mode="reflect")
            s = g.conv(spectrum, 18, channels)
        else:
            s = g.conv(spectrum, 18, channels, 2 * down, stride=down, pads=[down // 2, down // 2])
        y = g.plus(y, resblock(s, channels, wide))
        blocks = [resblock(y, channels, kernel) for kernel in (3, 7, 11)]
        y = g.times(g.plus(g.plus(blocks[0], blocks[1]), blocks[2]), g.f(1 / 3))
    # Magnitudes are held small, as random weights make any.
    both = g.times(g.op("Tanh", g.conv(g.leaky(y, 0.01), channels, 18, 7)), g.f(0.5))
    magnitude, phase = g.op("Split", both, n=2, axis=1)
    magnitude, phase = g.op("Exp", magnitude), g.op("Sin", phase)
    wave = g.op("Concat", g.times(magnitude, g.op("Cos", phase)), g.times(magnitude, g.op("Sin", phase)), axis=1)
    wave = g.op("ConvTranspose", wave, g.weight(18, 1, 16, fan_in=72), kernel_shape=[16], strides=[4], pads=[8, 8])
    save_decoder(g, g.op("Squeeze", g.times(g.op("Tanh", wave), g.f(0.4)), g.i(1)), path, external)


def save_decoder(g, sound, path, external):
    """Fades the first 20 ms behind the prompt to silence and the next 20 ms in, as the makers do, and saves."""
    n = SAMPLES // 2
    fade = numpy.concatenate([numpy.zeros(n), (numpy.cos(numpy.linspace(numpy.pi, 0, n)) + 1) / 2])
    rest = g.op("Sub", g.size(sound, 1), g.i(SAMPLES))
    fade = g.op("Pad", g.constant(fade.astype(numpy.float32)), g.op("Concat", g.i(0), rest, axis=0), g.f(1.0))
    g.node("Mul", [sound, fade], ["waveform"])
    g.save(
        path,
        "conditional_decoder",
        [
            value("speech_tokens", INT64, ["batch", "tokens"]),
            value("speaker_embeddings", FLOAT, ["batch", SPEAKER]),
            value("speaker_features", FLOAT, ["batch", "frames", MEL]),
        ],
        [value("waveform", FLOAT, ["batch", "samples"])],
        external,
    )


def byte_letters():
    """The letter that stands for each byte in a byte-level vocabulary, as GPT-2's has it."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


# Ids of the tiny tokenizer begin here, above its speech ids, so that text in the place of speech is an error.
TINY_TEXT_AT = 128
WORDS = "the and you that is it in of to for on with hello are have what can will time day good"


def tokenizer(path, family):
    """A byte-level BPE of 256 bytes and a few words, in the format of Hugging Face; returns the id `end`, if it has
    one.

    As the published tokenizers do, it adds what the other graphs expect around a text: `end` twice behind it (GPT-2),
    or EXAGGERATION and START_TEXT before it, and STOP_TEXT and START twice behind it (Llama).
    """
    letters = byte_letters()
    tokens, merges = list(letters), []
    for word in WORDS.split():
        left = word[0]
        for right in word[1:]:
            if left + right not in tokens:
                tokens.append(left + right)
                merges.append([left, right])
            left += right
        tokens.append("Ġ" + word)
        merges.append(["Ġ", word])
    tags = ["[laugh]", "[sigh]"] if family.form == "gpt2" else ["[en]", "[de]", "[es]", "[fr]", "[it]", "[pt]"]
    at = TINY_TEXT_AT if family.name == "tiny" else 0 if family.form == "gpt2" else START_TEXT + 1
    vocabulary = {token: at + place for place, token in enumerate([*tokens, *tags])}
    if family.form == "gpt2":
        end = family.end or at + len(vocabulary)
        before, behind = [], ["<|endoftext|>"] * 2
        vocabulary["<|endoftext|>"] = end
    else:
        end = -1
        before, behind = ["[EXAGGERATION]", "[START]"], ["[STOP]", "[START_SPEECH]", "[START_SPEECH]"]
        vocabulary |= {
            "[EXAGGERATION]": EXAGGERATION,
            "[START]": START_TEXT,
            "[STOP]": STOP_TEXT,
            "[START_SPEECH]": family.start,
        }
    special = sorted({*before, *behind})
    added = [
        {
            "id": vocabulary[word],
            "content": word,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": word in special,
        }
        for word in (*tags, *special)
    ]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    each = lambda words: [{"SpecialToken": {"id": word, "type_id": 0}} for word in words]
    template = [*each(before), sequence, *each(behind)]
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": template,
            "pair": [*template, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {word: {"id": word, "ids": [vocabulary[word]], "tokens": [word]} for word in special},
        },
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }
    path.write_text(json.dumps(whole, ensure_ascii=False) + "\n", encoding="utf-8")
    return end


def reference(path):
    """0.8 s of a voice-like sound: a buzz that glides and swells."""
    rate, n = 24_000, 19_200
    t = numpy.arange(n) / rate
    phase = 2 * numpy.pi * (140 * t + 40 * t * t)
    sound = sum(numpy.sin(k * phase + k) / k for k in range(1, 9)) * (0.6 + 0.4 * numpy.sin(2 * numpy.pi * 3 * t))
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes((sound * 0.15 * 32767).astype("<i2").tobytes())


def tiny(folder):
    end = tokenizer(folder / "tokenizer.json", FAMILIES["tiny"])
    family = dataclasses.replace(FAMILIES["tiny"], text=end + 1, end=end)
    weights = Weights(family)
    language_model(folder / "language_model.onnx", family, weights)
    language_model(folder / "language_model_gqa.onnx", family, weights, gqa=True)
    language_model(folder / "language_model_fp16.onnx", family, weights, half=True)
    language_model(folder / "language_model_mask.onnx", family, weights, defect=True)
    embed_tokens(folder / "embed_tokens.onnx", family, weights)
    speech_encoder(folder / "speech_encoder.onnx", family)
    small_decoder(folder / "conditional_decoder.onnx", family)
    reference(folder / "reference.wav")


def main():
    arguments = [each for each in sys.argv[1:] if not each.startswith("--")]
    if len(arguments) != 2 or arguments[1] not in FAMILIES:
        sys.exit(__doc__)
    folder = pathlib.Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    if arguments[1] == "tiny":
        tiny(folder)
        return
    family, weights = FAMILIES[arguments[1]], Weights(FAMILIES[arguments[1]])
    gqa, half = "--gqa" in sys.argv, "--fp16" in sys.argv
    tokenizer(folder / "tokenizer.json", family)
    speech_encoder(folder / "speech_encoder.onnx", family, external=True)
    embed_tokens(folder / "embed_tokens.onnx", family, weights, external=True)
    true_decoder(folder / "conditional_decoder.onnx", family)
    language_model(folder / "language_model.onnx", family, weights, gqa=gqa, half=half, external=True)


if __name__ == "__main__":
    main()
