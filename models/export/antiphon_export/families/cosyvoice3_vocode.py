"""The graph `vocode` of CosyVoice3: speech tokens to mel frames by flow matching, mel frames to sound by HiFT.

`build` makes it of NumPy weights under the makers' names; the family module uses it. It never reads a checkpoint.

**Flow.** The transformer of the flow (DiT) keeps no cache: its keys and values, for each of the ten Euler steps and both halves of
the classifier-free guidance, would be gigabytes a stream. Each run computes the recording, `n_before` tokens of left context, the
chunk and what lies behind it. Positions and noise follow the absolute position of a token, which is part of the state, so that a
window that has slid gives a token what it had before.

While the speech goes on, frames attend to their own block and to those before it; the grid of blocks begins behind the recording.
With `is_last` every frame attends to all, as the makers do in their last run and when they do not stream.

**HiFT** is causal and continues exactly: the inputs of its convolutions, the phase of its source and the ends of its Fourier
transforms are state. It looks eight mel frames (four tokens) ahead, so that the look-ahead is that of the flow's first layer (3)
and four more. Mel frames that were computed once are not computed again: those eight are state too.

**The last layer norms' scales and shifts** depend on the Euler step only, so they are tables, and the layers that made them, a
third of the DiT's weights, are not part of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

import numpy as np
from onnx import TensorProto

from .cosyvoice3_graph import LAST, Net

FLOAT, DOUBLE, INT64, BOOL = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.BOOL
# Frames that HiFT looks ahead: 3 of the pitch, 4 of its first layer, 1 of the inverse Fourier transform.
MEL_AHEAD = 8
# Below every position of the grid of blocks: the recording comes before all speech.
BEFORE_ALL = 1 << 20
MASKED = -1e4


@dataclass(frozen=True)
class FlowConfig:
    """Dimensions of the flow that its weights do not tell."""

    heads: int
    mel: int = 80
    mel_per_token: int = 2
    look_ahead: int = 3
    block_tokens: int = 25
    steps: int = 10
    guidance: float = 0.7


@dataclass(frozen=True)
class HiftConfig:
    """Dimensions of HiFT that its weights do not tell."""

    rate_hz: int = 24000
    upsample: tuple[int, ...] = (8, 5, 3)
    n_fft: int = 16
    hop: int = 4
    resblock_kernels: tuple[int, ...] = (3, 7, 11)
    dilations: tuple[int, ...] = (1, 3, 5)
    sine_amplitude: float = 0.1
    noise: float = 0.003
    voiced_hz: float = 10.0
    slope: float = 0.1
    limit: float = 0.99

    @property
    def hop_samples(self) -> int:
        """Samples of a mel frame."""
        return int(np.prod(self.upsample)) * self.hop


Weights = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class VocodeWeights:
    """Weights under the makers' names, and the tables of noise."""

    flow: Weights
    """Of flow.pt; `modulation` [steps, layers, 6, size] and `final` [steps, 2, size] are the layer norms' shifts and scales."""
    hift: Weights
    """Of hift.pt, without weight norms: `PREFIX.weight` is the product."""
    flow_noise: np.ndarray
    """[mel, frames]: where the flow begins, by the frame's position; it repeats."""
    source_noise: np.ndarray
    """[samples, harmonics + 1], whole mel frames of it: noise of HiFT's source; it repeats."""


def state_numbers(hift: HiftConfig, weights: Weights) -> int:
    """Numbers of HiFT's state."""
    return _Hift(Net("count"), hift, weights, np.zeros((hift.hop_samples, 9), np.float32)).run_for_size()


def build(
    flow: FlowConfig, hift: HiftConfig, weights: VocodeWeights, precision: str = "fp32", with_mel: bool = False
) -> Net:
    """The graph. In fp16 the matrices of the DiT and its attention are float16; all else is float32, and the pitch float64.
    `with_mel` adds the output `mel`, what the flow made of the window, for comparisons."""
    net = Net("vocode", precision)
    mel = flow.mel
    codes = net.input("codes", INT64, ["batch", "tokens"])
    prompt_codes = net.input("prompt_codes", INT64, ["batch", "prompt_tokens"])
    prompt_mel = net.input("prompt_mel", FLOAT, ["batch", "prompt_frames", mel])
    speaker = net.input("speaker", FLOAT, ["batch", weights.flow["spk_embed_affine_layer.weight"].shape[1]])
    n_before = net.input("n_before", INT64, [1])
    is_last = net.input("is_last", BOOL, [1])
    position = net.input("state.position", FLOAT, ["batch", 1])
    pending = net.input("state.mel", FLOAT, ["batch", MEL_AHEAD, mel])
    source = _Hift(net, hift, weights.hift, weights.source_noise)
    n_state = state_numbers(hift, weights.hift)
    hift_state = net.input("state.hift", FLOAT, ["batch", n_state])
    net.output("waveform", FLOAT, ["batch", 1, "samples"])
    net.output("next.position", FLOAT, ["batch", 1])
    net.output("next.mel", FLOAT, ["batch", MEL_AHEAD, mel])
    net.output("next.hift", FLOAT, ["batch", n_state])

    tokens_ahead = flow.look_ahead + MEL_AHEAD // flow.mel_per_token
    zero = net.ints([0])
    n_tokens = net.size(codes, 1)
    ahead = net.where(is_last, zero, net.ints([tokens_ahead]))
    n_chunk = net.sub(net.sub(n_tokens, n_before), ahead)
    n_frames = net.mul(n_chunk, net.ints([flow.mel_per_token]))
    position_i = net.cast(position, INT64)
    start = net.op("Max", [net.sub(position_i, n_before), zero])

    frames = _Flow(net, flow, weights.flow, weights.flow_noise).run(
        codes, prompt_codes, prompt_mel, speaker, start, is_last
    )
    if with_mel:
        net.output("mel", FLOAT, ["batch", "frames", mel])
        net.result(frames, "mel")
    # The frames from the chunk on: with the eight behind it, or zeros in their place.
    frames = net.cut(frames, net.mul(n_before, net.ints([flow.mel_per_token])))
    frames = net.pad_axis(frames, 0, net.where(is_last, net.ints([MEL_AHEAD]), zero), 1)
    # The first eight were computed by the run before, if there was one.
    index = net.arange(net.size(frames, 1))
    is_pending = net.op("Less", [index, net.ints(MEL_AHEAD)])
    known = net.op("Gather", [pending, net.op("Min", [index, net.ints(MEL_AHEAD - 1)])], axis=1)
    has_begun = net.op("Greater", [position, net.floats(0.0)])
    is_pending = net.op("And", [net.reshape(is_pending, [1, -1, 1]), net.unsqueeze(has_begun, [2])])
    frames = net.where(is_pending, known, frames)
    net.result(net.cut(frames, n_frames), "next.mel")
    net.result(net.add(position, net.cast(n_chunk, FLOAT)), "next.position")

    first_frame = net.mul(position_i, net.ints(flow.mel_per_token))
    waveform, state = source.run(frames, n_frames, first_frame, has_begun, is_last, hift_state)
    net.result(waveform, "waveform")
    net.result(state, "next.hift")
    return net


class _Flow:
    """Tokens to mel frames."""

    def __init__(self, net: Net, config: FlowConfig, weights: Weights, noise: np.ndarray) -> None:
        self.net = net
        self.config = config
        self.weights = weights
        self.noise = np.ascontiguousarray(np.asarray(noise, np.float32).T)
        prefix = "decoder.estimator."
        self.dit = {name[len(prefix) :]: w for name, w in weights.items() if name.startswith(prefix)}
        self.size = self.dit["proj_out.weight"].shape[1]
        self.layers = weights["modulation"].shape[1]

    def run(self, codes: str, prompt_codes: str, prompt_mel: str, speaker: str, start: str, is_last: str) -> str:
        """Mel frames of `codes` [batch, frames, mel], which begin at the absolute token `start` [batch, 1]."""
        net, config = self.net, self.config
        ratio, mel = config.mel_per_token, config.mel
        table = self.weights["input_embedding.weight"]
        tokens = net.op("Gather", [net.weight(table, real=False), net.concat([prompt_codes, codes], 1)], axis=0)
        no_context = net.where(is_last, net.ints([config.look_ahead]), net.ints([0]))
        n_known = net.sub(net.size(tokens, 1), net.sub(net.ints([config.look_ahead]), no_context))
        hidden = net.transpose(net.pad_axis(tokens, 0, no_context, 1))
        w = self.weights
        hidden = net.conv(hidden, w["pre_lookahead_layer.conv1.weight"], w["pre_lookahead_layer.conv1.bias"])
        hidden = net.op("LeakyRelu", [hidden], alpha=0.01)
        hidden = net.pad_axis(hidden, w["pre_lookahead_layer.conv2.weight"].shape[2] - 1, 0, 2)
        hidden = net.conv(hidden, w["pre_lookahead_layer.conv2.weight"], w["pre_lookahead_layer.conv2.bias"])
        hidden = net.add(net.transpose(hidden), net.cut(tokens, 0, n_known))
        hidden = net.unsqueeze(hidden, [2])
        hidden = net.reshape(net.concat([hidden] * ratio, 2), [0, -1, mel])
        n_total = net.size(hidden, 1)
        n_prompt = net.size(prompt_mel, 1)
        condition = net.pad_axis(prompt_mel, 0, net.sub(n_total, n_prompt), 1)

        length = net.op("ReduceL2", [speaker, net.ints([1])], keepdims=1)
        speaker = net.op("Div", [speaker, net.op("Max", [length, net.floats(1e-12)])])
        affine = net.op("Transpose", [net.weight(w["spk_embed_affine_layer.weight"], real=False)], perm=[1, 0])
        speaker = net.add(net.op("MatMul", [speaker, affine]), net.weight(w["spk_embed_affine_layer.bias"], real=False))

        # Absolute positions of all frames, and their places on the grid of blocks.
        index_prompt = net.unsqueeze(net.arange(n_prompt), [0])
        speech = net.unsqueeze(net.arange(net.sub(n_total, n_prompt)), [0])
        speech = net.add(speech, net.mul(start, net.ints(ratio)))
        rows = net.concat([net.size(codes, 0), net.ints([1])], 0)
        every_row = net.op("Expand", [net.ints([[0]]), rows])
        positions = net.concat([net.add(index_prompt, every_row), net.add(speech, n_prompt)], 1)
        grid = net.sub(net.sub(index_prompt, n_prompt), net.ints([BEFORE_ALL * ratio * config.block_tokens]))
        grid = net.concat([net.add(grid, every_row), speech], 1)
        block = net.op("Floor", [net.op("Div", [net.cast(grid, DOUBLE), net.double(ratio * config.block_tokens)])])
        block = net.cast(block, FLOAT)
        is_seen = net.op("LessOrEqual", [net.unsqueeze(block, [1]), net.unsqueeze(block, [2])])
        is_seen = net.op("Or", [is_seen, is_last])
        mask = net.where(is_seen, net.floats(0.0), net.floats(MASKED))
        mask = net.unsqueeze(net.concat([mask, mask], 0), [1])
        mask = net.to_real(mask)
        angles = net.mul(
            net.unsqueeze(net.cast(positions, FLOAT), [2]), net.weight(self.dit["rotary_embed.inv_freq"], real=False)
        )
        angles = net.concat([angles, angles], 0)
        turn = (net.op("Cos", [angles]), net.op("Sin", [angles]))
        noise = net.weight(self.noise, real=False)
        noise = net.op("Gather", [noise, net.op("Mod", [positions, net.ints(self.noise.shape[0])])], axis=0)

        # The input layer is linear: what does not change with the steps is computed once.
        weight, bias = self.dit["input_embed.proj.weight"], self.dit["input_embed.proj.bias"]
        by_noise, by_condition, by_text, by_speaker = (
            np.ascontiguousarray(weight[:, i * mel : (i + 1) * mel]) for i in range(4)
        )
        given = net.linear(net.concat([condition, hidden], 2), [np.concatenate([by_condition, by_text], 1)])
        given = net.add(given, net.unsqueeze(net.linear(speaker, [by_speaker]), [1]))
        given = net.concat([given, net.mul(given, net.floats(0.0))], 0)
        given = net.add(given, net.weight(bias, real=False))
        dt = net.tensor(np.asarray(self.weights["dt"], np.float32))
        with net.loop(config.steps, noise, ["batch", "all_frames", mel]) as loop:
            step = net.op("Gather", [dt, loop.round], axis=0)
            projected = net.linear(loop.value, [by_noise])
            velocity = self._estimate(net.add(net.concat([projected] * 2, 0), given), loop.round, mask, turn)
            guided, free = net.op("Split", [velocity], outputs=2, axis=0, num_outputs=2)
            velocity = net.sub(
                net.mul(guided, net.floats(1.0 + config.guidance)), net.mul(free, net.floats(config.guidance))
            )
            loop.next = net.add(loop.value, net.mul(step, velocity))
        return net.cut(loop.result, n_prompt)

    def _estimate(self, hidden: str, step: str, mask: str, turn: tuple[str, str]) -> str:
        """The velocity [2 * batch, frames, mel] at a step: the DiT."""
        net, dit = self.net, self.dit
        hidden = net.add(hidden, self._place(hidden))
        modulation = np.asarray(self.weights["modulation"], np.float32)
        for i in range(self.layers):
            name = f"transformer_blocks.{i}"
            # Shift, scale and gate of the attention, then of the network.
            now = net.op("Gather", [self._table(("modulation", i), modulation[:, i]), step], axis=0)
            now = [
                net.op("Squeeze", [part, net.ints([0])])
                for part in net.op("Split", [now], outputs=6, axis=0, num_outputs=6)
            ]
            normed = net.op("LayerNormalization", [hidden, now[1], now[0]], axis=-1, epsilon=1e-6)
            hidden = net.add(hidden, net.mul(now[2], self._attention(name + ".attn", normed, mask, turn)))
            normed = net.op("LayerNormalization", [hidden, now[4], now[3]], axis=-1, epsilon=1e-6)
            inner = net.linear(
                normed, [dit[f"{name}.ff.ff.0.0.weight"]], [dit[f"{name}.ff.ff.0.0.bias"]], cast_back=False
            )
            inner = net.op("FastGelu", [inner], domain="com.microsoft")
            inner = net.linear(inner, [dit[f"{name}.ff.ff.2.weight"]], [dit[f"{name}.ff.ff.2.bias"]])
            hidden = net.add(hidden, net.mul(now[5], inner))
        final = net.op("Gather", [self._table(("final",), self.weights["final"]), step], axis=0)
        scale, shift = [
            net.op("Squeeze", [part, net.ints([0])])
            for part in net.op("Split", [final], outputs=2, axis=0, num_outputs=2)
        ]
        hidden = net.op("LayerNormalization", [hidden, scale, shift], axis=-1, epsilon=1e-6)
        return net.linear(hidden, [dit["proj_out.weight"]], [dit["proj_out.bias"]])

    def _table(self, key: tuple, array: np.ndarray) -> str:
        """Shifts and scales by the step; a scale is applied as 1 + scale."""
        table = np.array(array, np.float32)
        for scale in (1, 4) if key[0] == "modulation" else (0,):
            table[:, scale] += 1.0
        return self.net.tensor(table)

    def _place(self, hidden: str) -> str:
        """What a frame learns of those before it: two causal grouped convolutions."""
        net = self.net
        value = net.transpose(net.to_real(hidden))
        for name in ("conv1", "conv2"):
            weight = self.dit[f"input_embed.conv_pos_embed.{name}.0.weight"]
            value = net.pad_axis(value, weight.shape[2] - 1, 0, 2)
            groups = self.size // weight.shape[1]
            bias = self.dit[f"input_embed.conv_pos_embed.{name}.0.bias"]
            value = net.conv(value, weight, bias, real=True, group=groups)
            value = net.mul(value, net.op("Tanh", [net.op("Softplus", [value])]))
        return net.to_float(net.transpose(value))

    def _attention(self, name: str, normed: str, mask: str, turn: tuple[str, str]) -> str:
        net, dit, heads = self.net, self.dit, self.config.heads
        size = dit[f"{name}.to_q.weight"].shape[0]
        head_size = size // heads
        # The makers rotate the first head only, in neighbouring pairs. In another order of its rows the pairs are halves.
        order = np.concatenate([np.arange(0, head_size, 2), np.arange(1, head_size, 2), np.arange(head_size, size)])
        matrices = [self._reordered(f"{name}.to_q.weight", order), self._reordered(f"{name}.to_k.weight", order)]
        biases = [self._reordered(f"{name}.to_q.bias", order), self._reordered(f"{name}.to_k.bias", order)]
        joined = net.linear(
            normed, [*matrices, dit[f"{name}.to_v.weight"]], [*biases, dit[f"{name}.to_v.bias"]], cast_back=False
        )
        half = head_size // 2
        sizes = 2 * [half, half, size - head_size] + [size]
        q1, q2, q3, k1, k2, k3, value = net.op("Split", [joined, net.ints(sizes)], outputs=7, axis=-1)
        query = net.concat([*self._turned(q1, q2, turn), q3], 2)
        key = net.concat([*self._turned(k1, k2, turn), k3], 2)
        attended = net.op(
            "MultiHeadAttention", [query, key, value, "", "", mask], domain="com.microsoft", num_heads=heads
        )
        return net.linear(attended, [dit[f"{name}.to_out.0.weight"]], [dit[f"{name}.to_out.0.bias"]])

    def _turned(self, first: str, second: str, turn: tuple[str, str]) -> tuple[str, str]:
        net, (cos, sin) = self.net, turn
        first, second = net.to_float(first), net.to_float(second)
        turned = (
            net.sub(net.mul(first, cos), net.mul(second, sin)),
            net.add(net.mul(second, cos), net.mul(first, sin)),
        )
        return net.to_real(turned[0]), net.to_real(turned[1])

    def _reordered(self, name: str, order: np.ndarray) -> np.ndarray:
        key = f"{name} reordered"
        if key not in self.dit:
            self.dit[key] = np.asarray(self.dit[name])[order]
        return self.dit[key]


class _Hift:
    """Mel frames to sound. Every value is about mel frames from the chunk's first one on: `n_frames` of the chunk and one more,
    which the next run computes again. State is taken where the chunk ends."""

    def __init__(self, net: Net, config: HiftConfig, weights: Weights, noise: np.ndarray) -> None:
        self.net = net
        self.config = config
        self.weights = weights
        self.noise = np.asarray(noise, np.float32)
        self.sizes: list[int] = []
        self.taken: list[str] = []
        self.kept: list[str] = []

    def run_for_size(self) -> int:
        """Numbers of the state, found by a run without inputs."""
        names = [self.net.input(name, FLOAT, []) for name in ("frames", "n", "first", "begun", "last", "state")]
        self.run(*names)
        return sum(self.sizes)

    def run(
        self, frames: str, n_frames: str, first_frame: str, has_begun: str, is_last: str, state: str
    ) -> tuple[str, str]:
        """Sound [batch, 1, samples] of the first `n_frames` of `frames` [batch, n_frames + 8, mel], and the next state."""
        net = self.net
        at = len(net.nodes)
        self.n_frames, self.has_begun, self.is_last = n_frames, has_begun, is_last
        samples = self._source(frames, first_frame)
        spectrum = self._spectrum(samples)
        x = self._trunk(frames, spectrum)
        sound = self._inverse(x)
        # The state is cut into its parts before all that reads them.
        behind, net.nodes = net.nodes[at:], net.nodes[:at]
        net.op("Split", [state, net.ints(self.sizes)], outputs=self.taken, axis=1)
        net.nodes.extend(behind)
        return sound, net.concat(self.kept, 1)

    def _state(self, shape: tuple[int, ...]) -> str:
        """A part of the state, [batch, *shape]; `_keep` must follow for each, in the same order."""
        self.sizes.append(int(np.prod(shape)))
        self.taken.append(self.net.new_name("state"))
        return self.net.reshape(self.taken[-1], [0, *shape])

    def _keep(self, value: str) -> None:
        self.kept.append(self.net.reshape(value, [0, self.sizes[len(self.kept)]]))

    def _count(self, per_frame: int, more: int = 0) -> str:
        """Numbers of the chunk where a mel frame has so many, and some more."""
        count = self.net.mul(self.n_frames, self.net.ints([per_frame]))
        return self.net.add(count, self.net.ints([more])) if more else count

    def _causal(self, name: str, value: str, per_frame: int, dilation: int = 1) -> str:
        """A causal convolution of `value` [batch, channels, time], with so many values a mel frame."""
        net = self.net
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        reach = (weight.shape[2] - 1) * dilation
        if reach:
            value = net.concat([self._state((weight.shape[1], reach)), value], 2)
            self._keep(net.cut(value, self._count(per_frame), self._count(per_frame, reach), axis=2))
        return net.conv(value, weight, bias, dilations=[dilation])

    def _source(self, frames: str, first_frame: str) -> str:
        """The source's samples of `n_frames + 1` frames, with 8 before and behind."""
        net, config, w = self.net, self.config, self.weights
        hop = config.hop_samples
        # The pitch, in double precision as the makers compute it: its errors add up in the phase.
        value = net.cast(net.cut(frames, 0, self._count(1, 5)), DOUBLE)
        for i in range(0, 10, 2):
            name = f"f0_predictor.condnet.{i}"
            kernel = np.asarray(w[f"{name}.weight"], np.float64)
            out, channels, reach = kernel.shape
            length = self._count(1, 2)
            if i:
                value = net.concat([net.cast(self._state((reach - 1, channels)), DOUBLE), value], 1)
                self._keep(net.cast(net.cut(value, self._count(1), self._count(1, reach - 1)), FLOAT))
            unfolded = [net.cut(value, j, net.add(length, net.ints([j]))) for j in range(reach)]
            matrix = kernel.transpose(2, 1, 0).reshape(reach * channels, out)
            value = net.op("MatMul", [net.concat(unfolded, 2), net.double(matrix)])
            value = net.add(value, net.double(w[f"{name}.bias"]))
            # ELU.
            low = net.sub(net.op("Exp", [net.op("Min", [value, net.double(0.0)])]), net.double(1.0))
            value = net.add(net.op("Max", [value, net.double(0.0)]), low)
        value = net.op("MatMul", [value, net.double(np.asarray(w["f0_predictor.classifier.weight"]).T)])
        value = net.op("Abs", [net.add(value, net.double(w["f0_predictor.classifier.bias"]))])
        pitch = net.cast(value, FLOAT)

        # Turns of each harmonic at each frame, summed up since the beginning of the speech: as two numbers, to lose nothing.
        n_harmonics = np.asarray(w["m_source.l_linear.weight"]).shape[1]
        turns = net.mul(pitch, net.floats(np.arange(1, n_harmonics + 1, dtype=np.float32)))
        turns = net.op("Div", [turns, net.floats(float(config.rate_hz))])
        turns = net.sub(turns, net.op("Floor", [turns]))
        before = self._state((2, n_harmonics))
        before = net.op("ReduceSum", [net.cast(before, DOUBLE), net.ints([1])], keepdims=1)
        summed = net.add(net.op("CumSum", [net.cast(turns, DOUBLE), net.ints(1)]), before)
        now = net.cut(summed, self._count(1, -1), self._count(1))
        high = net.cast(now, FLOAT)
        low = net.cast(net.sub(now, net.cast(high, DOUBLE)), FLOAT)
        self._keep(net.concat([high, low], 1))
        phase = net.mul(net.mul(net.cast(summed, FLOAT), net.floats(2.0)), net.floats(np.float32(np.pi)))
        sines = net.mul(net.op("Sin", [net.mul(phase, net.floats(float(hop)))]), net.floats(config.sine_amplitude))
        is_voiced = net.op("Greater", [pitch, net.floats(config.voiced_hz)])
        sines = net.where(is_voiced, sines, net.floats(0.0))
        mixed = np.asarray(w["m_source.l_linear.weight"], np.float32)
        level = net.add(net.op("MatMul", [sines, net.floats(mixed.T)]), net.floats(w["m_source.l_linear.bias"]))
        amplitude = net.where(is_voiced, net.floats(config.noise), net.floats(config.sine_amplitude / 3))
        noise = (self.noise @ mixed[0]).reshape(-1, hop)
        place = net.add(first_frame, net.unsqueeze(net.arange(self._count(1, 2)), [0]))
        place = net.op("Mod", [place, net.ints(noise.shape[0])])
        noisy = net.op("Gather", [net.weight(noise, real=False), place], axis=0)
        samples = net.op("Tanh", [net.add(level, net.mul(amplitude, noisy))])
        samples = net.reshape(samples, [0, -1])

        # The end of the speech is mirrored, and so is its beginning: what a centred Fourier transform does.
        edge = config.n_fft // 2
        index = net.arange(self._count(hop, hop + edge))
        end = self._count(hop)
        mirrored = net.op("Max", [net.sub(net.sub(net.add(end, end), net.ints([2])), index), net.ints([0])])
        is_behind = net.op("And", [net.op("GreaterOrEqual", [index, end]), self.is_last])
        samples = net.op("Gather", [samples, net.where(is_behind, mirrored, index)], axis=1)
        mirror = net.op("Gather", [samples, net.ints(np.arange(edge, 0, -1))], axis=1)
        before = net.where(self.has_begun, self._state((edge,)), mirror)
        self._keep(net.cut(samples, self._count(hop, -edge), end))
        return net.concat([before, samples], 1)

    def _spectrum(self, samples: str) -> str:
        """The source's Fourier transform with 14 columns before the chunk, [batch, 18, time]."""
        net, config = self.net, self.config
        n_fft = config.n_fft
        window = np.hanning(n_fft + 1)[:-1]
        angle = 2 * np.pi * np.outer(np.arange(n_fft // 2 + 1), np.arange(n_fft)) / n_fft
        kernel = np.concatenate([np.cos(angle) * window, -np.sin(angle) * window])[:, None, :].astype(np.float32)
        spectrum = net.conv(net.unsqueeze(samples, [1]), kernel, strides=[config.hop])
        reach = self._strides()[0] - 1
        spectrum = net.concat([self._state((n_fft + 2, reach)), spectrum], 2)
        per_frame = int(np.prod(config.upsample))
        self._keep(net.cut(spectrum, self._count(per_frame), self._count(per_frame, reach), axis=2))
        return spectrum

    def _strides(self) -> list[int]:
        """Columns of the spectrum for one value of each stage: 15, 3, 1."""
        return [int(np.prod(self.config.upsample[i + 1 :])) for i in range(len(self.config.upsample))]

    def _trunk(self, frames: str, spectrum: str) -> str:
        net, config, w = self.net, self.config, self.weights
        x = net.transpose(net.cut(frames, 0, self._count(1, 5)))
        x = net.conv(x, w["conv_pre.weight"], w["conv_pre.bias"])
        n_kernels, per_frame = len(config.resblock_kernels), 1
        strides = self._strides()
        for i, factor in enumerate(config.upsample):
            x = net.op("LeakyRelu", [x], alpha=config.slope)
            x = net.op("Expand", [net.unsqueeze(x, [3]), net.ints([1, 1, 1, factor])])
            x = net.reshape(x, [0, w[f"ups.{i}.weight"].shape[1], -1])
            per_frame *= factor
            x = self._causal(f"ups.{i}", x, per_frame)
            if i + 1 == len(config.upsample):
                # One value late from here on; the first one is the second's.
                before = net.where(
                    net.unsqueeze(self.has_begun, [2]),
                    self._state((w[f"ups.{i}.weight"].shape[0], 1)),
                    net.cut(x, 1, 2, axis=2),
                )
                self._keep(net.cut(x, self._count(per_frame, -1), self._count(per_frame), axis=2))
                x = net.concat([before, net.cut(x, 0, -1, axis=2)], 2)
            name = f"source_downs.{i}"
            strided = strides[i]
            if strided > 1:
                source = net.cut(spectrum, strides[0] - strided, LAST, axis=2)
            else:
                source = net.cut(spectrum, strides[0] - 1, -1, axis=2)
            source = net.conv(source, w[f"{name}.weight"], w[f"{name}.bias"], strides=[strided])
            x = net.add(x, self._resblock(f"source_resblocks.{i}", source, per_frame))
            parts = [self._resblock(f"resblocks.{i * n_kernels + j}", x, per_frame) for j in range(n_kernels)]
            x = parts[0]
            for part in parts[1:]:
                x = net.add(x, part)
            x = net.op("Div", [x, net.floats(float(n_kernels))])
        x = net.op("LeakyRelu", [x], alpha=0.01)
        return self._causal("conv_post", x, per_frame)

    def _resblock(self, name: str, x: str, per_frame: int) -> str:
        net = self.net
        for i, dilation in enumerate(self.config.dilations):
            inner = self._snake(f"{name}.activations1.{i}", x)
            inner = self._causal(f"{name}.convs1.{i}", inner, per_frame, dilation)
            inner = self._snake(f"{name}.activations2.{i}", inner)
            x = net.add(self._causal(f"{name}.convs2.{i}", inner, per_frame), x)
        return x

    def _snake(self, name: str, x: str) -> str:
        net = self.net
        alpha = np.asarray(self.weights[f"{name}.alpha"], np.float32)[:, None]
        sine = net.op("Sin", [net.mul(x, net.floats(alpha))])
        scaled = net.mul(net.mul(sine, sine), net.floats((1.0 / (alpha + np.float32(1e-9))).astype(np.float32)))
        return net.add(x, scaled)

    def _inverse(self, x: str) -> str:
        """The inverse Fourier transform: overlapping windows, of which one reaches into the next chunk."""
        net, config = self.net, self.config
        n_fft, hop, bins = config.n_fft, config.hop, config.n_fft // 2 + 1
        per_frame = int(np.prod(config.upsample))
        x = net.cut(x, 0, self._count(per_frame, 2), axis=2)
        size, angle = net.op("Split", [x], outputs=2, axis=1, num_outputs=2)
        size = net.op("Min", [net.op("Exp", [size]), net.floats(100.0)])
        angle = net.op("Sin", [angle])
        spectrum = net.concat([net.mul(size, net.op("Cos", [angle])), net.mul(size, net.op("Sin", [angle]))], 1)
        # The last column lies behind the end of the speech.
        index = net.arange(self._count(per_frame, 2))
        is_behind = net.op("And", [net.op("Greater", [index, self._count(per_frame)]), self.is_last])
        spectrum = net.where(is_behind, net.floats(0.0), spectrum)

        window = np.hanning(n_fft + 1)[:-1]
        turn = 2 * np.pi * np.outer(np.arange(bins), np.arange(n_fft)) / n_fft
        share = np.full((bins, 1), 2.0)
        share[0] = share[-1] = 1.0
        kernel = np.concatenate([share * np.cos(turn), -share * np.sin(turn)]) / n_fft * window
        # Squared windows add up to the same everywhere but at both ends of the speech.
        total = (window**2).reshape(-1, hop).sum(0)[0]
        kernel = (kernel / total).astype(np.float32)
        sound = net.op("ConvTranspose", [spectrum, net.weight(kernel[:, None, :], real=False)], strides=[hop])
        sound = net.cut(sound, n_fft // 2, self._count(config.hop_samples, n_fft // 2), axis=2)
        reaching = self._state((1, hop))
        last = net.cut(spectrum, self._count(per_frame, -1), self._count(per_frame), axis=2)
        self._keep(net.op("MatMul", [net.transpose(last), net.floats(kernel[:, -hop:])]))
        head = net.add(net.cut(sound, 0, hop, axis=2), reaching)
        at_first = net.floats((total / (total - window[-hop:] ** 2)).astype(np.float32))
        head = net.where(net.unsqueeze(self.has_begun, [2]), head, net.mul(head, at_first))
        tail = net.cut(sound, -hop, LAST, axis=2)
        at_last = net.floats((total / (total - window[:hop] ** 2)).astype(np.float32))
        tail = net.where(self.is_last, net.mul(tail, at_last), tail)
        sound = net.concat([head, net.cut(sound, hop, -hop, axis=2), tail], 2)
        return net.op("Clip", [sound, net.floats(-config.limit), net.floats(config.limit)])


def flow_weights(state: Weights, steps: int) -> dict[str, np.ndarray]:
    """Weights of the flow for `build`, of the makers' state dictionary: with tables of what depends on the Euler step only.
    Nothing of a layer norm's own network is left."""
    import torch
    from torch.nn import functional

    # The makers' points in time: close together at the beginning, and summed up in float32.
    points = 1 - torch.cos(torch.linspace(0, 1, steps + 1) * 0.5 * torch.pi)
    now, span = points[0], points[1] - points[0]
    times, spans = [], []
    for step in range(1, steps + 1):
        times.append(now)
        spans.append(span)
        now = now + span
        if step < steps:
            span = points[step + 1] - now
    prefix = "decoder.estimator."
    dit = {name[len(prefix) :]: torch.from_numpy(np.asarray(w)) for name, w in state.items() if name.startswith(prefix)}
    half = dit["time_embed.time_mlp.0.weight"].shape[1] // 2
    frequencies = torch.exp(torch.arange(half).float() * -(np.log(10000) / (half - 1)))
    angles = 1000 * torch.stack(times)[:, None] * frequencies[None]
    embedding = torch.cat([angles.sin(), angles.cos()], -1)
    embedding = functional.linear(embedding, dit["time_embed.time_mlp.0.weight"], dit["time_embed.time_mlp.0.bias"])
    embedding = functional.linear(
        functional.silu(embedding), dit["time_embed.time_mlp.2.weight"], dit["time_embed.time_mlp.2.bias"]
    )
    embedding = functional.silu(embedding)

    def table(name: str, parts: int) -> np.ndarray:
        values = functional.linear(embedding, dit[f"{name}.linear.weight"], dit[f"{name}.linear.bias"])
        return values.reshape(steps, parts, -1).numpy()

    layers = 1 + max(int(name.split(".")[1]) for name in dit if name.startswith("transformer_blocks."))
    with torch.no_grad():
        weights = {
            "modulation": np.stack([table(f"transformer_blocks.{i}.attn_norm", 6) for i in range(layers)], 1),
            "final": table("norm_out", 2),
            "dt": torch.stack(spans).numpy(),
        }
    left_out = ("time_embed.", ".attn_norm.", ".norm_out.")
    weights.update({k: np.asarray(v) for k, v in state.items() if not any(part in k for part in left_out)})
    return weights


def hift_weights(state: Weights) -> dict[str, np.ndarray]:
    """Weights of HiFT for `build`, of the makers' state dictionary: weight norms multiplied out, the pitch's in float64."""
    state = {name.removeprefix("generator."): np.asarray(w) for name, w in state.items()}
    weights = {}
    for name, value in state.items():
        for size_name, direction_name in (
            (".parametrizations.weight.original0", ".parametrizations.weight.original1"),
            (".weight_g", ".weight_v"),
        ):
            if name.endswith(size_name):
                stem = name.removesuffix(size_name)
                direction = state[stem + direction_name].astype(np.float64)
                norm = np.sqrt((direction**2).sum(tuple(range(1, direction.ndim)), keepdims=True))
                product = direction * (value / norm)
                weights[f"{stem}.weight"] = product if stem.startswith("f0_predictor.") else product.astype(np.float32)
                break
            if name.endswith(direction_name):
                break
        else:
            weights[name] = value
    return weights
