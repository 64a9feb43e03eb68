"""The command line and what it says when something is wrong. Runs without torch: families are stand-ins."""

import contextlib
import io
import json
import struct
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

from antiphon_export import cli, families, files
from antiphon_export.errors import ExportError
from antiphon_export.files import (
    Inline,
    check_memory,
    check_weight_types,
    folder_at_once,
    read_json,
    to_toml,
    weight_files,
)
from antiphon_export.transformer import FrameConfig, StackConfig, build_decode, build_frame
from tests.test_transformer import random_weights


class StandIn:
    """A family whose graphs are made by `transformer`, with random weights."""

    unknown: list = []
    interrupt = False

    def __init__(self):
        rng = np.random.default_rng(3)
        self.stack = StackConfig(layers=1, hidden=32, heads=2, kv_heads=1, head_size=16, intermediate=64, positions=256)
        self.weights = random_weights(self.stack, vocabulary=31)
        for i in range(3):
            self.weights[f"inner.{i}"] = self.weights[f"outer.{i}"] = rng.standard_normal((31, 32)).astype(np.float32)
            self.weights[f"heads.{i}"] = rng.standard_normal((30, 32)).astype(np.float32)

    def graphs(self):
        def frame(path, precision):
            if self.interrupt:
                raise KeyboardInterrupt
            build_frame(FrameConfig(stack=self.stack, hidden=32, codebooks=3), self.weights, precision).save(path)

        return {
            "decode": lambda path, precision: build_decode(self.stack, self.weights, precision).save(path),
            "frame": frame,
        }

    def contract(self):
        return {
            "format": 1,
            "name": "stand-in",
            "title": "Stand-in",
            "decode": {"layers": 1, "heads": 1, "head_size": 16, "capacity": 256},
            "tokens": {"sounds": 30, "codebooks": 3},
        }

    def write_tokenizer(self, path):
        path.write_text("{}")

    def check(self, folder):
        return [("a graph", 0.5, 0.1), ("another", 0.0, 0.0)]

    def golden(self, folder):
        return {"frames": [[1, 2, 3]]}


def stand_in_module(family):
    return types.SimpleNamespace(
        TITLE="Stand-in",
        LICENCE="Apache-2.0",
        LICENCE_NOTE="Do as you like.",
        open_checkpoint=lambda checkpoint: family,
        random_family=lambda size, seed: family,
    )


class CommandLine(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.checkpoint = self.folder / "checkpoint"
        self.checkpoint.mkdir()
        self.out = self.folder / "out"
        self.family = StandIn()
        module = stand_in_module(self.family)
        self.enterContext(mock.patch.object(families, "load", lambda name: module))

    def run_it(self, *arguments):
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            status = cli.main([str(argument) for argument in arguments])
        return status, output.getvalue(), errors.getvalue()

    def export(self, *more):
        return self.run_it("qwen3-tts", self.checkpoint, self.out, *more)

    def test_an_export_writes_the_graphs_of_each_precision_and_a_report(self):
        status, output, errors = self.export("--fp16", "--int8", "--accept-licence", "--json", "--force")
        self.assertEqual(status, 0, errors)
        names = {path.name for path in self.out.iterdir()}
        graphs = {f"{role}{suffix}.onnx" for role in ("decode", "frame") for suffix in ("", "_fp16", "_int8")}
        self.assertEqual(names, graphs | {"contract.toml", "tokenizer.json", "report.json"})
        report = json.loads((self.out / "report.json").read_text())
        self.assertEqual(report, json.loads(output)["report"])
        self.assertEqual(report["precisions"]["fp32"]["cache_bytes_per_slot"], 2 * 16 * 256 * 4)
        self.assertEqual(report["precisions"]["fp16"]["cache_bytes_per_slot"], 2 * 16 * 256 * 2)
        for precision in ("fp16", "int8"):
            found = report["precisions"][precision]
            self.assertEqual(found["steps"], 1000)
            self.assertGreater(found["first_code_agreement"], 0.9)
            self.assertGreater(found["other_code_agreement"], 0.9)
            self.assertIn(f"decode_{precision}.onnx", found["files"])
            self.assertNotIn("decode.onnx", found["files"])
        self.assertNotIn("decode_int8.onnx", report["precisions"]["fp32"]["files"])

    def test_the_licence_is_shown_and_must_be_accepted(self):
        status, _, errors = self.export()
        self.assertEqual(status, 1)
        self.assertIn("Do as you like.", errors)
        self.assertIn("--accept-licence", errors)
        terminal = mock.Mock(isatty=lambda: True, readline=lambda: "n\n")
        with mock.patch.object(sys, "stdin", terminal):
            self.assertEqual(self.export()[0], 1)
        self.assertFalse(self.out.exists())
        terminal.readline = lambda: "yes\n"
        with mock.patch.object(sys, "stdin", terminal):
            self.assertEqual(self.export()[0], 0)

    def test_what_exists_is_replaced_with_force_only(self):
        self.out.mkdir()
        (self.out / "mine").write_text("kept")
        status, _, errors = self.export("--accept-licence")
        self.assertEqual(status, 1)
        self.assertIn("--force", errors)
        status, _, errors = self.export("--accept-licence", "--force")
        self.assertEqual(status, 1)
        self.assertIn("is no export", errors)
        self.assertEqual((self.out / "mine").read_text(), "kept")
        (self.out / "contract.toml").write_text("format = 1")
        self.assertEqual(self.export("--accept-licence", "--force")[0], 0)
        self.assertFalse((self.out / "mine").exists())
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["checkpoint", "out"])

    def test_an_interrupted_export_leaves_nothing_and_touches_nothing(self):
        self.family.interrupt = True
        self.out.mkdir()
        (self.out / "mine").write_text("kept")
        (self.out / "contract.toml").write_text("format = 1")
        status, _, errors = self.export("--accept-licence", "--force")
        self.assertEqual(status, 130)
        self.assertIn("interrupted", errors)
        self.assertEqual((self.out / "mine").read_text(), "kept")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["checkpoint", "out"])

    def test_an_unknown_configuration_is_refused_unless_forced(self):
        self.family.unknown = ["talker_config.experts"]
        status, _, errors = self.export("--accept-licence")
        self.assertEqual(status, 1)
        self.assertIn("talker_config.experts", errors)
        self.assertIn("newer", errors)
        self.assertEqual(self.export("--accept-licence", "--force")[0], 0)

    def test_int8_that_agrees_too_seldom_is_refused_unless_forced(self):
        def poor(folder, contract, precisions, steps, seed):
            return {p: {"steps": 1000, "first_code_agreement": 0.5} for p in precisions}

        self.enterContext(mock.patch("antiphon_export.report.agreement", poor))
        status, _, errors = self.export("--accept-licence", "--int8")
        self.assertEqual(status, 1)
        self.assertIn("50.0%", errors)
        names = {path.name for path in self.out.iterdir()}
        self.assertIn("decode.onnx", names, "what is good is kept")
        self.assertFalse([name for name in names if "_int8" in name])
        self.assertIn("50.0%", json.loads((self.out / "report.json").read_text())["refused"])
        self.assertEqual(self.export("--accept-licence", "--int8", "--force")[0], 0)
        self.assertTrue((self.out / "decode_int8.onnx").exists())

    def test_the_checkpoint_is_never_in_the_way_of_what_is_written(self):
        for out in (self.checkpoint, self.folder, self.checkpoint / "out"):
            status, _, errors = self.run_it("qwen3-tts", self.checkpoint, out, "--accept-licence", "--force")
            self.assertEqual(status, 1)
            self.assertIn("in each other", errors)
        self.assertTrue(self.checkpoint.is_dir())

    def test_a_checkpoint_that_is_not_there_is_named(self):
        status, _, errors = self.run_it("qwen3-tts", self.folder / "nothing", self.out, "--accept-licence")
        self.assertEqual(status, 1)
        self.assertIn("nothing", errors)

    def test_check_names_what_differs(self):
        status, _, errors = self.run_it("check", "qwen3-tts")
        self.assertEqual(status, 1)
        self.assertIn("FAIL", errors)
        self.assertIn("1 of 2", errors)
        self.family.check = lambda folder: [("a graph", 0.05, 0.1)]
        status, output, _ = self.run_it("check", "qwen3-tts", "--json")
        self.assertEqual(status, 0)
        self.assertEqual(json.loads(output)["compared"][0]["tolerance"], 0.1)

    def test_a_fixture_has_its_golden_file(self):
        status, _, errors = self.run_it("fixture", "qwen3-tts", self.out)
        self.assertEqual(status, 0, errors)
        self.assertEqual(json.loads((self.out / "golden.json").read_text()), {"frames": [[1, 2, 3]]})
        self.assertTrue((self.out / "README.md").exists())

    def test_code_must_be_a_folder(self):
        status, _, errors = self.export("--accept-licence", "--code", self.folder / "nowhere")
        self.assertEqual(status, 1)
        self.assertIn("--code", errors)


class Families(unittest.TestCase):
    def test_an_unknown_family_is_refused_with_the_known_ones(self):
        with self.assertRaisesRegex(ExportError, "qwen3-tts"):
            families.load("nobody")

    def test_a_missing_package_is_named(self):
        error = ModuleNotFoundError("No module named 'maker'", name="maker")
        with (
            mock.patch("importlib.import_module", side_effect=error),
            self.assertRaisesRegex(ExportError, "'maker'.*--code"),
        ):
            families.load("qwen3-tts")


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def safetensors(self, name="model.safetensors", kind="F32", shape=(2, 2), cut=0):
        size = int(np.prod(shape)) * 2
        header = json.dumps({"w": {"dtype": kind, "shape": list(shape), "data_offsets": [0, size]}}).encode()
        data = struct.pack("<Q", len(header)) + header + b"\0" * (size - cut)
        (self.folder / name).write_bytes(data)
        return self.folder / name

    def test_missing_files_are_named(self):
        with self.assertRaisesRegex(ExportError, "the configuration is missing.*config.json"):
            read_json(self.folder / "config.json", "the configuration")
        with self.assertRaisesRegex(ExportError, "the weights are missing.*model.safetensors"):
            weight_files(self.folder, "the weights")
        index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(index))
        self.safetensors("model-00001-of-00002.safetensors")
        with self.assertRaisesRegex(ExportError, "model-00002-of-00002"):
            weight_files(self.folder, "the weights")

    def test_a_configuration_that_is_no_json_object_is_refused(self):
        (self.folder / "config.json").write_text("{")
        with self.assertRaisesRegex(ExportError, "cannot be read"):
            read_json(self.folder / "config.json", "the configuration")
        (self.folder / "config.json").write_text("[]")
        with self.assertRaisesRegex(ExportError, "no JSON object"):
            read_json(self.folder / "config.json", "the configuration")

    def test_types_of_weights(self):
        for kind in ("F32", "F16", "BF16", "I64"):
            check_weight_types([self.safetensors(kind=kind)])
        for kind in ("F8_E4M3", "I8", "F64"):
            with self.assertRaisesRegex(ExportError, f"type {kind}.*unquantized"):
                check_weight_types([self.safetensors(kind=kind)])

    def test_an_incomplete_download_is_refused(self):
        with self.assertRaisesRegex(ExportError, "incomplete"):
            check_weight_types([self.safetensors(cut=3)])
        (self.folder / "model.safetensors").write_bytes(b"<html>")
        with self.assertRaisesRegex(ExportError, "no safetensors file"):
            check_weight_types([self.folder / "model.safetensors"])

    def test_too_little_memory_is_said_before_anything_is_loaded(self):
        path = self.safetensors(kind="BF16", shape=(1000, 1000))
        with mock.patch.object(files, "available_memory", return_value=1 << 30):
            with self.assertRaisesRegex(ExportError, "too little memory.*1.0 GiB are"):
                check_memory([path])
        with mock.patch.object(files, "available_memory", return_value=2 << 30):
            check_memory([path])
        with mock.patch.object(files, "available_memory", return_value=None):
            check_memory([path])

    def test_a_folder_appears_whole_or_not_at_all(self):
        out = self.folder / "deep" / "out"
        with self.assertRaises(ValueError), folder_at_once(out) as folder:
            (folder / "half").write_text("")
            raise ValueError
        self.assertEqual(list(out.parent.iterdir()), [])
        with folder_at_once(out) as folder:
            (folder / "whole").write_text("")
            self.assertFalse(out.exists())
        self.assertEqual([path.name for path in out.iterdir()], ["whole"])
        self.assertEqual(out.stat().st_mode & 0o700, 0o700)
        file = self.folder / "file"
        file.write_text("")
        with self.assertRaisesRegex(ExportError, "is a file"), folder_at_once(file, force=True):
            pass

    def test_toml_is_what_was_given(self):
        try:
            import tomllib
        except ImportError:
            self.skipTest("Python 3.11 has tomllib")
        value = {
            "name": 'a "quoted"\n<|x|> \u4f60',
            "flag": True,
            "number": 0.9,
            "list": ["past.{i}.key", "b"],
            "table": {
                "ids": [{"port": "a", "n": 1}, {"port": "b", "n": 2}],
                "language": {"ids": Inline({"en": 0, "zh-hk": 1})},
            },
            "vocode": {"file": "v", "carry": [], "state": [{"input": "x", "fill": 0.0}]},
        }
        self.assertEqual(tomllib.loads(to_toml(value)), value)
        with self.assertRaises(ExportError):
            to_toml({"nothing": None})


if __name__ == "__main__":
    unittest.main()
