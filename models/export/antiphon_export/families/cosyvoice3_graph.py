"""Shorthands for the graphs of CosyVoice3 that are not a language model: slices, masks, loops and convolutions on the common
builder. The vocoder and the conditioning use it; it knows nothing of the family and never runs a graph."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator, Sequence

import numpy as np
from onnx import TensorProto, helper

from ..transformer import GraphBuilder

LAST = np.iinfo(np.int64).max


class Net(GraphBuilder):
    """The common builder with operators as methods. Sizes are one-dimensional i64 tensors with one number."""

    def new_name(self, stem: str) -> str:
        """Short ones: a graph of a thousand nodes consists of names mostly."""
        self._names[""] = self._names.get("", 0) + 1
        return f"{stem[0]}{self._names['']}"

    def add(self, a: str, b: str) -> str:
        return self.op("Add", [a, b])

    def sub(self, a: str, b: str) -> str:
        return self.op("Sub", [a, b])

    def mul(self, a: str, b: str) -> str:
        return self.op("Mul", [a, b])

    def where(self, condition: str, a: str, b: str) -> str:
        return self.op("Where", [condition, a, b])

    def cast(self, value: str, kind: int) -> str:
        return self.op("Cast", [value], to=kind)

    def concat(self, values: Sequence[str], axis: int) -> str:
        return self.op("Concat", list(values), axis=axis)

    def size(self, value: str, axis: int) -> str:
        """The size of a dimension, [1]."""
        return self.op("Shape", [value], start=axis, end=axis + 1)

    def reshape(self, value: str, shape: Sequence[int] | str) -> str:
        return self.op("Reshape", [value, shape if isinstance(shape, str) else self.ints(shape)])

    def unsqueeze(self, value: str, axes: Sequence[int]) -> str:
        return self.op("Unsqueeze", [value, self.ints(axes)])

    def transpose(self, value: str, order: Sequence[int] = (0, 2, 1)) -> str:
        return self.op("Transpose", [value], perm=list(order))

    def cut(self, value: str, start: int | str, end: int | str = LAST, axis: int = 1) -> str:
        """The part of a dimension from `start` to before `end`: numbers or sizes."""
        bounds = [bound if isinstance(bound, str) else self.ints([bound]) for bound in (start, end)]
        return self.op("Slice", [value, *bounds, self.ints([axis])])

    def pad_axis(self, value: str, before: int | str, after: int | str, axis: int) -> str:
        """Zeros before and behind a dimension."""
        amounts = [amount if isinstance(amount, str) else self.ints([amount]) for amount in (before, after)]
        return self.op("Pad", [value, self.concat(amounts, 0), "", self.ints([axis])])

    def arange(self, size: str) -> str:
        """0 .. size, i64 [size]."""
        one = self.tensor(np.array(1, np.int64))
        return self.op("Range", [self.tensor(np.array(0, np.int64)), self.scalar(size), one])

    def scalar(self, size: str) -> str:
        return self.op("Squeeze", [size])

    def double(self, array: np.ndarray) -> str:
        """A weight in double precision."""
        return self.tensor(np.asarray(array, np.float64))

    def conv(
        self, value: str, weight: np.ndarray, bias: np.ndarray | None = None, real: bool = False, **attributes
    ) -> str:
        """A convolution without padding; in the graph's precision with `real`, else in float32."""
        inputs = [value, self.weight(weight, real=real)]
        if bias is not None:
            inputs.append(self.weight(bias, real=real))
        return self.op("Conv", inputs, **attributes)

    def result(self, value: str, name: str) -> None:
        """Gives an output of the graph its name."""
        self.op("Identity", [value], outputs=[name])

    @contextmanager
    def loop(self, count: int, carried: str, shape: Sequence) -> Iterator["Loop"]:
        """A loop of `count` rounds over one float32 tensor. What is added in the block is its body: it reads `round` (i64 []) and
        `value`, and sets `next`; behind the block `result` is the last value."""
        loop = Loop(self.new_name("round"), self.new_name("carried"))
        outer, self.nodes = self.nodes, []
        try:
            yield loop
            keep, go_on = self.new_name("keep"), self.new_name("go_on")
            self.op("Identity", [keep], outputs=[go_on])
            body = helper.make_graph(
                self.nodes,
                self.new_name("body"),
                [
                    helper.make_tensor_value_info(loop.round, TensorProto.INT64, []),
                    helper.make_tensor_value_info(keep, TensorProto.BOOL, []),
                    helper.make_tensor_value_info(loop.value, TensorProto.FLOAT, list(shape)),
                ],
                [
                    helper.make_tensor_value_info(go_on, TensorProto.BOOL, []),
                    helper.make_tensor_value_info(loop.next, TensorProto.FLOAT, list(shape)),
                ],
            )
        finally:
            self.nodes = outer
        trips, always = self.tensor(np.array(count, np.int64)), self.tensor(np.array(True))
        loop.result = self.op("Loop", [trips, always, carried], body=body)


class Loop:
    """See `Net.loop`."""

    def __init__(self, round_name: str, value: str) -> None:
        self.round = round_name
        self.value = value
        self.next = ""
        self.result = ""
