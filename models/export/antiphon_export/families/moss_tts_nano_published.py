"""What the makers of MOSS-TTS-Nano publish for ONNX Runtime: a folder of graphs, three JSON files that describe them,
and the tokenizer. The converter reads it with this module, which checks that the files are there, belong together and
have the ports that they are used by. It never runs a graph and changes nothing.

    FOLDER/MOSS-TTS-Nano-100M-ONNX/         browser_poc_manifest.json, tts_browser_onnx_meta.json, tokenizer.model,
                                            moss_tts_*.onnx and their weights
    FOLDER/MOSS-Audio-Tokenizer-Nano-ONNX/  codec_browser_onnx_meta.json, moss_audio_tokenizer_*.onnx and their weights

FOLDER may also be the first of the two, with the second beside it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Sequence

import onnx
from onnx import TensorProto

from ..errors import ExportError
from ..files import read_json

MANIFEST = "browser_poc_manifest.json"
TTS_FOLDER, CODEC_FOLDER = "MOSS-TTS-Nano-100M-ONNX", "MOSS-Audio-Tokenizer-Nano-ONNX"
# Folders of the first release, which its manifest names.
FORMER = {"MOSS-TTS-Nano-ONNX-CPU": TTS_FOLDER, "MOSS-Audio-Tokenizer-Nano-ONNX-CPU": CODEC_FOLDER}
DOWNLOAD = f"download OpenMOSS-Team/{TTS_FOLDER} and OpenMOSS-Team/{CODEC_FOLDER} into one folder, each by its name"
FORMAT = 1

SIZES = (
    "n_vq",
    "row_width",
    "hidden_size",
    "global_layers",
    "global_heads",
    "head_dim",
    "vocab_size",
    "audio_pad_token_id",
)
# Of graphs that are not used, or of ids that the manifest says too.
UNUSED_SIZES = (
    "local_layers",
    "local_heads",
    "local_head_dim",
    "audio_codebook_sizes",
    "pad_token_id",
    "im_start_token_id",
    "im_end_token_id",
    "audio_start_token_id",
    "audio_end_token_id",
    "audio_user_slot_token_id",
    "audio_assistant_slot_token_id",
)
SLOTS = (
    "audio_start_token_id",
    "audio_end_token_id",
    "audio_user_slot_token_id",
    "audio_assistant_slot_token_id",
)
TEMPLATES = (
    "user_prompt_prefix_token_ids",
    "user_prompt_after_reference_token_ids",
    "assistant_prompt_prefix_token_ids",
)
GRAPHS = {
    "prefill": "tts",
    "decode_step": "tts",
    "local_fixed_sampled_frame": "tts",
    "encode": "codec",
    "codec_decode_step": "codec",
}

# A port: the types that it may have, and its sizes where they are fixed; None: any.
Port = tuple[Sequence[int], Sequence[int | None] | None]


@dataclass(frozen=True)
class State:
    """A tensor that the codec's graph takes and gives back."""

    input: str
    output: str
    kind: int
    shape: tuple[int, ...]
    fill: int


@dataclass(frozen=True)
class Published:
    """A checked publication."""

    folder: Path
    """Of the manifest."""
    graphs: Mapping[str, Path]
    tokenizer: Path
    sizes: Mapping[str, int]
    codebook_size: int
    slots: Mapping[str, int]
    templates: Mapping[str, list[int]]
    max_frames: int
    rate_hz: int
    channels: int
    states: tuple[State, ...]
    unknown: list[str]
    """Names in the description that this version does not know: they may change what the graphs mean."""


def read_published(folder: Path) -> Published:
    """Reads and checks the descriptions, not the graphs."""
    path = _manifest(Path(folder))
    manifest = read_json(path, "the manifest")
    files = _object(manifest, "model_files", path)
    tts_path = _relative(path.parent, files, "tts_meta", path)
    codec_path = _relative(path.parent, files, "codec_meta", path)
    tts = read_json(tts_path, "the description of the language model")
    codec = read_json(codec_path, "the description of the codec")
    version = tts.get("format_version", FORMAT)
    if version != FORMAT:
        raise ExportError(
            f"{tts_path} is of format {version!r}; this version reads {FORMAT}: update antiphon-export, or take the"
            " makers' earlier release"
        )

    model = _object(tts, "model_config", tts_path)
    sizes = {name: _number(model, name, tts_path, 0 if name == "audio_pad_token_id" else 1) for name in SIZES}
    if sizes["row_width"] != sizes["n_vq"] + 1:
        raise ExportError(
            f"{tts_path}: rows of {sizes['row_width']} ids for {sizes['n_vq']} codebooks, and not one more"
        )
    if sizes["hidden_size"] != sizes["global_heads"] * sizes["head_dim"]:
        raise ExportError(
            f"{tts_path}: hidden_size = {sizes['hidden_size']} is not that of {sizes['global_heads']} heads of"
            f" {sizes['head_dim']}"
        )
    books = model.get("audio_codebook_sizes")
    if not (isinstance(books, list) and len(books) == sizes["n_vq"] and len(set(map(repr, books))) == 1):
        raise ExportError(f"{tts_path}: audio_codebook_sizes should be {sizes['n_vq']} equal numbers, and is {books!r}")
    codebook_size = _number({"audio_codebook_sizes": books[0]}, "audio_codebook_sizes", tts_path, 2)

    config = _object(manifest, "tts_config", path)
    slots = {name: _number(config, name, path, 0) for name in SLOTS}
    for name in ("n_vq", "audio_pad_token_id", *SLOTS):
        if name in model and config.get(name, model[name]) != model[name]:
            raise ExportError(
                f"{path} says {name} = {config[name]!r}, {tts_path.name} {model[name]!r}: they are of two models;"
                f" {DOWNLOAD}"
            )
    prompts = _object(manifest, "prompt_templates", path)
    templates = {name: prompts.get(name) for name in TEMPLATES}
    for name, ids in [*templates.items(), *((name, [slot]) for name, slot in slots.items())]:
        if not (isinstance(ids, list) and all(type(id) is int and 0 <= id < sizes["vocab_size"] for id in ids)):
            raise ExportError(f"{path}: {name} should be ids from 0 to {sizes['vocab_size'] - 1}, and is {ids!r}")

    codec_config = _object(codec, "codec_config", codec_path)
    quantizers = _number(codec_config, "num_quantizers", codec_path, 1)
    if quantizers != sizes["n_vq"]:
        raise ExportError(
            f"the language model has {sizes['n_vq']} codebooks, the codec {quantizers}: they are of two models;"
            f" {DOWNLOAD}"
        )
    defaults = manifest.get("generation_defaults")
    max_frames = defaults.get("max_new_frames") if isinstance(defaults, dict) else None
    tts_files, codec_files = _object(tts, "files", tts_path), _object(codec, "files", codec_path)
    graphs = {}
    for name, of in GRAPHS.items():
        entries, described = (tts_files, tts_path) if of == "tts" else (codec_files, codec_path)
        graphs[name] = _file(described.parent, entries, name.removeprefix("codec_"), described)
    unknown = [f"model_config.{name}" for name in model if name not in (*SIZES, *UNUSED_SIZES)]
    tokenizer_name = files.get("tokenizer_model", "tokenizer.model")
    return Published(
        folder=path.parent,
        graphs=graphs,
        tokenizer=_existing(path.parent, tokenizer_name, "the tokenizer"),
        sizes=sizes,
        codebook_size=codebook_size,
        slots=slots,
        templates=templates,
        max_frames=max_frames if type(max_frames) is int and max_frames > 0 else 375,
        rate_hz=_number(codec_config, "sample_rate", codec_path, 8000),
        channels=_number(codec_config, "channels", codec_path, 1),
        states=_states(codec, codec_path),
        unknown=sorted(unknown),
    )


def check_ports(model: onnx.ModelProto, name: str, inputs: Mapping[str, Port], outputs: Mapping[str, Port]) -> None:
    """Refuses a graph that takes something else than `inputs`, or lacks one of the `outputs`."""
    weights = {tensor.name for tensor in model.graph.initializer}
    there = {port.name: port for port in model.graph.input if port.name not in weights}
    for wanted, ports, verb in (
        (inputs, there, "takes"),
        (outputs, {port.name: port for port in model.graph.output}, "gives"),
    ):
        for port, (kinds, shape) in wanted.items():
            should = f"{port}: {' or '.join(map(_kind, kinds))}"
            if shape is not None:
                should += f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
            if port not in ports:
                raise ExportError(
                    f"{name} {verb} {', '.join(ports)}, and no {should}: a release that is not known here"
                )
            of = ports[port].type.tensor_type
            sizes = [size.dim_value if size.HasField("dim_value") else None for size in of.shape.dim]
            fits = (
                shape is None
                or not of.HasField("shape")
                or (len(sizes) == len(shape) and all(a is None or b is None or a == b for a, b in zip(sizes, shape)))
            )
            if of.elem_type not in kinds or not fits:
                raise ExportError(f"{name} {verb} {port}: {_kind(of.elem_type)}{sizes}, and not {should}")
    stray = [port for port in there if port not in inputs]
    if stray:
        raise ExportError(
            f"{name} also takes {', '.join(stray)}, which this version does not know: update antiphon-export, or take"
            " the makers' earlier release"
        )


def _kind(kind: int) -> str:
    return TensorProto.DataType.Name(kind).lower() if kind in TensorProto.DataType.values() else str(kind)


def _manifest(folder: Path) -> Path:
    for candidate in (folder, folder / TTS_FOLDER, *(folder / former for former in FORMER)):
        if (candidate / MANIFEST).is_file():
            return candidate / MANIFEST
    if (folder / "model.safetensors").exists() or (folder / "config.json").exists():
        raise ExportError(f"{folder} holds PyTorch weights, and this converts the makers' ONNX graphs: {DOWNLOAD}")
    raise ExportError(f"there is no {MANIFEST} in {folder}: {DOWNLOAD}")


def _object(of: Mapping[str, Any], name: str, path: Path) -> dict:
    if not isinstance(of.get(name), dict):
        raise ExportError(f"{path} has no {name}: it is no description of MOSS-TTS-Nano, or of another release")
    return of[name]


def _number(of: Mapping[str, Any], name: str, path: Path, least: int) -> int:
    value = of.get(name)
    if type(value) is not int or value < least:
        raise ExportError(f"{path}: {name} should be a whole number, at least {least}, and is {value!r}")
    return value


def _relative(folder: Path, files: Mapping[str, Any], name: str, path: Path) -> Path:
    if not isinstance(files.get(name), str):
        raise ExportError(f"{path}: model_files.{name} should name a file, and is {files.get(name)!r}")
    return _existing(folder, files[name], f"model_files.{name} of {path.name}")


def _file(folder: Path, files: Mapping[str, Any], name: str, path: Path) -> Path:
    if not isinstance(files.get(name), str):
        raise ExportError(
            f"{path}: files.{name} should name a graph, and is {files.get(name)!r}: an earlier release of the makers"
            f" did not have it; {DOWNLOAD}"
        )
    return _existing(folder, files[name], f"files.{name} of {path.name}")


def _existing(folder: Path, name: Any, what: str) -> Path:
    text = str(name).replace("\\", "/")
    candidates = [folder / text]
    for former, present in FORMER.items():
        if f"/{former}/" in f"/{text}/":
            candidates.append(folder / text.replace(former, present))
    for candidate in candidates:
        if candidate.is_file():
            return Path(os.path.abspath(candidate))
    raise ExportError(f"{what} is missing: there is no {candidates[-1]}; {DOWNLOAD}")


def _states(codec: Mapping[str, Any], path: Path) -> tuple[State, ...]:
    """The state of the codec's streaming graph."""
    streaming = _object(codec, "streaming_decode", path)
    states = []
    try:
        for spec in streaming["transformer_offsets"]:
            states.append(_state(spec["input_name"], spec["output_name"], TensorProto.INT32, spec["shape"], 0))
        for spec in streaming["attention_caches"]:
            for part, kind, shape, fill in (
                ("offset", TensorProto.INT32, "offset_shape", 0),
                ("cached_keys", TensorProto.FLOAT, "cache_shape", 0),
                ("cached_values", TensorProto.FLOAT, "cache_shape", 0),
                ("cached_positions", TensorProto.INT32, "positions_shape", -1),
            ):
                names = spec[f"{part}_input_name"], spec[f"{part}_output_name"]
                states.append(_state(*names, kind, spec[shape], fill))
    except (KeyError, TypeError, ValueError) as error:
        raise ExportError(f"{path}: streaming_decode does not describe the codec's state: {error}") from error
    if not states or len({state.input for state in states}) != len(states):
        raise ExportError(f"{path}: streaming_decode should name a state's tensors, each once")
    return tuple(states)


def _state(given: Any, left: Any, kind: int, shape: Any, fill: int) -> State:
    if not (isinstance(given, str) and isinstance(left, str)):
        raise ValueError(f"{given!r} and {left!r} are no names")
    shape = tuple(shape)
    if not all(type(size) is int and size > 0 for size in shape) or shape[:1] != (1,):
        raise ValueError(f"{given} of the shape {list(shape)}; one row of fixed sizes is needed")
    return State(given, left, kind, shape, fill)
