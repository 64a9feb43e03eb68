"""Files of an export: a folder that appears whole or not at all, ONNX files with their weights beside them,
contract.toml, what a checkpoint's files say of themselves, and the memory that an export needs. No function here knows
a family."""

from __future__ import annotations

import json
import os
import shutil
import struct
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from .errors import ExportError

# Types of weights that can be converted without loss to float32.
FLOAT_TYPES = {"F32", "F16", "BF16"}
# Tensors of these types count or number something and are no weights.
OTHER_TYPES = {"I64", "I32", "U8", "BOOL"}


@contextmanager
def folder_at_once(out: Path, force: bool = False) -> Iterator[Path]:
    """A temporary folder beside `out` that becomes `out` when the block ends, and is removed when it fails. An `out`
    that exists is replaced with `force` only, where it is an export or empty, and then only after the block ended."""
    out = real(out)
    _check_out(out, force)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".part", dir=out.parent))
    except OSError as error:
        raise ExportError(f"{out.parent} cannot be written: {error.strerror or error}") from error
    try:
        yield made
        # mkdtemp gives its folders to their owner only.
        umask = os.umask(0)
        os.umask(umask)
        made.chmod(0o777 & ~umask)
        # It may have come meanwhile.
        _check_out(out, force)
        try:
            _put(made, out)
        except OSError as error:
            raise ExportError(f"{out} cannot be put in its place: {error.strerror or error}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def save_model(model: Any, path: Path) -> None:
    """Writes an `onnx.ModelProto`, large weights beside it."""
    import onnx

    from .transformer import EXTERNAL_BYTES, EXTERNAL_TENSOR_BYTES

    path = Path(path)
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    external = size > EXTERNAL_BYTES
    # onnx appends to a file of weights that is there already.
    data = path.with_name(path.name + "_data")
    data.unlink(missing_ok=True)
    onnx.save_model(
        model,
        str(path),
        save_as_external_data=external,
        all_tensors_to_one_file=True,
        location=data.name,
        size_threshold=EXTERNAL_TENSOR_BYTES,
    )
    if external:
        # onnx makes it readable by its owner alone; a service may run as another user.
        data.chmod(path.stat().st_mode & 0o777)


def export_module(
    module: Any,
    path: Path,
    inputs: Sequence[Any],
    input_names: Sequence[str],
    output_names: Sequence[str],
    dynamic: Mapping[str, Mapping[int, str]],
    opset: int = 18,
    fold: bool = True,
) -> None:
    """Writes a `torch.nn.Module` as an ONNX graph. `inputs` are example tensors; `dynamic` names the sizes that may
    vary, by port and dimension. The module is traced: its Python code must not branch on what varies. `fold=False`
    leaves constants to be computed when the graph is loaded, where their results would be larger than what they are
    computed from."""
    import warnings

    import onnx
    import torch

    with tempfile.TemporaryDirectory(dir=Path(path).parent, prefix=".trace.") as folder:
        traced = Path(folder) / "graph.onnx"
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module.eval(),
                tuple(inputs),
                str(traced),
                input_names=list(input_names),
                output_names=list(output_names),
                dynamic_axes={name: dict(axes) for name, axes in dynamic.items()},
                opset_version=opset,
                do_constant_folding=fold,
                dynamo=False,
            )
        model = onnx.load(str(traced))
    _compact(model)
    model.producer_name, model.producer_version = "antiphon_export", ""
    save_model(model, Path(path))


def _compact(model: Any) -> None:
    """Constants stored once, as initializers, and short names of all that is no port."""
    import onnx

    graph = model.graph
    constants: dict[tuple, str] = {}
    names: dict[str, str] = {"": ""}
    ports = {port.name for port in (*graph.input, *graph.output)}
    kept = []
    for node in graph.node:
        if node.op_type == "Constant" and node.output[0] not in ports and node.attribute[0].name == "value":
            tensor = node.attribute[0].t
            key = (tensor.data_type, tuple(tensor.dims), onnx.numpy_helper.to_array(tensor).tobytes())
            if key not in constants:
                constants[key] = node.output[0]
                tensor.name = node.output[0]
                graph.initializer.append(tensor)
            names[node.output[0]] = constants[key]
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)
    del graph.value_info[:]

    short: dict[str, str] = {}

    def renamed(name: str) -> str:
        name = names.get(name, name)
        if not name or name in ports:
            return name
        return short.setdefault(name, f"v{len(short)}")

    def rename(nodes: Any) -> None:
        for node in nodes:
            node.input[:] = [renamed(name) for name in node.input]
            node.output[:] = [renamed(name) for name in node.output]
            node.name = node.output[0]
            node.doc_string = ""
            del node.metadata_props[:]
            for attribute in node.attribute:
                for branch in ([attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs):
                    rename(branch.node)
                    del branch.value_info[:]
                    for value in (*branch.input, *branch.output, *branch.initializer):
                        value.name = renamed(value.name)

    rename(graph.node)
    for tensor in graph.initializer:
        tensor.name = renamed(tensor.name)


def real(path: Path) -> Path:
    """A path without `~`, links and `..`."""
    return Path(os.path.realpath(Path(path).expanduser()))


def _check_out(out: Path, force: bool) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise ExportError(f"{out} is a file: name a folder")
    if not force:
        raise ExportError(f"{out} exists: name another folder, or give --force to replace it")
    if any(out.iterdir()) and not (out / "contract.toml").is_file():
        raise ExportError(f"{out} is no export, and is not replaced: name another folder")
    if os.path.ismount(out) or Path.cwd().is_relative_to(out):
        raise ExportError(f"{out} cannot be replaced, since it is mounted or you are in it: name a folder in it")


def _put(made: Path, out: Path) -> None:
    """Puts a folder in the place of another one, which stays where that fails."""
    if not out.exists():
        made.rename(out)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".old", dir=out.parent))
    try:
        out.rename(old / out.name)
        try:
            made.rename(out)
        except OSError:
            (old / out.name).rename(out)
            raise
    finally:
        if out.exists():
            shutil.rmtree(old, ignore_errors=True)


def read_json(path: Path, what: str) -> dict:
    """A JSON object of a checkpoint."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ExportError(f"{what} is missing: there is no {path}") from error
    except (OSError, ValueError) as error:
        raise ExportError(f"{what} cannot be read: {path}: {error}") from error
    if not isinstance(value, dict):
        raise ExportError(f"{what} is no JSON object: {path}")
    return value


def weight_files(folder: Path, what: str) -> list[Path]:
    """The safetensors files of a checkpoint's folder: model.safetensors, or those that model.safetensors.index.json
    names."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        known = read_json(index, f"the index of {what}").get("weight_map")
        names = sorted({str(name) for name in known.values()}) if isinstance(known, dict) else []
        if not names or any("/" in name or name.startswith(".") for name in names):
            raise ExportError(f"{index} names no files of weights: download it again")
    else:
        names = ["model.safetensors"]
    for name in names:
        if not (folder / name).is_file():
            raise ExportError(f"{what} are missing: there is no {folder / name}; download the whole checkpoint")
    return [folder / name for name in names]


def safetensors_header(path: Path) -> dict[str, dict]:
    """Names, types and shapes of the tensors of a safetensors file, without its data."""
    try:
        with open(path, "rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            if size > 100 << 20:
                raise ValueError("its header is too large")
            header = json.loads(file.read(size))
            header.pop("__metadata__", None)
            end = 8 + size + max((entry["data_offsets"][1] for entry in header.values()), default=0)
        if path.stat().st_size < end:
            raise ValueError(f"it has {path.stat().st_size} bytes of {end}: the download is incomplete")
        return header
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise ExportError(f"{path} is no safetensors file: {error}") from error


def check_weight_types(paths: Sequence[Path]) -> None:
    """Refuses weights that are not float32, float16 or bfloat16: those of a quantized checkpoint."""
    for path in paths:
        for name, entry in safetensors_header(path).items():
            if entry["dtype"] not in FLOAT_TYPES | OTHER_TYPES:
                raise ExportError(
                    f"{path}: the tensor {name} has the type {entry['dtype']}; float32, float16 and bfloat16 are read:"
                    " take the makers' unquantized checkpoint"
                )


def check_memory(paths: Sequence[Path], copies: float = 2.2, extra_bytes: int = 1 << 30) -> None:
    """Refuses to begin where the weights, as float32, and the graphs that are made of them do not fit into memory.
    Copies: how many times the weights are in memory at once."""
    numbers = 0
    for path in paths:
        for entry in safetensors_header(path).values():
            count = 1
            for size in entry["shape"]:
                count *= size
            numbers += count
    needed = int(4 * numbers * copies) + extra_bytes
    available = available_memory()
    if available is not None and available < needed:
        raise ExportError(
            f"too little memory: the export needs about {needed / 2**30:.1f} GiB, and {available / 2**30:.1f} GiB are"
            " available: close other programs, or export on another machine"
        )


def available_memory() -> int | None:
    """Memory that can be had without swapping, in bytes, within the limit of the control group; None where the system
    does not say."""
    found = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    except OSError:
        pass
    try:
        group = Path("/sys/fs/cgroup")
        found.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    except (OSError, ValueError):
        pass
    return min(found, default=None)


def check_tensor_types(tensors: Mapping[str, Any], path: Path) -> None:
    """Refuses PyTorch tensors that are no weights of float32, float16 or bfloat16: those of a quantized checkpoint."""
    for name, tensor in tensors.items():
        if str(tensor.dtype) not in ("torch.float32", "torch.float16", "torch.bfloat16"):
            raise ExportError(f"{path}: {name} has the type {tensor.dtype}: take the makers' unquantized checkpoint")


def to_toml(value: Mapping[str, Any]) -> str:
    """TOML of nested dictionaries: tables, arrays of tables, and values on one line."""
    lines: list[str] = []

    def emit(table: Mapping[str, Any], path: str) -> None:
        plain = {k: v for k, v in table.items() if not _is_table(v)}
        if path and (plain or not table):
            lines.extend(["", f"[{path}]"])
        lines.extend(f"{_key(k)} = {_value(v)}" for k, v in plain.items())
        for key, nested in table.items():
            name = f"{path}.{_key(key)}" if path else _key(key)
            if isinstance(nested, Mapping) and _is_table(nested):
                emit(nested, name)
            elif _is_table(nested):
                for entry in nested:
                    lines.extend(["", f"[[{name}]]"])
                    lines.extend(f"{_key(k)} = {_value(v)}" for k, v in entry.items())

    emit(value, "")
    return "\n".join(lines).lstrip("\n") + "\n"


class Inline(dict):
    """A dictionary that stands on one line."""


def _is_table(value: Any) -> bool:
    if isinstance(value, Inline):
        return False
    if isinstance(value, Mapping):
        return True
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(v, Mapping) and not isinstance(v, Inline) for v in value)
    )


def _key(key: str) -> str:
    plain = key.replace("-", "").replace("_", "")
    return key if plain.isascii() and plain.isalnum() else json.dumps(key, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    raise ExportError(f"contract.toml cannot hold {value!r}")
