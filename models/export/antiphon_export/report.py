"""report.json: what an export measured of its graphs. The steps are teacher-forced: every precision gets the columns
that the fp32 graphs made of random codes, so that one difference does not become another. It reads the layout only.

    {"family": ..., "title": ..., "random_weights": false, "versions": {...},
     "precisions": {"fp32": {"files": {"decode.onnx": 123}, "bytes": 123, "cache_bytes_per_slot": 123},
                    "int8": {..., "steps": 1000, "first_code_agreement": 0.98, "other_code_agreement": 0.97}}}

Agreement is the share of steps in which the most likely token is that of fp32; of other codes, the share among those of
which all codes before them in the frame agree.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np

from .run import SUFFIXES, LanguageModel, graph_path

STEPS = 1000
ROWS = 8
# Of teacher-forced first codes; below it an int8 graph of a real checkpoint is refused.
LEAST_AGREEMENT = 0.9


def build_report(
    folder: Path,
    contract: Mapping[str, Any],
    precisions: Sequence[str],
    random_weights: bool,
    steps: int = STEPS,
    seed: int = 0,
) -> dict[str, Any]:
    """The report on an exported folder whose graphs of `precisions` are there."""
    import onnx
    import onnxruntime

    folder = Path(folder)
    report: dict[str, Any] = {
        "family": contract["name"],
        "title": contract["title"],
        "random_weights": random_weights,
        "versions": {
            "onnx": onnx.__version__,
            "onnxruntime": onnxruntime.__version__,
            "python": platform.python_version(),
        },
        "precisions": {},
    }
    for precision in precisions:
        files = {path.name: path.stat().st_size for path in _files(folder, precision)}
        entry = {"files": files, "bytes": sum(files.values()), "cache_bytes_per_slot": cache_bytes(contract, precision)}
        report["precisions"][precision] = entry
    others = [precision for precision in precisions if precision != "fp32"]
    if others:
        for precision, found in agreement(folder, contract, others, steps, seed).items():
            report["precisions"][precision] |= found
    return report


def cache_bytes(contract: Mapping[str, Any], precision: str) -> int:
    """Bytes of one row's cache."""
    decode = contract["decode"]
    columns = decode.get("capacity") or decode.get("context") or 0
    numbers = 2 * decode["layers"] * decode["heads"] * decode["head_size"] * columns
    return numbers * (2 if precision == "fp16" else 4)


def agreement(
    folder: Path, contract: Mapping[str, Any], precisions: Sequence[str], steps: int = STEPS, seed: int = 0
) -> dict[str, dict[str, Any]]:
    """For each precision, how often its most likely tokens are those of fp32."""
    rng = np.random.default_rng(seed)
    sounds = int(contract["tokens"]["sounds"])
    others = int(contract["tokens"].get("codebooks", 1)) - 1
    rows = min(ROWS, steps)
    teacher = LanguageModel(folder)
    hidden_size = next(port.shape[2] for port in teacher.decode.get_inputs() if port.name == "inputs_embeds")
    pupils = {precision: LanguageModel(folder, precision) for precision in precisions}
    counts = {precision: np.zeros(4, np.int64) for precision in precisions}
    batches: dict[str, Any] = {}
    batch = None
    hidden = np.zeros((rows, hidden_size), np.float32)
    for step in range(-(-steps // rows)):
        code = rng.integers(0, sounds, rows)
        if teacher.frame is not None:
            uniform = rng.random((rows, others)).astype(np.float32)
            _, columns = teacher.draw_frame(hidden, code, uniform, temperature=1.0)
        else:
            columns = teacher.embed.run(None, {"ids": code[:, None]})[0][:, 0]
        if batch is None:
            batch = teacher.prefill(list(columns[:, None]))
            batches = {precision: model.prefill(list(columns[:, None])) for precision, model in pupils.items()}
        else:
            batch.step(columns)
            for pupil in batches.values():
                pupil.step(columns)
        hidden = batch.hidden if batch.hidden is not None else hidden
        want = batch.logits.argmax(-1)
        frames = teacher.draw_frame(hidden, code)[0] if teacher.frame is not None else None
        for precision, pupil in batches.items():
            found = counts[precision]
            found[:2] += (pupil.logits.argmax(-1) == want).sum(), rows
            if frames is not None:
                equal = pupils[precision].draw_frame(hidden, code)[0] == frames
                until = np.concatenate([np.ones((rows, 1), bool), np.logical_and.accumulate(equal, 1)[:, :-1]], 1)
                found[2:] += (equal & until).sum(), until.sum()
    result = {}
    for precision, (equal, of, other_equal, other_of) in counts.items():
        result[precision] = {"steps": int(of), "first_code_agreement": round(float(equal / of), 4)}
        if other_of:
            result[precision]["other_code_agreement"] = round(float(other_equal / other_of), 4)
    return result


def _files(folder: Path, precision: str) -> list[Path]:
    """The graphs that are used in a precision, with their weights: in fp32 those without a suffix, else its own ones
    and, where there are none, those of fp32."""
    suffixes = tuple(suffix for suffix in SUFFIXES.values() if suffix)
    roles = sorted(path.stem for path in folder.glob("*.onnx") if not path.stem.endswith(suffixes))
    graphs = []
    for role in roles:
        own = graph_path(folder, role, precision)
        graphs.append(own if own.exists() else graph_path(folder, role))
    return [path for graph in graphs for path in (graph, graph.with_name(graph.name + "_data")) if path.exists()]
