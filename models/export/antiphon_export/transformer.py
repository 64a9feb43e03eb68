"""ONNX graphs of the language model: `decode`, `frame` and `embed` of the layout, for stacks like those of Llama and
Qwen.

The families use it: each fills a configuration and a dictionary of NumPy weights and gets an ONNX graph. The module
needs NumPy and onnx only; it never reads a checkpoint, never runs a graph and knows no family's name.

    config = StackConfig(layers=2, hidden=64, heads=4, kv_heads=2, head_size=16, intermediate=128)
    build_decode(config, weights, "fp32").save(path)
    build_frame(FrameConfig(stack=config, hidden=64, codebooks=16), weights, "fp32").save(path)
    build_embed(table, "fp32").save(path)

**Weights** are float32 arrays (or arrays that convert to it) in the layout of `torch.nn.Linear`, [out, in]. An array
that stands under several names is stored once: pass the same object for tied weights. Names of a stack:

    layers.{i}.input_norm [hidden]      layers.{i}.post_norm [hidden]     norm [hidden]
    layers.{i}.q [heads * head_size, hidden]    .k, .v [kv_heads * head_size, hidden]    .o [hidden, heads * head_size]
    layers.{i}.q_bias, .k_bias, .v_bias         where `qkv_bias`         .o_bias   where `o_bias`
    layers.{i}.q_norm, .k_norm [head_size]      where `qk_norm`
    layers.{i}.gate, .up [intermediate, hidden]                          .down [hidden, intermediate]
    cos, sin [positions, head_size / 2]         optional: instead of those of `rope_theta`

`decode` adds `head` [V, hidden] (rows cut to the ids that may be drawn) and, optionally, `head_bias` [V].

`frame` is the inner stack, run over the codebooks of one frame. Its first position is the hidden state of the outer
stack, its second the embedding of the first code, which gives the second code, and so on. It adds, K being `codebooks`:

    project [hidden of the stack, hidden]   optional: applied to the outer hidden state (and `project_bias`)
    inner.{i} [V, hidden of the stack]      i = 0 .. K-2: what code i is for the inner stack
    heads.{i} [V, hidden of the stack]      i = 1 .. K-1: logits of code i
    outer.{i} [V, hidden]                   i = 0 .. K-1: what code i adds to the embeddings of the frame

A projection or a scale that the family applies to embeddings is folded into these tables by the family (`fold`). The
tables of code 0 need rows for the ids that end the speech too. With `sounds`, codes 1 .. K-1 add nothing to the
embeddings of a frame whose first code is `sounds` or more.

**Precision** "fp32" or "fp16": in fp16 matrices, attention and caches are float16; the residual stream and the norms
stay in float32, and so do all inputs and outputs but the caches.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from .errors import ExportError

PRECISIONS = ("fp32", "fp16")
OPSET = 18
IR_VERSION = 10
# Weights of a graph lie beside it from this size on, and tensors below the second size stay in the graph.
EXTERNAL_BYTES = 4 << 20
EXTERNAL_TENSOR_BYTES = 1 << 10
EXTERNAL_ALIGNMENT = 4096
# Names of values, where the operator's own is long: graphs of small models are mostly names.
SHORT_NAMES = {"SimplifiedLayerNormalization": "Norm", "GroupQueryAttention": "GQA"}


@dataclass(frozen=True)
class StackConfig:
    """Decoder layers with grouped-query attention, RoPE, RMS norms and a gated SiLU network."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    positions: int = 8192
    """How many columns RoPE is tabulated for; the cache can have no more."""
    rope_interleaved: bool = False
    """Pairs are neighbours (2j, 2j + 1) instead of halves (j, j + head_size / 2)."""
    qk_norm: bool = False
    """RMS norms of each head's queries and keys, before RoPE."""
    qkv_bias: bool = False
    o_bias: bool = False
    hidden_normed: bool = True
    """Whether `hidden` of `decode` is taken behind the last norm."""

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ExportError(f"{self.heads} query heads are no multiple of {self.kv_heads} key and value heads")
        if self.head_size % 16:
            raise ExportError(
                f"heads of {self.head_size} numbers: GroupQueryAttention with RoPE takes multiples of 16 only"
            )


@dataclass(frozen=True)
class FrameConfig:
    """The inner stack over the codebooks of one frame."""

    stack: StackConfig
    hidden: int
    """Size of the outer stack's hidden state and embeddings."""
    codebooks: int
    """All of them, the first included."""
    sounds: int | None = None
    """First codes from this one on (those that end the speech) add their own embedding only."""


Weights = Mapping[str, np.ndarray]


def fold(table: np.ndarray, weight: np.ndarray | None = None, bias: np.ndarray | None = None) -> np.ndarray:
    """The table of embeddings [V, in] behind a linear layer of `weight` [out, in] and `bias` [out]."""
    folded = np.asarray(table, np.float32)
    if weight is not None:
        folded = folded @ np.asarray(weight, np.float32).T
    if bias is not None:
        folded = folded + np.asarray(bias, np.float32)
    return np.ascontiguousarray(folded, np.float32)


def build_decode(config: StackConfig, weights: Weights, precision: str = "fp32") -> "GraphBuilder":
    """The graph `decode`: embeddings of one or more columns a row and the cache, to logits and hidden state of the last
    one."""
    graph = GraphBuilder("decode", precision)
    cache_type = graph.real_type
    embeds = graph.input("inputs_embeds", TensorProto.FLOAT, ["batch", "columns", config.hidden])
    lengths = graph.input("lengths", TensorProto.INT32, ["batch"])
    total = graph.input("total", TensorProto.INT32, [])
    past_shape = ["batch", config.kv_heads, "past", config.head_size]
    present_shape = ["batch", config.kv_heads, "present", config.head_size]
    past = []
    for i in range(config.layers):
        past.append(
            (
                graph.input(f"past.{i}.key", cache_type, past_shape),
                graph.input(f"past.{i}.value", cache_type, past_shape),
            )
        )
    vocabulary = np.asarray(weights["head"]).shape[0]
    graph.output("logits", TensorProto.FLOAT, ["batch", 1, vocabulary])
    graph.output("hidden", TensorProto.FLOAT, ["batch", 1, config.hidden])
    for i in range(config.layers):
        graph.output(f"present.{i}.key", cache_type, present_shape)
        graph.output(f"present.{i}.value", cache_type, present_shape)

    stack = _Stack(graph, config, weights)
    present = [(f"present.{i}.key", f"present.{i}.value") for i in range(config.layers)]
    hidden, _ = stack.run(embeds, lengths, total, past, present)

    # Each row's last column: min(lengths, columns - 1).
    columns = graph.op("Gather", [graph.op("Shape", [embeds]), graph.ints(1)], axis=0)
    last = graph.op("Sub", [columns, graph.ints(1)])
    index = graph.op("Min", [graph.op("Cast", [lengths], to=TensorProto.INT64), last])
    index = graph.op("Unsqueeze", [index, graph.ints([1])])
    hidden = graph.op("GatherND", [hidden, index], batch_dims=1)
    hidden = graph.op("Unsqueeze", [hidden, graph.ints([1])])
    normed = stack.norm(hidden, "norm")
    graph.op("Identity", [normed if config.hidden_normed else hidden], outputs=["hidden"])
    logits = graph.linear(normed, [weights["head"]], [weights["head_bias"]] if "head_bias" in weights else None)
    graph.op("Identity", [logits], outputs=["logits"])
    return graph


def build_frame(config: FrameConfig, weights: Weights, precision: str = "fp32") -> "GraphBuilder":
    """The graph `frame`: the outer hidden state and the first code, to the other codes, drawn one after another, and
    the embeddings of the whole frame."""
    graph = GraphBuilder("frame", precision)
    inner = config.stack
    others = config.codebooks - 1
    hidden = graph.input("hidden", TensorProto.FLOAT, ["batch", config.hidden])
    code = graph.input("code", TensorProto.INT64, ["batch"])
    uniform = graph.input("uniform", TensorProto.FLOAT, ["batch", others])
    temperature = graph.input("temperature", TensorProto.FLOAT, [])
    top_k = graph.input("top_k", TensorProto.INT64, [])
    top_p = graph.input("top_p", TensorProto.FLOAT, [])
    graph.output("codes", TensorProto.INT64, ["batch", others])
    graph.output("embeds", TensorProto.FLOAT, ["batch", config.hidden])

    stack = _Stack(graph, inner, weights)
    draw = _Draw(graph, temperature, top_k, top_p)
    batch = graph.op("Shape", [code])
    projected = hidden
    if "project" in weights:
        biases = [weights["project_bias"]] if "project_bias" in weights else None
        projected = graph.linear(hidden, [weights["project"]], biases)
    first = graph.lookup(weights["inner.0"], code)
    columns = graph.op(
        "Concat",
        [graph.op("Unsqueeze", [projected, graph.ints([1])]), graph.op("Unsqueeze", [first, graph.ints([1])])],
        axis=1,
    )
    cache: Sequence[tuple[str, str]] | None = None
    codes: list[str] = []
    for i in range(1, config.codebooks):
        lengths = graph.op("Expand", [graph.tensor(np.array([i], np.int32)), batch])
        total = graph.tensor(np.array(i + 1, np.int32))
        state, cache = stack.run(columns, lengths, total, cache, None)
        if i == 1:
            state = graph.op("Gather", [state, graph.ints(1)], axis=1)
        else:
            state = graph.op("Squeeze", [state, graph.ints([1])])
        logits = graph.linear(stack.norm(state, "norm"), [weights[f"heads.{i}"]])
        number = graph.op("Gather", [uniform, graph.ints([i - 1])], axis=1)
        drawn = draw(logits, np.asarray(weights[f"heads.{i}"]).shape[0], number)
        codes.append(drawn)
        if i < others:
            columns = graph.op("Unsqueeze", [graph.lookup(weights[f"inner.{i}"], drawn), graph.ints([1])])

    rest = [graph.lookup(weights[f"outer.{i}"], drawn) for i, drawn in enumerate(codes, 1)]
    added = graph.total(rest)
    if config.sounds is not None:
        sounds = graph.op("Less", [code, graph.ints(config.sounds)])
        share = graph.op("Cast", [graph.op("Unsqueeze", [sounds, graph.ints([1])])], to=TensorProto.FLOAT)
        added = graph.op("Mul", [added, share])
    graph.op("Add", [graph.lookup(weights["outer.0"], code), added], outputs=["embeds"])
    columns = [graph.op("Unsqueeze", [drawn, graph.ints([1])]) for drawn in codes]
    graph.op("Concat", columns, outputs=["codes"], axis=1)
    return graph


def build_embed(table: np.ndarray, precision: str = "fp32") -> "GraphBuilder":
    """The graph `embed`: ids of a family with one codebook, to embeddings, rows of `table` [V, hidden]."""
    graph = GraphBuilder("embed", precision)
    ids = graph.input("ids", TensorProto.INT64, ["batch", 1])
    graph.output("embeds", TensorProto.FLOAT, ["batch", 1, np.asarray(table).shape[1]])
    graph.op("Identity", [graph.lookup(table, ids)], outputs=["embeds"])
    return graph


def rope_tables(config: StackConfig) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines [positions, head_size / 2], computed in float32 as the makers' code does."""
    exponents = np.arange(0, config.head_size, 2, dtype=np.float32) / np.float32(config.head_size)
    frequencies = (1.0 / np.power(np.float32(config.rope_theta), exponents)).astype(np.float32)
    angles = np.arange(config.positions, dtype=np.float32)[:, None] * frequencies[None, :]
    return np.cos(angles), np.sin(angles)


class _Stack:
    """Layers of a stack; `run` may be called repeatedly and shares the weights."""

    def __init__(self, graph: "GraphBuilder", config: StackConfig, weights: Weights) -> None:
        self.graph = graph
        self.config = config
        self.weights = weights
        if "cos" in weights:
            cos, sin = np.asarray(weights["cos"], np.float32), np.asarray(weights["sin"], np.float32)
        else:
            cos, sin = rope_tables(config)
        self.cos = graph.weight(cos)
        self.sin = graph.weight(sin)

    def norm(self, value: str, name: str) -> str:
        weight = self.graph.weight(self.weights[name], real=False)
        return self.graph.op(
            "SimplifiedLayerNormalization", [value, weight], axis=-1, epsilon=self.config.norm_eps, stash_type=1
        )

    def run(
        self,
        columns: str,
        lengths: str,
        total: str,
        past: Sequence[tuple[str, str]] | None,
        present: Sequence[tuple[str, str]] | None,
    ) -> tuple[str, list[tuple[str, str]]]:
        """The residual stream behind the last layer, before the last norm, and the caches."""
        graph, config = self.graph, self.config
        caches = []
        residual = columns
        for i in range(config.layers):
            attended, cache = self._attention(
                i,
                self.norm(residual, f"layers.{i}.input_norm"),
                lengths,
                total,
                past and past[i],
                present and present[i],
            )
            caches.append(cache)
            residual = graph.op("Add", [residual, attended])
            residual = graph.op("Add", [residual, self._network(i, self.norm(residual, f"layers.{i}.post_norm"))])
        return residual, caches

    def _attention(
        self,
        layer: int,
        normed: str,
        lengths: str,
        total: str,
        past: tuple[str, str] | None,
        present: tuple[str, str] | None,
    ) -> tuple[str, tuple[str, str]]:
        graph, config = self.graph, self.config
        name = f"layers.{layer}"
        sizes = [config.heads * config.head_size] + 2 * [config.kv_heads * config.head_size]
        biases = [self.weights[f"{name}.{part}_bias"] for part in "qkv"] if config.qkv_bias else None
        joined = graph.linear(normed, [self.weights[f"{name}.{part}"] for part in "qkv"], biases, cast_back=False)
        query, key, value = graph.op("Split", [joined, graph.ints(sizes)], outputs=3, axis=-1)
        if config.qk_norm:
            query = self._head_norm(query, f"{name}.q_norm", config.heads)
            key = self._head_norm(key, f"{name}.k_norm", config.kv_heads)
        attended, present_key, present_value = graph.op(
            "GroupQueryAttention",
            [query, key, value, *(past or ("", "")), lengths, total, self.cos, self.sin],
            outputs=[graph.new_name("attended"), *present] if present else 3,
            domain="com.microsoft",
            num_heads=config.heads,
            kv_num_heads=config.kv_heads,
            do_rotary=1,
            rotary_interleaved=int(config.rope_interleaved),
        )
        biases = [self.weights[f"{name}.o_bias"]] if config.o_bias else None
        return graph.linear(attended, [self.weights[f"{name}.o"]], biases), (present_key, present_value)

    def _head_norm(self, value: str, name: str, heads: int) -> str:
        graph, config = self.graph, self.config
        value = graph.op("Reshape", [value, graph.ints([0, 0, heads, config.head_size])])
        value = graph.to_float(value)
        value = graph.to_real(self.norm(value, name))
        return graph.op("Reshape", [value, graph.ints([0, 0, heads * config.head_size])])

    def _network(self, layer: int, normed: str) -> str:
        graph, config = self.graph, self.config
        name = f"layers.{layer}"
        joined = graph.linear(normed, [self.weights[f"{name}.gate"], self.weights[f"{name}.up"]], cast_back=False)
        gate, up = graph.op("Split", [joined, graph.ints(2 * [config.intermediate])], outputs=2, axis=-1)
        gate = graph.op("Mul", [gate, graph.op("Sigmoid", [gate])])
        return graph.linear(graph.op("Mul", [gate, up]), [self.weights[f"{name}.down"]])


class _Draw:
    """Draws codes from logits: temperature, top_k, top_p, then the first code whose cumulative probability, in order of
    ids, exceeds the random number times the sum. A temperature of 0 keeps the most likely code only."""

    def __init__(self, graph: "GraphBuilder", temperature: str, top_k: str, top_p: str) -> None:
        self.graph = graph
        self.top_p = top_p
        self.greedy = graph.op("LessOrEqual", [temperature, graph.floats(0.0)])
        self.temperature = graph.op("Where", [self.greedy, graph.floats(1.0), temperature])
        self.luck = graph.op("Where", [self.greedy, graph.floats(0.0), graph.floats(1.0)])
        unlimited = graph.op("LessOrEqual", [top_k, graph.ints(0)])
        self.wanted = graph.op("Where", [unlimited, graph.ints(np.iinfo(np.int32).max), top_k])
        self.kept: dict[int, str] = {}

    def __call__(self, logits: str, vocabulary: int, number: str) -> str:
        graph = self.graph
        if vocabulary not in self.kept:
            kept = graph.op("Min", [self.wanted, graph.ints(vocabulary)])
            kept = graph.op("Where", [self.greedy, graph.ints(1), kept])
            self.kept[vocabulary] = graph.op("Unsqueeze", [kept, graph.ints([0])])
        logits = graph.op("Div", [logits, self.temperature])
        best, _ = graph.op("TopK", [logits, self.kept[vocabulary]], outputs=2, axis=-1, largest=1, sorted=1)
        # Of the top_k, sorted, those before which less than top_p of the probability lies; the first one always.
        odds = graph.op("Softmax", [best], axis=-1)
        before = graph.op("CumSum", [odds, graph.ints(1)], exclusive=1)
        inside = graph.op("Less", [before, self.top_p])
        first = graph.op("LessOrEqual", [before, graph.floats(0.0)])
        inside = graph.op("Or", [inside, first])
        limit = graph.op("Where", [inside, best, graph.floats(np.finfo(np.float32).max)])
        limit = graph.op("ReduceMin", [limit, graph.ints([1])], keepdims=1)
        highest = graph.op("ReduceMax", [best, graph.ints([1])], keepdims=1)
        weight = graph.op("Exp", [graph.op("Sub", [logits, highest])])
        weight = graph.op("Where", [graph.op("GreaterOrEqual", [logits, limit]), weight, graph.floats(0.0)])
        cumulative = graph.op("CumSum", [weight, graph.ints(1)])
        everything = graph.op("ReduceMax", [cumulative, graph.ints([1])], keepdims=1)
        target = graph.op("Mul", [graph.op("Mul", [number, self.luck]), everything])
        passed = graph.op(
            "And",
            [graph.op("LessOrEqual", [cumulative, target]), graph.op("Less", [cumulative, everything])],
        )
        passed = graph.op("Cast", [passed], to=TensorProto.FLOAT)
        count = graph.op("ReduceSum", [passed, graph.ints([1])], keepdims=0)
        return graph.op("Cast", [count], to=TensorProto.INT64)


@dataclass
class GraphBuilder:
    """An ONNX graph that is being written. `save` writes it, large weights beside it in NAME.onnx_data."""

    name: str
    precision: str = "fp32"
    nodes: list = field(default_factory=list)
    inputs: list = field(default_factory=list)
    outputs: list = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ExportError(f"precision {self.precision!r}: there are {', '.join(PRECISIONS)}")
        self.half = self.precision == "fp16"
        self.real_type = TensorProto.FLOAT16 if self.half else TensorProto.FLOAT
        self._tensors: dict[str, np.ndarray] = {}
        self._by_source: dict[tuple, tuple[str, tuple]] = {}
        self._small: dict[tuple, str] = {}
        self._names: dict[str, int] = {}

    def input(self, name: str, kind: int, shape: Sequence) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def output(self, name: str, kind: int, shape: Sequence) -> str:
        self.outputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def new_name(self, stem: str) -> str:
        self._names[stem] = self._names.get(stem, 0) + 1
        return f"{stem}_{self._names[stem]}"

    def op(self, kind: str, inputs: Sequence[str], outputs: int | Sequence[str] = 1, domain: str = "", **attributes):
        """Adds a node. Its output's name, or a list of names where it has several."""
        names = (
            [self.new_name(SHORT_NAMES.get(kind, kind)) for _ in range(outputs)]
            if isinstance(outputs, int)
            else list(outputs)
        )
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=names[0], domain=domain, **attributes))
        return names[0] if len(names) == 1 else names

    def tensor(self, array: np.ndarray) -> str:
        """A small constant; equal ones are stored once."""
        array = np.asarray(array)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._small:
            self._small[key] = self.new_name("constant")
            self._tensors[self._small[key]] = array
        return self._small[key]

    def ints(self, values) -> str:
        return self.tensor(np.asarray(values, np.int64))

    def floats(self, values) -> str:
        return self.tensor(np.asarray(values, np.float32))

    def weight(self, array: np.ndarray, real: bool = True) -> str:
        """A weight in the type of the graph's precision (float32 with `real=False`); the same object is stored once."""
        return self._stored((array,), "plain", real, lambda: np.asarray(array))

    def linear(
        self,
        value: str,
        matrices: Sequence[np.ndarray],
        biases: Sequence[np.ndarray] | None = None,
        cast_back: bool = True,
    ) -> str:
        """`value` times the matrices [out, in], joined along `out`. In fp16 `value` is converted first, and the result
        is converted to float32 unless `cast_back` is false."""
        weight = self._stored(
            tuple(matrices), "linear", True, lambda: np.concatenate([np.asarray(m) for m in matrices], 0).T
        )
        result = self.op("MatMul", [self.to_real(value), weight])
        if biases:
            bias = self._stored(tuple(biases), "bias", True, lambda: np.concatenate([np.asarray(b) for b in biases], 0))
            result = self.op("Add", [result, bias])
        return self.to_float(result) if cast_back else result

    def total(self, values: Sequence[str]) -> str:
        """Their sum, added from the first to the last. ONNX's `Sum` is not used: ONNX Runtime 1.31 fails on a GPU where it has
        more than 8 inputs (cudaErrorInvalidValue)."""
        return functools.reduce(lambda total, value: self.op("Add", [total, value]), values)

    def lookup(self, table: np.ndarray, ids: str) -> str:
        """Rows of a table, as float32."""
        return self.to_float(self.op("Gather", [self.weight(table), ids], axis=0))

    def to_real(self, value: str) -> str:
        return self.op("Cast", [value], to=TensorProto.FLOAT16) if self.half else value

    def to_float(self, value: str) -> str:
        return self.op("Cast", [value], to=TensorProto.FLOAT) if self.half else value

    def save(self, path: Path) -> None:
        """Writes the graph to `path`, which must not exist."""
        path = Path(path)
        size = sum(array.nbytes for array in self._tensors.values())
        external = size > EXTERNAL_BYTES
        initializers = []
        data_path = path.with_name(path.name + "_data")
        data = open(data_path, "xb") if external else None
        try:
            for name, array in self._tensors.items():
                if data is not None and array.nbytes >= EXTERNAL_TENSOR_BYTES:
                    data.write(b"\0" * (-data.tell() % EXTERNAL_ALIGNMENT))
                    initializers.append(_external(name, array, data_path.name, data.tell()))
                    # In slices: a transposed matrix is copied in part only, to need little memory beside the weights.
                    rows = max(1, (64 << 20) // max(1, array[:1].nbytes))
                    for start in range(0, array.shape[0], rows):
                        data.write(np.ascontiguousarray(array[start : start + rows]).tobytes())
                else:
                    initializers.append(
                        onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
                    )
        finally:
            if data is not None:
                data.close()
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, initializers)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="antiphon_export")
        with open(path, "xb") as file:
            file.write(model.SerializeToString())

    def _stored(self, sources: tuple, purpose: str, real: bool, make) -> str:
        key = (purpose, real, *(id(source) for source in sources))
        if key not in self._by_source:
            array = make()
            kind = np.float16 if real and self.half else np.float32
            name = self.new_name(purpose)
            self._tensors[name] = _converted(array, kind)
            # The sources are kept: an id is unique among living objects only.
            self._by_source[key] = (name, sources)
        return self._by_source[key][0]


def _converted(array: np.ndarray, kind: type) -> np.ndarray:
    if array.dtype == kind:
        return array
    largest = float(np.abs(array).max(initial=0.0))
    if kind is np.float16 and largest > float(np.finfo(np.float16).max):
        raise ExportError(f"a weight of {largest:g} is too large for fp16: export fp32 only")
    return array.astype(kind)


def _external(name: str, array: np.ndarray, location: str, offset: int) -> TensorProto:
    tensor = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(array.dtype), dims=array.shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(array.nbytes))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return tensor


def decode_section(
    layers: int, heads: int, head_size: int, context: int, capacity: int, hidden: bool
) -> dict[str, Any]:
    """The section `[decode]` of a contract for a graph of `build_decode`; `hidden`: whether a graph `frame` follows."""
    return {
        "file": "decode{precision}.onnx",
        "embeds": "inputs_embeds",
        "lengths": "lengths",
        "total": "total",
        "logits": "logits",
        **({"hidden": "hidden"} if hidden else {}),
        "past": ["past.{i}.key", "past.{i}.value"],
        "present": ["present.{i}.key", "present.{i}.value"],
        "layers": layers,
        "heads": heads,
        "head_size": head_size,
        "policy": "ragged",
        "context": context,
        "capacity": capacity,
    }
