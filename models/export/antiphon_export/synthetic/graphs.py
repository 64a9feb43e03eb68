"""A builder of ONNX graphs with random weights, shared by the modules of this folder; it runs no model.

Needs the Python packages onnx and numpy.
"""

import numpy
from onnx import TensorProto, checker, helper, numpy_helper, save

FLOAT, FLOAT16, INT32, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.INT64


class Graph:
    """A graph built node by node; each method returns the name of its output."""

    def __init__(self, seed):
        self.nodes, self.weights, self.known = [], [], {}
        self.random = numpy.random.default_rng(seed)
        self.n_parameters = 0
        self.n_names = 0
        # What a reader finds as the model's own properties.
        self.metadata = {}
        # A layer that is used several times: the weights of its first use, and the position of the next use in them.
        self.made, self.used = None, None

    def name(self, stem):
        self.n_names += 1
        return f"{stem}_{self.n_names}"

    def op(self, kind, *inputs, n=1, **attributes):
        outputs = [self.name(kind.lower()) for _ in range(n)]
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, **attributes))
        return outputs[0] if n == 1 else outputs

    def node(self, kind, inputs, outputs, **attributes):
        """A node whose outputs are named."""
        self.nodes.append(helper.make_node(kind, inputs, outputs, **attributes))

    def constant(self, array):
        array = numpy.asarray(array)
        key = (array.dtype.str, array.shape, array.tobytes())
        if array.size < 64 and key in self.known:
            return self.known[key]
        name = self.name("c")
        self.weights.append(numpy_helper.from_array(array, name))
        self.known[key] = name
        return name

    def f(self, *numbers):
        return self.constant(numpy.array(numbers if len(numbers) != 1 else numbers[0], numpy.float32))

    def i(self, *numbers):
        return self.constant(numpy.array(numbers, numpy.int64))

    def weight(self, *shape, fan_in=None):
        """Random weights, scaled so that activations keep their magnitude."""
        if self.used is not None:
            self.used += 1
            return self.made[self.used - 1]
        fan_in = fan_in or int(numpy.prod(shape[1:])) or 1
        self.n_parameters += int(numpy.prod(shape))
        array = self.random.standard_normal(shape, numpy.float32) / numpy.float32(numpy.sqrt(fan_in))
        name = self.constant(array.astype(numpy.float32))
        if self.made is not None:
            self.made.append(name)
        return name

    def conv(self, x, n_in, n_out, kernel=1, dilation=1, groups=1, bias=True, stride=1, pads=None):
        pad = dilation * (kernel - 1) // 2
        pads = pads or [pad, pad]
        inputs = [x, self.weight(n_out, n_in // groups, kernel)] + ([self.weight(n_out, fan_in=100)] if bias else [])
        return self.op(
            "Conv", *inputs, kernel_shape=[kernel], pads=pads, dilations=[dilation], group=groups, strides=[stride]
        )

    def up(self, x, n_in, n_out, kernel, stride):
        pad = (kernel - stride) // 2
        w = self.weight(n_in, n_out, kernel, fan_in=n_in * kernel // stride)
        return self.op(
            "ConvTranspose", x, w, self.weight(n_out, fan_in=100),
            kernel_shape=[kernel], strides=[stride], pads=[pad, pad],
            output_padding=[(stride - kernel) % 2],
        )

    def linear(self, x, n_in, n_out):
        return self.op("Add", self.op("MatMul", x, self.weight(n_in, n_out, fan_in=n_in)), self.weight(n_out, fan_in=100))

    def leaky(self, x, alpha=0.1):
        return self.op("LeakyRelu", x, alpha=alpha)

    def norm(self, x, size):
        ones, zeros = numpy.ones(size, numpy.float32), numpy.zeros(size, numpy.float32)
        self.n_parameters += 2 * size
        return self.op("LayerNormalization", x, self.constant(ones), self.constant(zeros), axis=-1)

    def swap(self, x):
        """Transposes between channels first and channels last."""
        return self.op("Transpose", x, perm=[0, 2, 1])

    def norm_channels(self, x, size):
        return self.swap(self.norm(self.swap(x), size))

    def times(self, x, y):
        return self.op("Mul", x, y)

    def plus(self, x, y):
        return self.op("Add", x, y)

    def gelu(self, x):
        erf = self.op("Erf", self.times(x, self.f(0.70710678)))
        return self.times(self.times(x, self.f(0.5)), self.plus(erf, self.f(1.0)))

    def attention(self, x, size, n_heads, far):
        """x and the result: [batch, n, size]; far: [batch, 1, 1, n], very negative at masked positions."""
        each = size // n_heads
        split = self.i(0, 0, n_heads, each)

        def heads(y, perm):
            return self.op("Transpose", self.op("Reshape", y, split), perm=perm)

        q = heads(self.linear(x, size, size), [0, 2, 1, 3])
        k = heads(self.linear(x, size, size), [0, 2, 3, 1])
        v = heads(self.linear(x, size, size), [0, 2, 1, 3])
        scores = self.times(self.op("MatMul", q, k), self.f(1.0 / each**0.5))
        mixed = self.op("MatMul", self.op("Softmax", self.plus(scores, far), axis=-1), v)
        joined = self.op("Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]), self.i(0, 0, size))
        return self.linear(joined, size, size)

    def lstm(self, x, size, hidden):
        """Bidirectional LSTM; x: [batch, n, size], the result: [batch, n, 2 hidden]."""
        w = self.weight(2, 4 * hidden, size, fan_in=size)
        r = self.weight(2, 4 * hidden, hidden, fan_in=hidden)
        b = self.weight(2, 8 * hidden, fan_in=100)
        y = self.op("LSTM", self.op("Transpose", x, perm=[1, 0, 2]), w, r, b, hidden_size=hidden, direction="bidirectional")
        return self.op("Reshape", self.op("Transpose", y, perm=[2, 0, 1, 3]), self.i(0, 0, 2 * hidden))

    def mask(self, ids, lengths):
        """Mask [batch, 1, n] of ones and zeros."""
        n = self.op("Squeeze", self.op("Slice", self.op("Shape", ids), self.i(1), self.i(2)), self.i(0))
        places = self.op("Range", self.constant(numpy.int64(0)), n, self.constant(numpy.int64(1)))
        there = self.op("Less", self.op("Unsqueeze", places, self.i(0)), self.op("Unsqueeze", lengths, self.i(1)))
        return self.op("Unsqueeze", self.op("Cast", there, to=FLOAT), self.i(1))

    def far(self, mask):
        """Attention mask: 0 at valid positions, very negative elsewhere."""
        return self.op("Unsqueeze", self.times(self.op("Sub", mask, self.f(1.0)), self.f(1e4)), self.i(1))

    def repeat(self, x, channels, times):
        """Repeats each column `times` times: [batch, channels, n] to [batch, channels, n times]."""
        ones = self.op("Expand", self.op("Unsqueeze", x, self.i(3)), self.i(1, 1, 1, times))
        return self.op("Reshape", ones, self.i(0, channels, -1))

    def save(self, path, name, inputs, outputs, external=False):
        """Writes the model; with `external`, its larger weights to a file beside it that ends in `_data`."""
        graph = helper.make_graph(self.nodes, name, inputs, outputs, self.weights)
        domains = {node.domain for node in self.nodes}
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid(domain, 1 if domain else 17) for domain in sorted(domains)],
            ir_version=8, producer_name="antiphon, random weights",
        )
        helper.set_model_props(model, {key: str(text) for key, text in self.metadata.items()})
        data = path.with_name(path.name + "_data")
        data.unlink(missing_ok=True)
        if external:
            save(model, path, save_as_external_data=True, location=data.name, size_threshold=1024)
            data.chmod(path.stat().st_mode)
        else:
            save(model, path)
        checker.check_model(str(path))
        size = sum(each.stat().st_size for each in (path, data) if each.exists())
        print(f"{path}: {self.n_parameters / 1e6:.1f} million random weights, {size / 1e6:.1f} MB", flush=True)


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)
