"""The command line: `export` (without a word), `check`, `random` and `fixture`. It prints what it does on standard error, and
with --json a summary on standard output. It ends with 1 and a message on an `ExportError`, with 130 when it is
interrupted."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Sequence

from . import families
from .errors import ExportError

COMMANDS = ("check", "random", "fixture")
SEED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if threading.current_thread() is threading.main_thread():
        # What ends a service is as good an interruption as Ctrl-C: temporary folders are removed.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, signal.default_int_handler)
    try:
        options = _parse(arguments)
        if options.code is not None:
            _use_code(options.code)
        summary = options.run(options)
        if options.json:
            print(json.dumps(summary, ensure_ascii=False))
        return 0
    except ExportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        return 1
    except MemoryError:
        print("error: there is too little memory for this export", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _parse(arguments: list[str]) -> argparse.Namespace:
    command = arguments[0] if arguments and arguments[0] in COMMANDS else "export"
    if command != "export":
        arguments = arguments[1:]
    names = ", ".join(families.FAMILIES)
    parser = argparse.ArgumentParser(
        prog=f"python -m antiphon_export{'' if command == 'export' else ' ' + command}",
        description={
            "export": "Writes a checkpoint as graphs for Antiphon. Other commands: check, random, fixture (each with --help).",
            "check": "Exports random weights and compares every graph with the makers' PyTorch code.",
            "random": "Writes a model of the published dimensions with random weights: it costs what the published one"
            " costs, and its sound is noise. For antiphon-bench.",
            "fixture": "Writes a tiny model of random weights with what the makers' code gives for it, for"
            " Antiphon's tests.",
        }[command],
    )
    parser.add_argument("family", metavar="FAMILY", help=names)
    if command == "export":
        parser.add_argument("checkpoint", metavar="CHECKPOINT", type=Path, help="folder of the downloaded checkpoint")
        parser.add_argument("out", metavar="OUT", type=Path, help="folder to write; it must not exist")
        parser.add_argument("--fp16", action="store_true", help="write the graphs in fp16 too")
        parser.add_argument("--int8", action="store_true", help="write the language model with 8-bit weights too")
        parser.add_argument(
            "--accept-licence", action="store_true", help="accept the licence of the weights without being asked"
        )
        parser.add_argument(
            "--force",
            action="store_true",
            help="replace OUT; go on in spite of unknown configuration, or int8 that agrees too seldom",
        )
        parser.set_defaults(run=_export)
    elif command == "check":
        parser.add_argument(
            "--size", choices=("tiny", "true"), default="tiny", help="dimensions; true needs memory and minutes"
        )
        parser.add_argument("--seed", type=int, default=SEED)
        parser.set_defaults(run=_check)
    elif command == "random":
        parser.add_argument("out", metavar="OUT", type=Path, help="folder to write; it must not exist")
        parser.add_argument("--fp16", action="store_true", help="write the graphs in fp16 too")
        parser.add_argument("--int8", action="store_true", help="write the language model with 8-bit weights too")
        parser.add_argument("--size", choices=("tiny", "true"), default="true", help="dimensions")
        parser.add_argument("--force", action="store_true", help="replace OUT")
        parser.set_defaults(run=_random)
    else:
        parser.add_argument("out", metavar="OUT", type=Path, help="folder to write; it must not exist")
        parser.add_argument("--force", action="store_true", help="replace OUT")
        parser.set_defaults(run=_fixture)
    parser.add_argument(
        "--code", type=Path, metavar="FOLDER", help="folder of the makers' code, where it is not installed"
    )
    parser.add_argument("--json", action="store_true", help="print a summary as JSON on standard output")
    return parser.parse_args(arguments)


def _use_code(code: Path) -> None:
    if not code.is_dir():
        raise ExportError(f"--code: {code} is no folder")
    sys.path.insert(0, str(code.resolve()))


def _export(options: argparse.Namespace) -> dict[str, Any]:
    from .files import folder_at_once, real

    if options.family not in families.FAMILIES:
        families.load(options.family)
    options.checkpoint, out = real(options.checkpoint), real(options.out)
    if not options.checkpoint.exists():
        raise ExportError(f"there is no {options.checkpoint}: name the folder of the downloaded checkpoint")
    if options.checkpoint.is_relative_to(out) or out.is_relative_to(options.checkpoint):
        raise ExportError(f"{out} and the checkpoint are in each other: name another folder to write")
    module = families.load(options.family)
    _ask_licence(module, options.accept_licence)
    # Before anything is loaded: a long export must not end with a refusal that was certain at its start.
    with folder_at_once(out, options.force) as folder:
        _say(f"loading {options.checkpoint}")
        family = module.open_checkpoint(options.checkpoint)
        unknown = getattr(family, "unknown", None)
        if unknown and not options.force:
            raise ExportError(
                f"a newer architecture: the checkpoint has {', '.join(unknown[:5])}, which this version does not know."
                " Update antiphon-export, or give --force to export without regard to it"
            )
        if unknown:
            _say(f"--force: unknown configuration is left out of account: {', '.join(unknown)}")
        precisions = ["fp32", *(p for p in ("fp16", "int8") if getattr(options, p))]
        report = write_folder(family, folder, precisions, random_weights=False, force=options.force)
    _say(f"wrote {out}")
    if refused := report.get("refused"):
        raise ExportError(refused)
    return {"out": str(options.out), "report": report}


def _check(options: argparse.Namespace) -> dict[str, Any]:
    import tempfile

    module = families.load(options.family)
    family = module.random_family(options.size, options.seed)
    with tempfile.TemporaryDirectory(prefix="antiphon_export.") as folder:
        write_folder(family, Path(folder), ["fp32"], random_weights=True)
        _say("comparing")
        results = family.check(Path(folder))
    failed = 0
    for what, worst, tolerance in results:
        good = worst <= tolerance
        failed += not good
        _say(f"{'ok  ' if good else 'FAIL'} {worst:10.3g} (at most {tolerance:g})  {what}")
    if failed:
        raise ExportError(f"{failed} of {len(results)} comparisons with the makers' code failed")
    return {"compared": [{"what": w, "worst": d, "tolerance": t} for w, d, t in results]}


def _random(options: argparse.Namespace) -> dict[str, Any]:
    from .files import folder_at_once

    with folder_at_once(options.out, options.force) as folder:
        family = families.load(options.family).random_family(options.size, SEED)
        precisions = ["fp32", *(p for p in ("fp16", "int8") if getattr(options, p))]
        report = write_folder(family, folder, precisions, random_weights=True)
    _say(f"wrote {options.out}")
    return {"out": str(options.out), "report": report}


def _fixture(options: argparse.Namespace) -> dict[str, Any]:
    from .files import folder_at_once

    with folder_at_once(options.out, options.force) as folder:
        module = families.load(options.family)
        family = module.random_family("tiny", SEED)
        write_folder(family, folder, ["fp32"], random_weights=True)
        (folder / "report.json").unlink()
        golden = family.golden(folder)
        (folder / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n", encoding="utf-8")
        (folder / "README.md").write_text(
            f"A model of the family {options.family} with tiny dimensions and random weights, and in golden.json what"
            " the makers'\nPyTorch code gives with the same weights. models/export/LAYOUT.md describes the files."
            " Made by\n\n"
            f"```\npython -m antiphon_export fixture {options.family} OUT\n```\n",
            encoding="utf-8",
        )
        sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    _say(f"wrote {options.out}, {sum(sizes.values()) // 1024} KiB")
    return {"out": str(options.out), "files": sizes}


def write_folder(
    family: Any, folder: Path, precisions: Sequence[str], random_weights: bool, force: bool = False
) -> dict[str, Any]:
    """Writes graphs, contract, tokenizer and report of a family into an empty folder."""
    from .files import to_toml
    from .quantize import quantize_weights
    from .report import LEAST_AGREEMENT, build_report
    from .run import graph_path

    contract = family.contract()
    if "int8" in precisions and contract.get("frame", {}).get("draws_all"):
        raise ExportError(
            f"{contract['title']} is not written with --int8: its graphs draw all codes themselves, and how often int8"
            " would agree is not measured. Leave --int8 out"
        )
    (folder / "contract.toml").write_text(to_toml(contract), encoding="utf-8")
    family.write_tokenizer(folder / "tokenizer.json")
    fp16_roles = getattr(family, "fp16_roles", families.FP16_ROLES)
    for role, write in family.graphs().items():
        for precision in precisions:
            started = time.monotonic()
            path = graph_path(folder, role, precision)
            if precision == "int8":
                if role not in ("decode", "frame"):
                    continue
                quantize_weights(graph_path(folder, role), path)
            elif precision == "fp16" and role not in fp16_roles:
                continue
            else:
                write(path, precision)
            _say(f"{path.name}: {_megabytes(path)} MB in {time.monotonic() - started:.1f} s")
    if len(precisions) > 1:
        _say("comparing the precisions")
    report = build_report(folder, contract, precisions, random_weights)
    (folder / "report.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    found = report["precisions"].get("int8", {}).get("first_code_agreement", 1.0)
    if found < LEAST_AGREEMENT and not random_weights:
        agrees = (
            f"int8 agrees with fp32 in {found:.1%} of the first codes, and at least {LEAST_AGREEMENT:.0%} is wanted"
        )
        if force:
            _say(f"--force: {agrees}; it is written nevertheless")
            return report
        for path in folder.glob("*_int8.onnx*"):
            path.unlink()
        report["refused"] = f"{agrees}: it was left out, the others are written; give --force to write it nevertheless"
        (folder / "report.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return report


def _ask_licence(module: Any, accepted: bool) -> None:
    _say(f"{module.TITLE}: licence of the weights: {module.LICENCE}\n{module.LICENCE_NOTE}")
    if accepted:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise ExportError("the licence was not accepted: read it, and give --accept-licence")
    print("Do you accept it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ExportError("the licence was not accepted")


def _megabytes(path: Path) -> str:
    files = (path, path.with_name(path.name + "_data"))
    return f"{sum(file.stat().st_size for file in files if file.exists()) / 1e6:.1f}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
