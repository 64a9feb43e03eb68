"""Runs the graphs of `true_size.py` with PyTorch and with ONNX Runtime for comparison: the same graphs and tokens.

    python -m antiphon_export.synthetic.torch_run FOLDER [--device cpu|cuda] [--batches 1,4,8,16] [--tokens 60] [--rounds 5] [--json]

PyTorch executes each node as its own operator of that kind (the table in this file), in inference mode. First, with
noise disabled, both outputs are compared. A figure is the median of the rounds after one warm-up round. ONNX Runtime
here is the Python package's; the hub's own figures on the same graphs are those of `antiphon bench --only engines`.

Needs the Python packages numpy, onnx, torch and onnxruntime (on a GPU: onnxruntime-gpu).
"""

import argparse
import json
import pathlib
import statistics
import time

import numpy
import onnx
import onnxruntime
import torch
from onnx import numpy_helper
from torch.nn import functional as F

# Sampling rate in Hz, name of the token input, and additional inputs for a batch of n.
FAMILIES = {
    "piper": (22_050, "input", lambda n: {"scales": numpy.array([0, 1, 0], numpy.float32)}),
    "kokoro": (
        24_000,
        "input_ids",
        lambda n: {"style": numpy.zeros((n, 256), numpy.float32), "speed": numpy.ones(1, numpy.float32)},
    ),
}
TYPES = {1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool}


def conv(transposed):
    def run(a, x, weight, bias=None):
        before, behind = a.get("pads", [0, 0])
        stride, dilation, groups = a.get("strides", [1]), a.get("dilations", [1]), a.get("group", 1)
        if transposed:
            # PyTorch crops `before` at both ends; output padding adds back the difference at the end.
            more = before - behind + a.get("output_padding", [0])[0]
            return F.conv_transpose1d(x, weight, bias, stride, before, more, groups, dilation)
        if before != behind:
            x, before = F.pad(x, (before, behind)), 0
        return F.conv1d(x, weight, bias, stride, before, dilation, groups)

    return run


def take(a, x, starts, ends, axes=None, steps=None):
    for i, axis in enumerate(range(len(starts)) if axes is None else axes.tolist()):
        step = 1 if steps is None else int(steps[i])
        places = range(*slice(int(starts[i]), int(ends[i]), step).indices(x.shape[axis]))
        if step == 1:
            x = x.narrow(axis, places.start, len(places))
        else:
            x = x.index_select(axis, torch.tensor(places, device=x.device))
    return x


def split(a, x, sizes=None):
    axis = a.get("axis", 0)
    return x.split(x.shape[axis] // a["n_outputs"] if sizes is None else sizes.tolist(), axis)


def reshape(a, x, shape):
    return x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(shape.tolist())])


def squeeze(a, x, axes):
    for axis in sorted((axis % x.dim() for axis in axes.tolist()), reverse=True):
        x = x.squeeze(axis)
    return x


def unsqueeze(a, x, axes):
    for axis in sorted(axis % (x.dim() + len(axes)) for axis in axes.tolist()):
        x = x.unsqueeze(axis)
    return x


def lstm(a, x, w, r, b, *rest):
    """Bidirectional, without initial states. ONNX orders the gates i o f c, PyTorch i f c o."""
    hidden = a["hidden_size"]

    def order(m):
        i, o, f, c = m.split(hidden)
        return torch.cat([i, f, c, o])

    flat = []
    for d in range(w.shape[0]):
        flat += [order(w[d]), order(r[d]), order(b[d, : 4 * hidden]), order(b[d, 4 * hidden :])]
    zeros = x.new_zeros(w.shape[0], x.shape[1], hidden)
    y, _, _ = torch._VF.lstm(x, (zeros, zeros), flat, True, 1, 0.0, False, w.shape[0] == 2, False)
    return y.reshape(*y.shape[:2], w.shape[0], hidden).transpose(1, 2)


OPS = {
    "Add": lambda a, x, y: x + y,
    "Sub": lambda a, x, y: x - y,
    "Mul": lambda a, x, y: x * y,
    "Div": lambda a, x, y: x / y,
    "Less": lambda a, x, y: x < y,
    "MatMul": lambda a, x, y: x @ y,
    "Erf": lambda a, x: torch.erf(x),
    "Exp": lambda a, x: torch.exp(x),
    "Sin": lambda a, x: torch.sin(x),
    "Cos": lambda a, x: torch.cos(x),
    "Tanh": lambda a, x: torch.tanh(x),
    "Relu": lambda a, x: torch.relu(x),
    "Sigmoid": lambda a, x: torch.sigmoid(x),
    "LeakyRelu": lambda a, x: F.leaky_relu(x, a.get("alpha", 0.01)),
    "Softmax": lambda a, x: torch.softmax(x, a.get("axis", -1)),
    "Cast": lambda a, x: x.to(TYPES[a["to"]]),
    "Conv": conv(False),
    "ConvTranspose": conv(True),
    "InstanceNormalization": lambda a, x, s, b: F.instance_norm(x, weight=s, bias=b, eps=a.get("epsilon", 1e-5)),
    "LayerNormalization": lambda a, x, s, b: F.layer_norm(x, s.shape, s, b, a.get("epsilon", 1e-5)),
    "ReduceMean": lambda a, x: x.mean(a["axes"], keepdim=bool(a.get("keepdims", 1))),
    "Transpose": lambda a, x: x.permute(a["perm"]),
    "Reshape": reshape,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Concat": lambda a, *x: torch.cat(x, a["axis"]),
    "Split": split,
    "Slice": take,
    "Gather": lambda a, x, i: x.index_select(a.get("axis", 0), i.reshape(-1)).reshape(
        *x.shape[: a.get("axis", 0)], *i.shape, *x.shape[a.get("axis", 0) + 1 :]
    ),
    "Expand": lambda a, x, shape: x.expand(torch.broadcast_shapes(x.shape, tuple(shape.tolist()))),
    "Shape": lambda a, x: torch.tensor(x.shape),
    "Range": lambda a, begin, end, step: torch.arange(int(begin), int(end), int(step), device=a["device"]),
    "RandomNormalLike": lambda a, x: torch.randn_like(x),
    "LSTM": lstm,
}
# Inputs that contain a shape or an index stay on the CPU, as PyTorch requires.
PLAIN = {"Reshape": (1,), "Squeeze": (1,), "Unsqueeze": (1,), "Split": (1,), "Slice": (1, 2, 3, 4), "Expand": (1,), "Range": (0, 1, 2)}


class Torch:
    """A graph with its weights on the device."""

    def __init__(self, path, device):
        graph = onnx.load(path).graph
        self.device = device
        self.nodes = [(n.op_type, list(n.input), list(n.output), self.attributes(n)) for n in graph.node]
        self.outputs = [output.name for output in graph.output]
        # Tensors that no later node needs are released after each node, as PyTorch's own modules do.
        self.gone, kept = [], set(self.outputs) | {w.name for w in graph.initializer}
        for _, inputs, outputs, _ in reversed(self.nodes):
            self.gone.append([name for name in {*inputs, *outputs} if name and name not in kept])
            kept |= {*inputs, *outputs}
        self.gone.reverse()
        self.weights = {w.name: torch.from_numpy(numpy_helper.to_array(w).copy()) for w in graph.initializer}
        self.weights = {name: weight.to(device) for name, weight in self.weights.items()}

    def attributes(self, node):
        given = {"device": self.device, "n_outputs": len(node.output)}
        return {**given, **{a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}}

    @torch.inference_mode()
    def run(self, feed):
        values = dict(self.weights)
        values |= {name: torch.from_numpy(value).to(self.device) for name, value in feed.items()}
        for (kind, inputs, outputs, attributes), gone in zip(self.nodes, self.gone):
            given = [values[name] if name else None for name in inputs]
            for i in PLAIN.get(kind, ()):
                if i < len(given) and given[i] is not None:
                    given[i] = given[i].cpu()
            made = OPS[kind](attributes, *given)
            for name, value in zip(outputs, made if isinstance(made, tuple | list) else (made,)):
                values[name] = value
            del given, made
            for name in gone:
                del values[name]
        # Copying to the CPU waits for the device, so the wait is part of the run.
        return [values[name].cpu().numpy() for name in self.outputs]


class Ort:
    def __init__(self, path, device):
        provider = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}[device]
        self.session = onnxruntime.InferenceSession(path, providers=[provider])
        assert self.session.get_providers()[0] == provider, f"{provider} does not serve here"

    def run(self, feed):
        return self.session.run(None, feed)


def feed(family, batch, tokens):
    _, name, others = FAMILIES[family]
    ids = numpy.random.default_rng(1).integers(1, 40, (batch, tokens), dtype=numpy.int64)
    return {name: ids, "input_lengths": numpy.full(batch, tokens, numpy.int64), **others(batch)}


def measured(runner, family, batch, options):
    given = feed(family, batch, options.tokens)
    sound = runner.run(given)[0]
    seconds = sound.size / batch / FAMILIES[family][0]
    took = []
    for _ in range(options.rounds):
        begun = time.perf_counter()
        runner.run(given)
        took.append(time.perf_counter() - begun)
    run = statistics.median(took)
    return {"batch": batch, "run_ms": 1e3 * run, "rtf": run / (batch * seconds), "chunks_per_min": 60 * batch / run}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--batches", default="1,4,8,16")
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    name = torch.cuda.get_device_name() if options.device == "cuda" else f"cpu, {torch.get_num_threads()} threads"
    lines = []
    for family in FAMILIES:
        path = str(options.folder / family / "model.onnx")
        runners = {"torch": Torch(path, options.device), "onnxruntime": Ort(path, options.device)}
        ours, theirs = (runner.run(feed(family, 2, 20)) for runner in runners.values())
        worst = max(float(numpy.abs(a - b).max()) for a, b in zip(ours, theirs))
        assert worst < 1e-2, f"{family}: the two do not make the same sound: {worst}"
        for batch in map(int, options.batches.split(",")):
            for by, runner in runners.items():
                lines.append({"family": family, "by": by, "device": name, **measured(runner, family, batch, options)})
                if not options.json:
                    line = lines[-1]
                    print(
                        f"{family:7} batch {batch:2} {by:12} {line['run_ms']:9.1f} ms  RTF {line['rtf']:.4f}  "
                        f"{line['chunks_per_min']:8.0f} chunks/min  on {name}",
                        flush=True,
                    )
    if options.json:
        print(json.dumps(lines, indent=1))


main()
