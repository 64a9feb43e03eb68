"""Published ONNX graphs as parts of new ones: MOSS-TTS-Nano's converter uses it to wrap graphs in nodes of its own and
to join two of them behind an `If`. Weights that are equal, byte for byte, are stored once, whichever part they came
with. The module knows no family's ports and never runs a graph."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import numpy as np
import onnx
import onnx.inliner
from onnx import TensorProto, helper, numpy_helper

from ..errors import ExportError
from ..files import save_model

# Operators of the nodes that are added have the same form from this version on.
LEAST_OPSET = 13
LAST = np.iinfo(np.int64).max


def read_graph(path: Path) -> onnx.ModelProto:
    """A published graph with its weights. Functions are replaced by their nodes."""
    try:
        model = onnx.load(str(path))
    except FileNotFoundError as error:
        missing = getattr(error, "filename", None) or path
        raise ExportError(
            f"{path.name} cannot be read: there is no {missing}; download the whole repository"
        ) from error
    except Exception as error:
        # protobuf and onnx raise errors of several kinds on damaged files.
        raise ExportError(f"{path} is no ONNX graph, or its download is incomplete: {error}") from error
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    if model.graph.sparse_initializer:
        raise ExportError(f"{path} has sparse weights, which are not read: another release of the graphs is needed")
    return model


class Joined:
    """A graph that is being made of published graphs and other nodes. `save` writes it, large weights beside it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list = []
        self.inputs: list = []
        self.outputs: list = []
        self._weights: dict[tuple, TensorProto] = {}
        self._weight_names: set[str] = set()
        self._opsets: dict[str, int] = {}
        self._ir_version = 8
        self._count = 0

    def input(self, name: str, kind: int, shape: Sequence) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def output(self, name: str, kind: int, shape: Sequence, value: str | None = None) -> str:
        """Declares an output, and gives `value` its name."""
        self.outputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        if value is not None:
            self.op("Identity", [value], [name])
        return name

    def op(self, kind: str, inputs: Sequence[str], outputs: int | Sequence[str] = 1, **attributes: Any):
        """Adds a node. Its output's name, or a list of names where it has several."""
        names = [self._new_name() for _ in range(outputs)] if isinstance(outputs, int) else list(outputs)
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=names[0], **attributes))
        return names[0] if len(names) == 1 else names

    def constant(self, value: Any, kind: Any) -> str:
        return self._weight(numpy_helper.from_array(np.asarray(value, kind)))

    def ints(self, *values: int) -> str:
        """i64 [n]."""
        return self.constant(values, np.int64)

    def cast(self, value: str, kind: int) -> str:
        return self.op("Cast", [value], to=kind)

    def cut(self, value: str, start: str, end: str, axis: int) -> str:
        """The part of a dimension from `start` to before `end`, i64 [1] each."""
        return self.op("Slice", [value, start, end, self.ints(axis)])

    def size(self, value: str, axis: int) -> str:
        """The size of a dimension, i64 [1]."""
        return self.op("Gather", [self.op("Shape", [value]), self.ints(axis)], axis=0)

    def part(self, model: onnx.ModelProto, feeds: Mapping[str, str]) -> dict[str, str]:
        """Adds the nodes of a published graph, its inputs being these values. Its outputs by their names. The model is
        taken apart: it is of no use afterwards."""
        graph = model.graph
        self._adopt(model)
        names = {"": "", **feeds}
        for tensor in graph.initializer:
            if tensor.name not in names:
                names[tensor.name] = self._weight(tensor)
        kept = []
        for node in graph.node:
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx") and node.attribute[0].name == "value":
                names[node.output[0]] = self._weight(node.attribute[0].t)
            elif node.op_type == "Identity" and names.get(node.input[0]) in self._weight_names:
                # PyTorch names a weight anew for each of its uses, and ONNX Runtime copies it for each of them.
                names[node.output[0]] = names[node.input[0]]
            else:
                kept.append(node)
        self._rename(kept, names)
        self.nodes.extend(kept)
        return {port.name: names[port.name] for port in graph.output}

    def choose(
        self,
        condition: str,
        then: Callable[[], Sequence[str]],
        otherwise: Callable[[], Sequence[str]],
        outputs: Sequence[str],
        kind: int,
    ) -> None:
        """The values, of one type, that `then` gives where `condition` holds, else those of `otherwise`, under the
        names `outputs`. What the two add to the graph is computed in their case only."""
        branches = {}
        for name, build in (("then_branch", then), ("else_branch", otherwise)):
            outer, self.nodes = self.nodes, []
            try:
                results: list[str] = []
                for value in build():
                    own = any(value in node.output for node in self.nodes)
                    results.append(value if own and value not in results else self.op("Identity", [value]))
                # No sizes: those of the branches differ.
                ports = [helper.make_value_info(value, helper.make_tensor_type_proto(kind, None)) for value in results]
                branches[name] = helper.make_graph(self.nodes, name, [], ports)
            finally:
                self.nodes = outer
        self.op("If", [condition], outputs, **branches)

    def save(self, path: Path) -> None:
        """Writes the graph, which is of no use afterwards."""
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs)
        while self._weights:
            # One by one, so that large ones are not all in memory twice.
            graph.initializer.append(self._weights.pop(next(iter(self._weights))))
        opsets = [helper.make_opsetid(domain, version) for domain, version in (self._opsets or {"": 18}).items()]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="antiphon_export")
        model.ir_version = self._ir_version
        save_model(model, path)

    def _adopt(self, model: onnx.ModelProto) -> None:
        """Takes over the versions of a part's operators."""
        self._ir_version = max(self._ir_version, model.ir_version)
        for opset in model.opset_import:
            domain = "" if opset.domain == "ai.onnx" else opset.domain
            if not domain and opset.version < LEAST_OPSET:
                raise ExportError(
                    f"a published graph is of ONNX operator set {opset.version}; at least {LEAST_OPSET} is needed:"
                    " take the makers' current release"
                )
            if self._opsets.setdefault(domain, opset.version) != opset.version:
                raise ExportError(
                    f"the published graphs that become {self.name} are of the operator sets {self._opsets[domain]} and"
                    f" {opset.version} of {domain or 'ONNX'}: take both from one release"
                )

    def _new_name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _weight(self, tensor: TensorProto) -> str:
        """The name of a constant: that of an equal one where there is one."""
        content = tensor.raw_data if tensor.HasField("raw_data") else numpy_helper.to_array(tensor).tobytes()
        key = (tensor.data_type, tuple(tensor.dims), hashlib.sha256(content).digest())
        if key not in self._weights:
            if not tensor.HasField("raw_data"):
                tensor = numpy_helper.from_array(numpy_helper.to_array(tensor))
            kept = TensorProto()
            kept.CopyFrom(tensor)
            kept.name = self._new_name()
            kept.doc_string = ""
            self._weights[key] = kept
            self._weight_names.add(kept.name)
        return self._weights[key].name

    def _rename(self, nodes: Sequence[Any], names: dict[str, str]) -> None:
        """Gives values new, short names, those of nested graphs included."""

        def renamed(name: str) -> str:
            if name not in names:
                names[name] = self._new_name()
            return names[name]

        for node in nodes:
            node.input[:] = [renamed(name) for name in node.input]
            node.output[:] = [renamed(name) for name in node.output]
            node.name = next((name for name in node.output if name), "")
            node.doc_string = ""
            del node.metadata_props[:]
            for attribute in node.attribute:
                nested = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
                for graph in nested:
                    for value in (*graph.input, *graph.initializer):
                        value.name = renamed(value.name)
                    self._rename(graph.node, names)
                    for value in graph.output:
                        value.name = renamed(value.name)
                    del graph.value_info[:]
