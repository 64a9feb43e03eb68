"""Runs the graphs of an exported folder in Python, as the engine does: for checks, reports and tests. It reads the
layout's ports only and knows no family. Caches grow here; the engine keeps them in place."""

from __future__ import annotations

from pathlib import Path
from typing import Mapping, Sequence

import numpy as np
import onnxruntime as ort

from .errors import ExportError

SUFFIXES = {"fp32": "", "fp16": "_fp16", "int8": "_int8"}
NUMPY_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64}


def graph_path(folder: Path, role: str, precision: str = "fp32") -> Path:
    return Path(folder) / f"{role}{SUFFIXES[precision]}.onnx"


def open_graph(path: Path, threads: int = 1) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ExportError(f"ONNX Runtime does not load {Path(path).name}: {error}") from error


class LanguageModel:
    """`decode`, with `frame` or `embed` where they are there."""

    def __init__(self, folder: Path, precision: str = "fp32", threads: int = 1) -> None:
        self.decode = open_graph(self._path(folder, "decode", precision), threads)
        self.frame = self.embed = None
        for role in ("frame", "embed"):
            if graph_path(folder, role).exists():
                setattr(self, role, open_graph(self._path(folder, role, precision), threads))
        ports = {port.name: port for port in self.decode.get_inputs()}
        self.past = [name for name in ports if name.startswith("past.")]
        self.cache_type = NUMPY_TYPES[ports[self.past[0]].type]
        self.cache_shape = ports[self.past[0]].shape
        self.outputs = ["logits", "hidden", *(name.replace("past.", "present.") for name in self.past)]
        if "hidden" not in {port.name for port in self.decode.get_outputs()}:
            self.outputs.remove("hidden")

    @staticmethod
    def _path(folder: Path, role: str, precision: str) -> Path:
        own = graph_path(folder, role, precision)
        return own if own.exists() else graph_path(folder, role)

    def prefill(self, rows: Sequence[np.ndarray]) -> "Batch":
        """Rows of columns [S, H] of any lengths, padded on the right and run together."""
        lengths = np.array([len(row) for row in rows])
        columns = np.zeros((len(rows), lengths.max(), rows[0].shape[1]), np.float32)
        for padded, row in zip(columns, rows):
            padded[: len(row)] = row
        shape = (len(rows), self.cache_shape[1], 0, self.cache_shape[3])
        return Batch(self, lengths, {name: np.zeros(shape, self.cache_type) for name in self.past}).run(columns)

    def draw_frame(
        self,
        hidden: np.ndarray,
        code: np.ndarray,
        uniform: np.ndarray | None = None,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Codes [B, K - 1] and embeddings [B, H] of the frames that begin with `code` [B]."""
        if uniform is None:
            uniform = np.zeros((len(code), self.frame.get_inputs()[2].shape[1]), np.float32)
        feed = {
            "hidden": hidden,
            "code": code.astype(np.int64),
            "uniform": uniform,
            "temperature": np.array(temperature, np.float32),
            "top_k": np.array(top_k, np.int64),
            "top_p": np.array(top_p, np.float32),
        }
        return tuple(self.frame.run(["codes", "embeds"], feed))


class Batch:
    """Rows that are being decoded."""

    def __init__(self, model: LanguageModel, lengths: np.ndarray, cache: Mapping[str, np.ndarray]) -> None:
        self.model = model
        self.lengths = lengths
        self.cache = dict(cache)
        self.logits = self.hidden = None

    def run(self, columns: np.ndarray) -> "Batch":
        feed = dict(self.cache)
        feed["inputs_embeds"] = columns
        feed["lengths"] = (self.lengths - 1).astype(np.int32)
        feed["total"] = np.array(self.lengths.max(), np.int32)
        names = self.model.outputs
        values = dict(zip(names, self.model.decode.run(names, feed)))
        self.logits = values["logits"][:, 0]
        self.hidden = values["hidden"][:, 0] if "hidden" in values else None
        self.cache = {name: values[name.replace("past.", "present.")] for name in self.model.past}
        return self

    def step(self, columns: np.ndarray) -> "Batch":
        """One column [B, H] more for every row."""
        self.lengths = self.lengths + 1
        return self.run(columns[:, None])


def greedy_frames(
    model: LanguageModel, prompts: Sequence[tuple[np.ndarray, np.ndarray | None]], count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The most likely frames [B, count, K] of prompts (embeds [L, H], following [T, H] or none), and the logits [B, V]
    of the prefill. Ids that end the speech are fed as any other."""
    batch = model.prefill([embeds for embeds, _ in prompts])
    first, frames = batch.logits, []
    for step in range(count):
        code = batch.logits.argmax(-1)
        if model.frame is not None:
            codes, columns = model.draw_frame(batch.hidden, code)
            frames.append(np.concatenate([code[:, None], codes], 1))
        else:
            columns = model.embed.run(None, {"ids": code[:, None]})[0][:, 0]
            frames.append(code[:, None])
        added = [None if following is None else following[min(step, len(following) - 1)] for _, following in prompts]
        columns = columns + np.stack([np.zeros_like(columns[0]) if row is None else row for row in added])
        if step + 1 < count:
            batch.step(columns.astype(np.float32))
    return np.stack(frames, 1), first


class Vocode:
    """`vocode` of one stream or several that go in step."""

    def __init__(self, folder: Path, threads: int = 1) -> None:
        self.session = open_graph(graph_path(folder, "vocode"), threads)
        self.ports = {port.name: port for port in self.session.get_inputs()}

    def empty_state(self, rows: int, fills: Mapping[str, float] | None = None) -> dict[str, np.ndarray]:
        return {
            name: np.full((rows, *port.shape[1:]), (fills or {}).get(name, 0.0), NUMPY_TYPES[port.type])
            for name, port in self.ports.items()
            if name.startswith("state.")
        }

    def run(self, codes: np.ndarray, state: Mapping[str, np.ndarray], **more: np.ndarray):
        """Sound [B, channels, samples] and the next state."""
        names = ["waveform", *(name.replace("state.", "next.") for name in state)]
        values = dict(zip(names, self.session.run(names, {"codes": codes, **state, **more})))
        return values["waveform"], {name: values[name.replace("state.", "next.")] for name in state}
