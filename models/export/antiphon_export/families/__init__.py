"""The families that can be exported, by name. A family's module is imported when it is asked for, so that upstream code
which is not installed disturbs that family only.

A family's module has:

    NAME, TITLE             its name here, and for people
    LICENCE, LICENCE_NOTE   of the weights: the short name, and what it allows, printed before an export
    PACKAGE                 the makers' package to install, or what `--code` must name, for error messages
    open_checkpoint(checkpoint: Path) -> Family
    random_family(size: str, seed: int) -> Family     "tiny" or "true" dimensions, random weights in the makers' classes

and a `Family` has:

    graphs() -> dict        role (condition, prompt, decode, embed, frame, vocode) -> function(path, precision) that
                            writes it
    contract() -> dict      what contract.toml says
    write_tokenizer(path)   writes tokenizer.json
    check(folder) -> list   (what was compared with the makers' PyTorch code, worst difference, tolerance)
    golden(folder) -> dict  what golden.json says of a tiny fixture; writes reference.wav into the folder
    fp16_roles              optional: the graphs that exist in fp16; by default prompt, embed, decode and frame

`int8` is made by `quantize` of `decode` and `frame`; a graph without a precision of its own is used in full precision.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from ..errors import ExportError

FAMILIES = {
    "qwen3-tts": "qwen3_tts",
    "cosyvoice3": "cosyvoice3",
    "s1-mini": "s1_mini",
    "moss-tts-nano": "moss_tts_nano",
}
FP16_ROLES = ("prompt", "embed", "decode", "frame")


def load(name: str) -> ModuleType:
    """The module of a family. Imports it, and with it the makers' code."""
    if name not in FAMILIES:
        raise ExportError(f"there is no family {name!r}; there are {', '.join(FAMILIES)}")
    module = f"{__name__}.{FAMILIES[name]}"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            raise ExportError(f"the family {name!r} is not part of this installation of antiphon-export") from error
        raise ExportError(
            f"{name} needs the Python module {error.name!r}, which is not installed: install what README.md names"
            " for the"
            " family, or name the folder of the makers' code with --code"
        ) from error
    except ImportError as error:
        raise ExportError(f"{name} cannot be used with what is installed: {error}") from error
