"""The graph `condition` of CosyVoice3: a recording to what the language model and the flow need of it.

The makers' checkpoint holds two ONNX graphs, of the speaker (campplus) and of the speech tokens. Their inputs are features that
the makers compute in Python; here the features are part of the graph: resampling and Fourier transforms as convolutions, filter
banks as matrices. `front_end` is that part, `build` puts the makers' graphs behind it, and `verify` runs the result beside them.

Matrices of Fourier transforms and filter banks are not stored: the graph makes them of a few numbers, and a runtime folds them
into constants when it loads the graph. Stored they would be 20 MB.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from ..errors import ExportError
from ..transformer import OPSET
from .cosyvoice3_graph import Net

FLOAT, DOUBLE, INT64, INT32 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.INT32
RATE_HZ = 24000
LOW_RATE_HZ = 16000
MEL_HOP = 480
MEL_PER_TOKEN = 2


@dataclass(frozen=True)
class Official:
    """A graph of the makers, its ports and its name in the merged graph."""

    path: Path
    prefix: str
    n_inputs: int

    def load(self) -> Any:
        """The graph, checked for the number of its ports."""
        import onnx

        try:
            model = onnx.load(str(self.path))
        except Exception as error:
            raise ExportError(f"{self.path} is no ONNX file: {error}; download the checkpoint again") from error
        known = {tensor.name for tensor in model.graph.initializer}
        inputs = [port.name for port in model.graph.input if port.name not in known]
        if len(inputs) != self.n_inputs or len(model.graph.output) < 1:
            raise ExportError(
                f"{self.path} has the inputs {', '.join(inputs)}: {self.n_inputs} were expected; it is of another model"
            )
        del model.graph.output[1:]
        return model


def front_end() -> Net:
    """The features of a recording `audio` [1, N] at 24 kHz: `fbank` [1, T, 80] for the speaker, `feats` [1, 128, T] and
    `feats_length` i32 [1] for the tokens, `mel` [1, T, 80] for the flow."""
    net = Net("condition")
    audio = net.input("audio", FLOAT, [1, "samples"])
    net.output("mel", FLOAT, [1, "mel_frames", 80])
    net.output("fbank", FLOAT, [1, "fbank_frames", 80])
    net.output("feats", FLOAT, [1, 128, "feat_frames"])
    net.output("feats_length", INT32, [1])

    n_fft = 4 * MEL_HOP
    edge = (n_fft - MEL_HOP) // 2
    power = _powers(net, _mirrored(net, audio, edge), _fourier(net, n_fft, _hann(n_fft)), MEL_HOP)
    size = net.op("Sqrt", [net.add(power, net.floats(1e-9))])
    size = net.op("MatMul", [_slaney(net, 80, n_fft, RATE_HZ), size])
    net.result(net.transpose(net.op("Log", [net.op("Max", [size, net.floats(1e-5)])])), "mel")

    low = _resampled(net, audio)
    power = _powers(net, _mirrored(net, low, 200), _fourier(net, 400, _hann(400)), 160)
    power = net.cut(power, 0, -1, axis=2)
    loud = net.op("MatMul", [_slaney(net, 128, 400, LOW_RATE_HZ), power])
    loud = net.op("Div", [net.op("Log", [net.op("Max", [loud, net.floats(1e-10)])]), net.floats(np.log(10.0))])
    loudest = net.op("ReduceMax", [loud, net.ints([0, 1, 2])], keepdims=1)
    loud = net.op("Max", [loud, net.sub(loudest, net.floats(8.0))])
    net.result(net.op("Div", [net.add(loud, net.floats(4.0)), net.floats(4.0)]), "feats")
    net.result(net.cast(net.size(loud, 2), INT32), "feats_length")

    # Kaldi's: each frame loses its mean, is emphasized and windowed, all of which is one matrix.
    window = np.hanning(400) ** 0.85
    transform = _fourier(net, 512, window, keep_double=True)
    following = net.pad_axis(net.cut(transform, 1, axis=1), 0, 1, 1)
    first = net.pad_axis(net.cut(transform, 0, 1, axis=1), 0, 399, 1)
    transform = net.sub(transform, net.mul(net.add(following, first), net.double(0.97)))
    transform = net.sub(transform, net.op("ReduceMean", [transform, net.ints([1])], keepdims=1))
    power = _powers(net, low, net.unsqueeze(net.cast(transform, FLOAT), [1]), 160)
    bank = net.op("MatMul", [_kaldi(net, 80, 512, LOW_RATE_HZ), power])
    bank = net.transpose(net.op("Log", [net.op("Max", [bank, net.floats(np.finfo(np.float32).eps)])]))
    net.result(net.sub(bank, net.op("ReduceMean", [bank, net.ints([1])], keepdims=1)), "fbank")
    return net


def build(path: Path, speaker: Path, tokens: Path, speaker_size: int) -> Any:
    """The model, as an `onnx.ModelProto`; `speaker_size` is how many numbers a speaker has. Nothing is written but `path`, where
    the front end lies for a moment."""
    import onnx
    from onnx import compose, helper

    front_end().save(path)
    try:
        front = onnx.load(str(path))
    finally:
        path.unlink()
    parts = [Official(speaker, "speaker/", 1), Official(tokens, "tokens/", 2)]
    models = [part.load() for part in parts]
    opset = max([OPSET, *(_opset(model) for model in models)])
    models = [_converted(model, opset, part.path) for model, part in zip(models, parts)]
    front = _converted(front, opset, path)
    merged = front
    for model, part, sources in zip(models, parts, [["fbank"], ["feats", "feats_length"]]):
        known = {tensor.name for tensor in model.graph.initializer}
        ports = [port.name for port in model.graph.input if port.name not in known]
        # Initializers of old graphs are inputs too: nobody sets them.
        inputs = [port for port in model.graph.input if port.name not in known]
        del model.graph.input[:]
        model.graph.input.extend(inputs)
        kept = [port.name for port in merged.graph.output if port.name not in sources]
        model = compose.add_prefix(model, part.prefix)
        model.ir_version = merged.ir_version
        merged = compose.merge_models(
            merged,
            model,
            io_map=[(source, part.prefix + port) for source, port in zip(sources, ports)],
            outputs=[*kept, *(port.name for port in model.graph.output)],
        )
    graph = merged.graph
    embedding, codes = [next(o.name for o in graph.output if o.name.startswith(part.prefix)) for part in parts]

    # As the makers do: tokens and mel frames are cut to one length.
    net = Net("behind")
    flat = net.reshape(net.cast(codes, INT64), [1, -1])
    halves = net.op("Div", [net.size("mel", 1), net.ints([MEL_PER_TOKEN])])
    length = net.op("Min", [halves, net.size(flat, 1)])
    net.result(net.cut(flat, 0, length), "prompt_codes")
    net.result(net.cut("mel", 0, net.mul(length, net.ints([MEL_PER_TOKEN]))), "prompt_mel")
    net.result(net.reshape(embedding, [1, speaker_size]), "speaker")
    rename = {name: f"behind/{name}" for name in net._tensors}
    for node in net.nodes:
        rename.update({out: f"behind/{out}" for out in node.output if out not in OUTPUTS})
    for node in net.nodes:
        node.name = f"behind/{node.name}"
        node.input[:] = [rename.get(name, name) for name in node.input]
        node.output[:] = [rename.get(name, name) for name in node.output]
    graph.node.extend(net.nodes)
    graph.initializer.extend(onnx.numpy_helper.from_array(a, rename[n]) for n, a in net._tensors.items())
    del graph.output[:]
    graph.output.extend(
        [
            helper.make_tensor_value_info("prompt_codes", INT64, [1, "prompt_tokens"]),
            helper.make_tensor_value_info("prompt_mel", FLOAT, [1, "prompt_frames", 80]),
            helper.make_tensor_value_info("speaker", FLOAT, [1, speaker_size]),
        ]
    )
    # Shapes that the makers' exporter wrote down are of no use to a runtime, and may contradict the new ports.
    del graph.value_info[:]
    merged.producer_name, merged.producer_version = "antiphon_export", ""
    return merged


OUTPUTS = ("prompt_codes", "prompt_mel", "speaker")


def verify(merged: Path, speaker: Path, tokens: Path, seed: int = 0) -> None:
    """Runs the merged graph beside the makers' on three seconds of noise-like sound, and refuses it where they differ."""
    import onnxruntime

    rng = np.random.default_rng(seed)
    time = np.arange(3 * RATE_HZ) / RATE_HZ
    sound = 0.3 * np.sin(2 * np.pi * (150 + 40 * np.sin(3 * time)) * time) + 0.05 * rng.standard_normal(time.size)
    audio = (sound * (0.6 + 0.4 * np.sin(9 * time)))[None].astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3

    def session(path: Any) -> Any:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    net = front_end()
    part = merged.with_name(merged.name + ".front")
    net.save(part)
    try:
        mel, fbank, feats, length = session(str(part)).run(["mel", "fbank", "feats", "feats_length"], {"audio": audio})
    finally:
        part.unlink()

    def official(path: Path, values: list[np.ndarray]) -> np.ndarray:
        graph = session(str(path))
        return graph.run(None, {port.name: value for port, value in zip(graph.get_inputs(), values)})[0]

    codes, frames, embedding = session(str(merged)).run(list(OUTPUTS), {"audio": audio})
    expected = official(tokens, [feats, length]).reshape(-1)
    n = min(expected.size, mel.shape[1] // MEL_PER_TOKEN)
    wanted = official(speaker, [fbank]).reshape(-1)
    if not np.array_equal(codes[0], expected[:n]) or frames.shape[1] != MEL_PER_TOKEN * n:
        raise ExportError(
            f"{tokens} gives other tokens inside of the graph `condition`: its operators cannot be converted to operator set"
            f" {OPSET}; report its operator set with the version of onnx"
        )
    if np.abs(embedding[0] - wanted).max() > 1e-3 * max(1.0, np.abs(wanted).max()):
        raise ExportError(
            f"{speaker} gives another speaker inside of the graph `condition`: its operators cannot be converted to operator"
            f" set {OPSET}; report its operator set with the version of onnx"
        )


def _hann(size: int) -> np.ndarray:
    """Periodic."""
    return np.hanning(size + 1)[:-1]


def _mirrored(net: Net, sound: str, edge: int) -> str:
    """Both edges mirrored."""
    return net.op("Pad", [sound, net.ints([edge, edge]), "", net.ints([1])], mode="reflect")


def _powers(net: Net, sound: str, transform: str, hop: int) -> str:
    """Power of each frequency [1, bins, frames]; the transform [2 * bins, 1, size] has cosines, then sines."""
    both = net.op("Conv", [net.unsqueeze(sound, [1]), transform], strides=[hop])
    real, imaginary = net.op("Split", [both], outputs=2, axis=1, num_outputs=2)
    return net.add(net.mul(real, real), net.mul(imaginary, imaginary))


def _fourier(net: Net, n_fft: int, window: np.ndarray, keep_double: bool = False) -> str:
    """Windowed cosines and sines [2 * bins, 1, size] as a convolution's weight; [2 * bins, size] in double precision."""
    bins = net.unsqueeze(net.arange(net.ints([n_fft // 2 + 1])), [1])
    turns = net.mul(bins, net.unsqueeze(net.arange(net.ints([window.size])), [0]))
    turns = net.cast(net.op("Mod", [turns, net.ints([n_fft])]), DOUBLE)
    angle = net.mul(turns, net.double(2 * np.pi / n_fft))
    both = net.concat([net.op("Cos", [angle]), net.op("Sin", [angle])], 0)
    both = net.mul(both, net.double(window))
    return both if keep_double else net.unsqueeze(net.cast(both, FLOAT), [1])


def _resampled(net: Net, audio: str) -> str:
    """24 to 16 kHz: torchaudio's windowed sinc, as a convolution with two phases."""
    old, new, zeros, rolloff = 3, 2, 6, 0.99
    base = min(old, new) * rolloff
    width = int(np.ceil(zeros * old / base))
    time = np.arange(0, -new, -1)[:, None] / new + np.arange(-width, width + old)[None] / old
    time = np.clip(time * base, -zeros, zeros)
    kernel = np.sinc(time) * np.cos(time * np.pi / zeros / 2) ** 2 * base / old
    sound = net.unsqueeze(net.pad_axis(audio, width, width + old, 1), [1])
    sound = net.conv(sound, kernel[:, None].astype(np.float32), strides=[old])
    sound = net.reshape(net.transpose(sound), [1, -1])
    length = net.mul(net.size(audio, 1), net.ints([new]))
    return net.cut(sound, 0, net.op("Div", [net.add(length, net.ints([old - 1])), net.ints([old])]))


def _triangles(net: Net, edges: np.ndarray, places: str, heights: np.ndarray) -> str:
    """Filters [n, bins] between neighbouring `edges` [n + 2], over `places` [bins]."""
    places = net.unsqueeze(places, [0])
    width = np.diff(edges)

    def column(values: np.ndarray) -> str:
        return net.double(values[:, None])

    rising = net.op("Div", [net.sub(places, column(edges[:-2])), column(width[:-1])])
    falling = net.op("Div", [net.sub(column(edges[2:]), places), column(width[1:])])
    filters = net.op("Max", [net.op("Min", [rising, falling]), net.double(0.0)])
    return net.cast(net.mul(filters, column(heights)), FLOAT)


def _places(net: Net, count: int, step_hz: float) -> str:
    return net.mul(net.cast(net.arange(net.ints([count])), DOUBLE), net.double(step_hz))


def _slaney(net: Net, n_mels: int, n_fft: int, rate_hz: int) -> str:
    """Slaney's filters of equal area, from 0 Hz to half the rate."""
    low_hz, per_mel, knee_hz, growth = 0.0, 200.0 / 3, 1000.0, np.log(6.4) / 27
    knee = (knee_hz - low_hz) / per_mel
    highest = knee + np.log(rate_hz / 2 / knee_hz) / growth
    mels = np.linspace(0.0, highest, n_mels + 2)
    edges = np.where(mels < knee, per_mel * mels, knee_hz * np.exp(growth * (mels - knee)))
    places = _places(net, n_fft // 2 + 1, rate_hz / n_fft)
    return _triangles(net, edges, places, 2.0 / (edges[2:] - edges[:-2]))


def _kaldi(net: Net, n_mels: int, n_fft: int, rate_hz: int) -> str:
    """Kaldi's filters, triangles on its mel scale from 20 Hz to half the rate; the highest frequency is in none."""

    def mel(hz: float) -> float:
        return 1127.0 * np.log(1.0 + hz / 700.0)

    edges = np.linspace(mel(20.0), mel(rate_hz / 2), n_mels + 2)
    hz = _places(net, n_fft // 2, rate_hz / n_fft)
    places = net.mul(
        net.op("Log", [net.add(net.op("Div", [hz, net.double(700.0)]), net.double(1.0))]), net.double(1127.0)
    )
    return net.pad_axis(_triangles(net, edges, places, np.ones(n_mels)), 0, 1, 1)


def _opset(model: Any) -> int:
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1)


def _converted(model: Any, opset: int, path: Path) -> Any:
    """The model with the operators of another set."""
    from onnx import version_converter

    if _opset(model) == opset:
        return model
    if _opset(model) < 7:
        raise ExportError(f"{path}: operator set {_opset(model)} is too old to be merged; 7 or a later one is needed")
    try:
        return version_converter.convert_version(model, opset)
    except Exception as error:
        raise ExportError(
            f"{path}: its operator set {_opset(model)} cannot be converted to {opset} ({error}); try another version of onnx"
        ) from error
