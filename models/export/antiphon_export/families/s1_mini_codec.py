"""The codec of OpenAudio S1-mini as ONNX graphs: `condition` (recording to codes) and `vocode` (codes to sound, with
state).

The family module uses it. Input is the state of the makers' codec as NumPy arrays; the makers' code is not needed. The
module never reads a checkpoint and never runs a graph.

The codec is causal throughout: every convolution looks back only, and its transformers attend to a window of past
columns. Streaming is therefore exact. `vocode` keeps

    state.conv [B, n]       the last inputs of each convolution, one behind another
    state.keys [B, layers, heads, window - 1, size]         of the window of the transformer
    state.values            of the same shape
    state.position [B, 1]   frames so far: RoPE is by absolute position, and it says which keys are valid

and gives for each chunk what the whole decode gives there. RoPE is tabulated in bfloat16 as the makers do, so that
positions matter although attention is relative.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Mapping, Sequence

import numpy as np
from onnx import TensorProto

from ..errors import ExportError
from ..transformer import GraphBuilder

NORM_EPS = 1e-5
CONVNEXT_EPS = 1e-6
ROPE_BASE = 10000.0
RESIDUAL_DILATIONS = (1, 3, 9)
ENCODER_WINDOW = 512


@dataclass(frozen=True)
class CodecConfig:
    """What the state of the codec does not tell by its shapes."""

    sample_rate: int = 44100
    head_size: int = 64
    window: int = 128
    """Columns that the quantizer's transformers attend to, the column itself included."""
    encoder_window: int = ENCODER_WINDOW
    positions: int = 8192
    """Columns that RoPE is tabulated for: the longest speech in frames, the longest recording in columns of the
    encoder."""


def rounded_rope(size: int, base: float, positions: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines [positions, size / 2] in float32, rounded to bfloat16 as the makers store them."""
    import torch

    exponents = torch.arange(0, size, 2).float() / size
    angles = torch.outer(torch.arange(positions), 1.0 / (base**exponents))
    return tuple(part(angles).to(torch.bfloat16).float().numpy() for part in (torch.cos, torch.sin))


class CodecState:
    """The state of the codec: NumPy arrays by name, weight normalization folded."""

    def __init__(self, state: Mapping[str, np.ndarray], config: CodecConfig) -> None:
        self.arrays = state
        self.config = config
        self._folded: dict[str, np.ndarray] = {}
        wanted = ("decoder.model.0.conv", "encoder.block.0.conv", "quantizer.semantic_quantizer.quantizers.0.in_proj")
        for name in wanted:
            if not self.has_weight(name):
                raise ExportError(
                    f"the codec has no {name}: this is not the codec of OpenAudio S1-mini (codec.pth of the checkpoint)"
                )
        for part in ("pre_module", "post_module"):
            if self.has_weight(f"quantizer.{part}.input_proj") or self.has_weight(f"quantizer.{part}.look_ahead_conv"):
                raise ExportError(f"the codec's {part} has projections that S1-mini does not have: another codec")
        self.decoder_strides = self._strides("decoder.model.{i}.block.1.conv")
        self.encoder_strides = self._strides("encoder.block.{i}.block.4.conv")
        self.frame_strides = [
            self.stride(f"quantizer.downsample.{i}.0.conv", 1)
            for i in range(self._count(r"quantizer\.downsample\.(\d+)\.0\.conv"))
        ]
        self.hop = int(np.prod(self.decoder_strides))
        taken = int(np.prod(self.encoder_strides))
        if self.hop != taken:
            raise ExportError(f"the codec's decoder makes {self.hop} samples of a column, its encoder takes {taken}")
        self.samples_per_frame = self.hop * int(np.prod(self.frame_strides))
        self.semantic_size = self["quantizer.semantic_quantizer.quantizers.0.codebook.weight"].shape[0]
        self.residuals = self._count(r"quantizer\.quantizer\.quantizers\.(\d+)\.codebook")
        self.residual_size = self["quantizer.quantizer.quantizers.0.codebook.weight"].shape[0]
        self.codebooks = 1 + self.residuals

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.arrays:
            raise ExportError(
                f"the codec has no {name}: this is not the codec of OpenAudio S1-mini, or the file is damaged"
            )
        return self.arrays[name]

    def has_weight(self, name: str) -> bool:
        return any(
            f"{name}.{end}" in self.arrays for end in ("weight", "weight_v", "parametrizations.weight.original1")
        )

    def weight(self, name: str) -> np.ndarray:
        """The weight of a layer, of the same object at each call: the direction scaled to the length that its gain
        says."""
        if name not in self._folded:
            if f"{name}.weight" in self.arrays:
                self._folded[name] = self.arrays[f"{name}.weight"]
            else:
                is_new = f"{name}.parametrizations.weight.original1" in self.arrays
                gain, direction = (
                    ("parametrizations.weight.original0", "parametrizations.weight.original1")
                    if is_new
                    else ("weight_g", "weight_v")
                )
                direction, gain = self[f"{name}.{direction}"], self[f"{name}.{gain}"]
                axes = tuple(axis for axis in range(direction.ndim) if gain.shape[axis] == 1)
                length = np.sqrt(np.sum(np.square(direction, dtype=np.float64), axis=axes, keepdims=True))
                self._folded[name] = (direction * (gain / length)).astype(np.float32)
        return self._folded[name]

    def bias(self, name: str) -> np.ndarray:
        return self[f"{name}.bias"]

    def stride(self, name: str, share: int) -> int:
        kernel = self.weight(name).shape[2]
        if kernel % share:
            raise ExportError(f"{name} of the codec has a kernel of {kernel}: another codec")
        return kernel // share

    def _count(self, pattern: str) -> int:
        found = {int(match.group(1)) for name in self.arrays if (match := re.match(pattern, name))}
        return max(found) + 1 if found else 0

    def _strides(self, name: str) -> list[int]:
        """Strides of the blocks 1, 2, ... of the encoder or decoder: half the kernels."""
        strides = []
        while self.has_weight(block := name.format(i=len(strides) + 1)):
            strides.append(self.stride(block, 2))
        return strides


def build_vocode(state: CodecState, precision: str = "fp32") -> GraphBuilder:
    """The graph `vocode`: codes [B, N, K] of a chunk and the state before it, to its sound and the state behind it."""
    graph = GraphBuilder("vocode", precision)
    codes = graph.input("codes", TensorProto.INT64, ["batch", "frames", state.codebooks])
    layers = _Layers(graph, state)
    stream = _Stream(graph)
    value = _dequantized(graph, state, codes)
    value = layers.windowed(value, "quantizer.post_module", state.config.window, stream)
    value = graph.op("Transpose", [value], perm=[0, 2, 1])
    for i in range(len(state.frame_strides)):
        value = layers.transposed(value, f"quantizer.upsample.{i}.0.conv", stream)
        value = layers.convnext(value, f"quantizer.upsample.{i}.1", stream)
    value = layers.conv(value, "decoder.model.0.conv", stream)
    blocks = len(state.decoder_strides)
    for i in range(1, blocks + 1):
        value = layers.snake(value, f"decoder.model.{i}.block.0")
        value = layers.transposed(value, f"decoder.model.{i}.block.1.conv", stream)
        for j, dilation in enumerate(RESIDUAL_DILATIONS, 2):
            value = layers.residual(value, f"decoder.model.{i}.block.{j}", dilation, stream)
    value = layers.snake(value, f"decoder.model.{blocks + 1}")
    value = layers.conv(value, f"decoder.model.{blocks + 2}.conv", stream)
    graph.output("waveform", TensorProto.FLOAT, ["batch", 1, "samples"])
    graph.op("Tanh", [value], outputs=["waveform"])
    stream.finish()
    return graph


def build_condition(state: CodecState, precision: str = "fp32") -> GraphBuilder:
    """The graph `condition`: a recording [1, N] to codes [1, frames, K]."""
    graph = GraphBuilder("condition", precision)
    audio = graph.input("audio", TensorProto.FLOAT, [1, "samples"])
    layers = _Layers(graph, state)
    # Silence behind it, to whole frames.
    length = graph.op("Gather", [graph.op("Shape", [audio]), graph.ints([1])], axis=0)
    negative = graph.op("Neg", [length])
    missing = graph.op("Mod", [negative, graph.ints([state.samples_per_frame])])
    value = graph.op("Pad", [audio, graph.op("Concat", [graph.ints([0, 0, 0]), missing], axis=0)])
    value = graph.op("Unsqueeze", [value, graph.ints([1])])
    value = layers.conv(value, "encoder.block.0.conv")
    blocks = len(state.encoder_strides)
    for i, stride in enumerate(state.encoder_strides, 1):
        for j, dilation in enumerate(RESIDUAL_DILATIONS):
            value = layers.residual(value, f"encoder.block.{i}.block.{j}", dilation)
        value = layers.snake(value, f"encoder.block.{i}.block.3")
        value = layers.conv(value, f"encoder.block.{i}.block.4.conv", stride=stride)
        if f"encoder.block.{i}.block.5.norm.weight" in state.arrays:
            value = graph.op("Transpose", [value], perm=[0, 2, 1])
            value = layers.windowed(value, f"encoder.block.{i}.block.5", state.config.encoder_window)
            value = graph.op("Transpose", [value], perm=[0, 2, 1])
    value = layers.snake(value, f"encoder.block.{blocks + 1}")
    value = layers.conv(value, f"encoder.block.{blocks + 2}.conv")
    for i, stride in enumerate(state.frame_strides):
        value = layers.conv(value, f"quantizer.downsample.{i}.0.conv", stride=stride)
        value = layers.convnext(value, f"quantizer.downsample.{i}.1")
    value = graph.op("Transpose", [value], perm=[0, 2, 1])
    value = layers.windowed(value, "quantizer.pre_module", state.config.window)
    names = ["quantizer.semantic_quantizer.quantizers.0"]
    names += [f"quantizer.quantizer.quantizers.{i}" for i in range(state.residuals)]
    codes = []
    for i, name in enumerate(names):
        latent = layers.projected(value, f"{name}.in_proj", exact=True)
        code = _nearest(graph, latent, state[f"{name}.codebook.weight"])
        codes.append(graph.op("Unsqueeze", [code, graph.ints([2])]))
        if i + 1 < len(names):
            chosen = graph.op("Gather", [graph.weight(state[f"{name}.codebook.weight"], real=False), code], axis=0)
            value = graph.op("Sub", [value, layers.projected(chosen, f"{name}.out_proj", exact=True)])
    graph.output("codes", TensorProto.INT64, [1, "frames", state.codebooks])
    graph.op("Concat", codes, outputs=["codes"], axis=2)
    return graph


def _nearest(graph: GraphBuilder, latent: str, codebook: np.ndarray) -> str:
    """The code of the nearest row of the codebook, both scaled to length 1, as i64 [B, T]."""
    lengths = np.maximum(np.sqrt(np.sum(np.square(codebook), axis=1, keepdims=True)), 1e-12)
    unit = np.ascontiguousarray((codebook / lengths).astype(np.float32))
    length = graph.op("ReduceL2", [latent, graph.ints([2])], keepdims=1)
    latent = graph.op("Div", [latent, graph.op("Max", [length, graph.floats(1e-12)])])
    dots = graph.op("MatMul", [latent, graph.tensor(np.ascontiguousarray(unit.T))])
    squares = np.sum(np.square(unit), axis=1)
    nearness = graph.op("Sub", [graph.op("Mul", [dots, graph.floats(2.0)]), graph.tensor(squares)])
    return graph.op("ArgMax", [nearness], axis=2, keepdims=0)


def _dequantized(graph: GraphBuilder, state: CodecState, codes: str) -> str:
    """Latents [B, N, D] of the codes: rows of the codebooks side by side, and one matrix of their projections side by
    side."""
    names = ["quantizer.semantic_quantizer.quantizers.0"]
    names += [f"quantizer.quantizer.quantizers.{i}" for i in range(state.residuals)]
    rows, matrices, bias = [], [], 0.0
    for i, name in enumerate(names):
        code = graph.op("Gather", [codes, graph.ints(i)], axis=2)
        largest = state[f"{name}.codebook.weight"].shape[0] - 1
        code = graph.op("Clip", [code, graph.ints(0), graph.ints(largest)])
        rows.append(graph.lookup(state[f"{name}.codebook.weight"], code))
        matrices.append(state.weight(f"{name}.out_proj")[:, :, 0])
        bias = bias + state.bias(f"{name}.out_proj")
    joined = graph.op("Concat", rows, axis=2)
    return graph.linear(
        joined, [np.ascontiguousarray(np.concatenate(matrices, axis=1))], [np.asarray(bias, np.float32)]
    )


class _Stream:
    """The state of a streaming graph. Convolutions take and leave their last inputs in one tensor, in the order of
    their calls."""

    def __init__(self, graph: GraphBuilder) -> None:
        self.graph = graph
        self.sizes: list[int] = []
        self.befores: list[str] = []
        self.behinds: list[str] = []

    def before(self, channels: int, columns: int) -> str:
        """The last `columns` inputs of the next convolution, [B, channels, columns]."""
        self.sizes.append(channels * columns)
        flat = self.graph.new_name("before")
        self.befores.append(flat)
        return self.graph.op("Reshape", [flat, self.graph.ints([-1, channels, columns])])

    def behind(self, joined: str, columns: int) -> None:
        """Keeps the last `columns` of what that convolution got."""
        graph = self.graph
        kept = graph.op(
            "Slice", [joined, graph.ints([-columns]), graph.ints([np.iinfo(np.int64).max]), graph.ints([2])]
        )
        self.behinds.append(graph.op("Reshape", [kept, graph.ints([0, -1])]))

    def finish(self) -> None:
        """Adds the ports and the split of the state of the convolutions, which has to come before all its uses."""
        graph, total = self.graph, int(sum(self.sizes))
        graph.input("state.conv", TensorProto.FLOAT, ["batch", total])
        graph.output("next.conv", TensorProto.FLOAT, ["batch", total])
        graph.op("Concat", self.behinds, outputs=["next.conv"], axis=1)
        graph.op("Split", ["state.conv", graph.ints(self.sizes)], outputs=self.befores, axis=1)
        graph.nodes.insert(0, graph.nodes.pop())


class _Layers:
    """Layers of the codec. Values are [B, channels, columns], those of transformers [B, columns, channels]. With a
    stream a layer continues where the last chunk ended, otherwise silence comes before it."""

    def __init__(self, graph: GraphBuilder, state: CodecState) -> None:
        self.graph = graph
        self.state = state
        self._folded: dict[str, np.ndarray] = {}

    def conv(self, value: str, name: str, stream: _Stream | None = None, stride: int = 1, dilation: int = 1) -> str:
        graph, weight = self.graph, self.state.weight(name)
        channels, kernel = weight.shape[1], weight.shape[2]
        groups = 1
        if name.endswith("dwconv.conv"):
            groups, channels = weight.shape[0], weight.shape[0]
        padding = (kernel - 1) * dilation + 1 - stride
        if stream is not None and padding:
            value = graph.op("Concat", [stream.before(channels, padding), value], axis=2)
            stream.behind(value, padding)
            padding = 0
        result = graph.op(
            "Conv",
            [graph.to_real(value), graph.weight(weight), graph.weight(self.state.bias(name))],
            kernel_shape=[kernel],
            strides=[stride],
            dilations=[dilation],
            pads=[padding, 0],
            group=groups,
        )
        return graph.to_float(result)

    def transposed(self, value: str, name: str, stream: _Stream) -> str:
        """Upsampling. The kernel is as long as the stride, or twice as long: then a column's sound depends on the
        column before it too, which the stream keeps."""
        graph, weight = self.graph, self.state.weight(name)
        channels, kernel = weight.shape[0], weight.shape[2]
        in_decoder = name.startswith("decoder.")
        stride = kernel // 2 if in_decoder else kernel
        if in_decoder:
            value = graph.op("Concat", [stream.before(channels, 1), value], axis=2)
            stream.behind(value, 1)
        result = graph.op(
            "ConvTranspose",
            [graph.to_real(value), graph.weight(weight), graph.weight(self.state.bias(name))],
            kernel_shape=[kernel],
            strides=[stride],
        )
        if in_decoder:
            result = graph.op("Slice", [result, graph.ints([stride]), graph.ints([-stride]), graph.ints([2])])
        return graph.to_float(result)

    def snake(self, value: str, name: str) -> str:
        """x + sin(a x)^2 / a"""
        graph, alpha = self.graph, self.state[f"{name}.alpha"]
        sine = graph.op("Sin", [graph.op("Mul", [value, graph.weight(alpha, real=False)])])
        inverse = self._once(f"{name}.inverse", lambda: (1.0 / (alpha + np.float32(1e-9))).astype(np.float32))
        bump = graph.op("Mul", [graph.op("Mul", [sine, sine]), graph.weight(inverse, real=False)])
        return graph.op("Add", [value, bump])

    def residual(self, value: str, name: str, dilation: int, stream: _Stream | None = None) -> str:
        inner = self.snake(value, f"{name}.block.0")
        inner = self.conv(inner, f"{name}.block.1.conv", stream, dilation=dilation)
        inner = self.snake(inner, f"{name}.block.2")
        return self.graph.op("Add", [value, self.conv(inner, f"{name}.block.3.conv", stream)])

    def convnext(self, value: str, name: str, stream: _Stream | None = None) -> str:
        graph, state = self.graph, self.state
        inner = self.conv(value, f"{name}.dwconv.conv", stream)
        inner = graph.op("Transpose", [inner], perm=[0, 2, 1])
        scale, shift = (graph.weight(state[f"{name}.norm.{part}"], real=False) for part in ("weight", "bias"))
        inner = graph.op("LayerNormalization", [inner, scale, shift], axis=-1, epsilon=CONVNEXT_EPS)
        inner = graph.linear(inner, [state.weight(f"{name}.pwconv1")], [state.bias(f"{name}.pwconv1")])
        inner = graph.op("Gelu", [inner], domain="com.microsoft")
        matrix, bias = state.weight(f"{name}.pwconv2"), state.bias(f"{name}.pwconv2")
        if f"{name}.gamma" in state.arrays:
            gamma = state[f"{name}.gamma"]
            matrix = self._once(f"{name}.matrix", lambda: matrix * gamma[:, None])
            bias = self._once(f"{name}.bias", lambda: bias * gamma)
        inner = graph.linear(inner, [matrix], [bias])
        return graph.op("Add", [value, graph.op("Transpose", [inner], perm=[0, 2, 1])])

    def projected(self, value: str, name: str, exact: bool = False) -> str:
        """A convolution over single columns of [B, columns, channels]; `exact`: in float32 whatever the precision
        is."""
        graph, matrix = self.graph, self.state.weight(name)
        matrix = self._once(f"{name}.matrix", lambda: np.ascontiguousarray(matrix[:, :, 0]))
        if not exact:
            return graph.linear(value, [matrix], [self.state.bias(name)])
        transposed = self._once(f"{name}.transposed", lambda: np.ascontiguousarray(matrix.T))
        product = graph.op("MatMul", [value, graph.weight(transposed, real=False)])
        return graph.op("Add", [product, graph.weight(self.state.bias(name), real=False)])

    def windowed(self, value: str, name: str, window: int, stream: _Stream | None = None) -> str:
        """A transformer whose columns attend to themselves and the `window - 1` columns before them."""
        graph, state, config = self.graph, self.state, self.state.config
        layers = state._count(re.escape(name) + r"\.layers\.(\d+)\.")
        size = config.head_size
        width = state[f"{name}.layers.0.attention.wo.weight"].shape[1]
        if layers == 0 or width % size or state[f"{name}.layers.0.attention.wqkv.weight"].shape[0] != 3 * width:
            raise ExportError(
                f"{name} of the codec does not have heads of {size}, as many for keys as for queries: another codec"
            )
        heads = width // size
        shape = graph.op("Shape", [value])
        batch, columns = (graph.op("Gather", [shape, graph.ints([axis])], axis=0) for axis in (0, 1))
        steps = graph.op("Range", [graph.ints(0), graph.op("Squeeze", [columns]), graph.ints(1)])
        held = window - 1 if stream is not None else 0
        positions = graph.op("Unsqueeze", [steps, graph.ints([0])])
        if stream is not None:
            before = graph.input("state.position", TensorProto.FLOAT, ["batch", 1])
            graph.output("next.position", TensorProto.FLOAT, ["batch", 1])
            graph.op("Add", [before, graph.op("Cast", [columns], to=TensorProto.FLOAT)], outputs=["next.position"])
            positions = graph.op("Add", [graph.op("Cast", [before], to=TensorProto.INT64), positions])
            ports = [layers, heads, held, size]
            for port in ("keys", "values"):
                graph.input(f"state.{port}", TensorProto.FLOAT, ["batch", *ports])
                graph.output(f"next.{port}", TensorProto.FLOAT, ["batch", *ports])
        rope = graph.op("Clip", [positions, graph.ints(0), graph.ints(config.positions - 1)])
        rope = graph.op("Expand", [rope, graph.op("Concat", [batch, columns], axis=0)])
        mask = self._mask(steps, columns, window, held, before if stream is not None else None)
        kept: dict[str, list[str]] = {"keys": [], "values": []}
        for i in range(layers):
            layer = f"{name}.layers.{i}"
            normed = self._norm(value, f"{layer}.attention_norm")
            joined = graph.linear(normed, [state[f"{layer}.attention.wqkv.weight"]])
            query, key, content = graph.op("Split", [joined, graph.ints(3 * [width])], outputs=3, axis=2)
            query, key = (self._rotated(part, rope, heads) for part in (query, key))
            query, key, content = (self._heads(part, heads) for part in (query, key, content))
            if stream is not None:
                past = [graph.op("Gather", [f"state.{port}", graph.ints(i)], axis=1) for port in kept]
                key = graph.op("Concat", [past[0], key], axis=2)
                content = graph.op("Concat", [past[1], content], axis=2)
                for port, whole in zip(kept, (key, content)):
                    ends = [graph.ints([-held]), graph.ints([np.iinfo(np.int64).max]), graph.ints([2])]
                    kept[port].append(graph.op("Unsqueeze", [graph.op("Slice", [whole, *ends]), graph.ints([1])]))
            scores = graph.op("MatMul", [query, graph.op("Transpose", [key], perm=[0, 1, 3, 2])])
            scores = graph.op("Mul", [scores, graph.floats(1.0 / np.sqrt(size))])
            scores = graph.op("Add", [scores, mask])
            attended = graph.op("MatMul", [graph.op("Softmax", [scores], axis=-1), content])
            attended = graph.op("Transpose", [attended], perm=[0, 2, 1, 3])
            attended = graph.op("Reshape", [attended, graph.ints([0, 0, width])])
            value = graph.op("Add", [value, graph.linear(attended, [self._scaled(layer, "attention.wo", "attention")])])
            normed = self._norm(value, f"{layer}.ffn_norm")
            gate = graph.linear(normed, [state[f"{layer}.feed_forward.w1.weight"]], cast_back=False)
            up = graph.linear(normed, [state[f"{layer}.feed_forward.w3.weight"]], cast_back=False)
            inner = graph.op("Mul", [graph.op("Mul", [gate, graph.op("Sigmoid", [gate])]), up])
            value = graph.op("Add", [value, graph.linear(inner, [self._scaled(layer, "feed_forward.w2", "ffn")])])
        for port, columns_kept in kept.items():
            if columns_kept:
                graph.op("Concat", columns_kept, outputs=[f"next.{port}"], axis=1)
        return self._norm(value, f"{name}.norm")

    def _mask(self, steps: str, columns: str, window: int, held: int, before: str | None) -> str:
        """What is added to the scores [1 or B, 1, columns, held + columns]: 0, or a number that excludes a column.
        Column c of the keys is visible to column i where i + held - window < c <= i + held and, with a stream, where it
        was written.
        """
        graph = self.graph
        total = graph.op("Add", [columns, graph.ints([held])])
        keys = graph.op(
            "Unsqueeze",
            [graph.op("Range", [graph.ints(0), graph.op("Squeeze", [total]), graph.ints(1)]), graph.ints([0])],
        )
        ends = graph.op("Add", [graph.op("Unsqueeze", [steps, graph.ints([1])]), graph.ints(held)])
        visible = graph.op(
            "And",
            [
                graph.op("LessOrEqual", [keys, ends]),
                graph.op("Greater", [keys, graph.op("Sub", [ends, graph.ints(window)])]),
            ],
        )
        visible = graph.op("Unsqueeze", [visible, graph.ints([0])])
        if before is not None:
            first = graph.op("Sub", [graph.ints(held), graph.op("Cast", [before], to=TensorProto.INT64)])
            written = graph.op("GreaterOrEqual", [keys, first])
            visible = graph.op("And", [visible, graph.op("Unsqueeze", [written, graph.ints([1])])])
        mask = graph.op("Where", [visible, graph.floats(0.0), graph.floats(np.finfo(np.float32).min)])
        return graph.op("Unsqueeze", [mask, graph.ints([1])])

    def _rotated(self, value: str, positions: str, heads: int) -> str:
        graph, config = self.graph, self.state.config
        if "rope.cos" not in self._folded:
            tables = rounded_rope(config.head_size, ROPE_BASE, config.positions)
            self._folded["rope.cos"], self._folded["rope.sin"] = tables
        cos, sin = (graph.weight(self._folded[f"rope.{part}"], real=False) for part in ("cos", "sin"))
        return graph.op(
            "RotaryEmbedding", [value, positions, cos, sin], domain="com.microsoft", interleaved=1, num_heads=heads
        )

    def _heads(self, value: str, heads: int) -> str:
        graph = self.graph
        value = graph.op("Reshape", [value, graph.ints([0, 0, heads, self.state.config.head_size])])
        return graph.op("Transpose", [value], perm=[0, 2, 1, 3])

    def _norm(self, value: str, name: str) -> str:
        weight = self.graph.weight(self.state[f"{name}.weight"], real=False)
        return self.graph.op("SimplifiedLayerNormalization", [value, weight], axis=-1, epsilon=NORM_EPS, stash_type=1)

    def _scaled(self, layer: str, matrix: str, scale: str) -> np.ndarray:
        """A matrix whose rows are multiplied by the layer's scale."""
        gamma = self.state[f"{layer}.{scale}_layer_scale.gamma"]
        weight = self.state[f"{layer}.{matrix}.weight"]
        return self._once(f"{layer}.{matrix}.scaled", lambda: weight * gamma[:, None])

    def _once(self, name: str, make) -> np.ndarray:
        if name not in self._folded:
            self._folded[name] = make()
        return self._folded[name]
