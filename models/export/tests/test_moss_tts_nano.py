"""MOSS-TTS-Nano: publications of tiny random weights, written by the makers' own exporter, converted and compared with
the makers' runtime on them; what is said of publications that are something else; tokenizers. Most is skipped where
torch, sentencepiece or the makers' code is missing; MOSS_TTS_NANO names a checkout of it."""

import contextlib
import io
import json
import os
import random
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

try:
    import sentencepiece  # noqa: F401
except ImportError as missing:
    raise unittest.SkipTest(f"MOSS-TTS-Nano cannot be tested: {missing}")

from antiphon_export import cli, families
from antiphon_export.errors import ExportError
from antiphon_export.families import moss_tts_nano, moss_tts_nano_makers
from antiphon_export.families.moss_tts_nano_graph import Joined, read_graph
from antiphon_export.families.moss_tts_nano_published import CODEC_FOLDER, FORMER, MANIFEST, TTS_FOLDER
from antiphon_export.families.moss_tts_nano_tokenizer import SENTENCES, ids, tokenizer_json, write_tokenizer
from antiphon_export.run import open_graph

if "MOSS_TTS_NANO" in os.environ:
    sys.path.insert(0, os.environ["MOSS_TTS_NANO"])

META, CODEC_META = "tts_browser_onnx_meta.json", "codec_browser_onnx_meta.json"


def quietly(function, *arguments):
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        result = function(*arguments)
    return result, errors.getvalue()


class Converted(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            import torch

            torch.set_num_threads(1)
            cls.family = moss_tts_nano.random_family("tiny", 2)
        except (ImportError, ExportError) as missing:
            raise unittest.SkipTest(str(missing))
        cls.addClassCleanup(cls.family.temporary.cleanup)
        cls.published = Path(cls.family.temporary.name)
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = Path(cls.temporary.name) / "out"
        cls.folder.mkdir()
        quietly(cli.write_folder, cls.family, cls.folder, ["fp32"], True)

    def changed(self, change):
        """A copy of the publication that `change` has changed."""
        copy = tempfile.TemporaryDirectory()
        self.addCleanup(copy.cleanup)
        folder = Path(copy.name) / "models"
        shutil.copytree(self.published, folder)
        change(folder)
        return folder

    def test_every_graph_gives_what_the_makers_runtime_gives(self):
        for what, worst, tolerance in self.family.check(self.folder, frames=120):
            with self.subTest(what):
                self.assertLessEqual(worst, tolerance)

    def test_the_command_converts_a_publication_and_its_first_folder(self):
        for checkpoint in (self.published, self.published / TTS_FOLDER):
            out = Path(self.temporary.name) / "by-command"
            arguments = [moss_tts_nano.NAME, str(checkpoint), str(out), "--accept-licence", "--force"]
            status, errors = quietly(cli.main, arguments)
            self.assertEqual(status, 0, errors)
            for path in self.folder.glob("*.onnx"):
                self.assertEqual((out / path.name).read_bytes(), path.read_bytes(), path.name)
            contract = (self.folder / "contract.toml").read_text()
            # Tiny ones take shorter recordings.
            self.assertEqual((out / "contract.toml").read_text(), contract.replace("_seconds = 0.3", "_seconds = 1.0"))
            self.assertFalse(json.loads((out / "report.json").read_text())["random_weights"])

    def test_folders_of_the_first_release_are_found(self):
        def rename(folder):
            for former, present in FORMER.items():
                (folder / present).rename(folder / former)
            path = folder / next(iter(FORMER)) / MANIFEST
            path.write_text(path.read_text().replace(CODEC_FOLDER, list(FORMER)[1]))

        moss_tts_nano.open_checkpoint(self.changed(rename))

        def rename_in_the_manifest_alone(folder):
            path = folder / TTS_FOLDER / MANIFEST
            path.write_text(path.read_text().replace(CODEC_FOLDER, list(FORMER)[1]))

        moss_tts_nano.open_checkpoint(self.changed(rename_in_the_manifest_alone))

    def test_weights_of_prefill_and_step_are_stored_once(self):
        sizes = {}
        for name, path in (
            ("decode", self.folder / "decode.onnx"),
            ("prefill", self.family.published.graphs["prefill"]),
        ):
            graph = onnx.load(str(path)).graph
            contents = [tensor.raw_data for tensor in graph.initializer if len(tensor.raw_data) > 64]
            sizes[name] = sum(map(len, contents))
            self.assertEqual(len(set(contents)), len(contents), name)
        self.assertLess(sizes["decode"], 1.05 * sizes["prefill"])
        for role in ("decode", "frame", "vocode"):
            graph = onnx.load(str(self.folder / f"{role}.onnx")).graph
            weights = {tensor.name for tensor in graph.initializer}
            copied = [node for node in graph.node if node.op_type == "Identity" and node.input[0] in weights]
            self.assertEqual(copied, [], role)

    def test_ids_of_another_tokenizer_are_an_error_and_warm_up_rows_are_none(self):
        prompt = open_graph(self.folder / "prompt.onnx")
        vocabulary = self.family.published.sizes["vocab_size"]
        codes = np.zeros((1, 3, 16), np.int64)
        rows = prompt.run(None, {"text_ids": np.array([[vocabulary - 1]]), "codes": codes})[0]
        empty = prompt.run(None, {"text_ids": np.zeros((1, 0), np.int64), "codes": codes[:, :0]})[0]
        self.assertEqual(rows.shape[1], empty.shape[1] + 4)
        with self.assertRaises(Exception):
            prompt.run(None, {"text_ids": np.array([[vocabulary]]), "codes": codes})
        decode = moss_tts_nano.Decoding(self.folder / "decode.onnx", self.family)
        for count in (5, 1, 1):
            stray = np.random.default_rng(1).normal(0, 1e4, (1, count, 17)).astype(np.float32)
            self.assertTrue(np.isfinite(decode.run(stray)).all())

    def test_other_precisions_are_refused(self):
        for precision in ("fp16", "int8"):
            with self.assertRaisesRegex(ExportError, f"no {precision}"):
                self.family.graphs()["condition"](self.folder / "never.onnx", precision)
        out = Path(self.temporary.name) / "half"
        arguments = [moss_tts_nano.NAME, str(self.published), str(out), "--accept-licence", "--fp16"]
        status, errors = quietly(cli.main, arguments)
        self.assertEqual(status, 1)
        self.assertIn("leave --fp16 out", errors)
        self.assertFalse(out.exists())

    def test_publications_that_are_something_else_are_refused(self):
        def described(name, **changes):
            """`a__b=value` sets b in a; a value of None removes it."""

            def change(folder):
                path = next(folder.glob(f"*/{name}"))
                whole = json.loads(path.read_text())
                for key, value in changes.items():
                    *parts, last = key.split("__")
                    entry = whole
                    for part in parts:
                        entry = entry[part]
                    entry.pop(last, None)
                    if value is not None:
                        entry[last] = value
                path.write_text(json.dumps(whole))

            return change

        def without(name):
            return lambda folder: next(folder.glob(f"*/{name}")).unlink()

        def pytorch(folder):
            shutil.rmtree(folder / TTS_FOLDER)
            (folder / "model.safetensors").write_bytes(b"")

        cases = {
            f"no {MANIFEST}": without(MANIFEST),
            "holds PyTorch weights": pytorch,
            "model_files.codec_meta .* is missing": lambda folder: shutil.rmtree(folder / CODEC_FOLDER),
            "files.decode_step of codec.* is missing": without("moss_audio_tokenizer_decode_step.onnx"),
            "the tokenizer is missing": without("tokenizer.model"),
            "of format 2; this version reads 1": described(META, format_version=2),
            "has no model_config": described(META, model_config=None),
            "global_layers should be a whole number": described(META, model_config__global_layers="12"),
            "should name a graph": described(META, files__local_fixed_sampled_frame=None),
            "rows of 18 ids for 16 codebooks": described(META, model_config__row_width=18),
            "16 equal numbers": described(META, model_config__audio_codebook_sizes=[32] * 15 + [64]),
            "hidden_size = 25": described(META, model_config__hidden_size=25),
            "they are of two models": described(MANIFEST, tts_config__n_vq=8),
            "user_prompt_prefix_token_ids should be ids": described(
                MANIFEST, prompt_templates__user_prompt_prefix_token_ids=[1, 64]
            ),
            "assistant_prompt_prefix_token_ids should be ids": described(
                MANIFEST, prompt_templates__assistant_prompt_prefix_token_ids=None
            ),
            "16 codebooks, the codec 8": described(CODEC_META, codec_config__num_quantizers=8),
            "has no streaming_decode": described(CODEC_META, streaming_decode=None),
            "does not describe the codec's state": described(
                CODEC_META, streaming_decode__attention_caches=[{"offset_input_name": "x"}]
            ),
            "should name a state's tensors": described(
                CODEC_META, streaming_decode={"transformer_offsets": [], "attention_caches": []}
            ),
            "cannot be read": lambda folder: (folder / TTS_FOLDER / META).write_text("{"),
        }
        for wanted, change in cases.items():
            with self.subTest(wanted), self.assertRaisesRegex(ExportError, wanted):
                moss_tts_nano.open_checkpoint(self.changed(change))
        self.assertEqual(self.family.unknown, [])
        newer = self.changed(described(META, model_config__experts=4))
        self.assertEqual(moss_tts_nano.open_checkpoint(newer).unknown, ["model_config.experts"])

    def test_graphs_that_are_something_else_are_refused(self):
        def graph(name, change):
            def changed(folder):
                path = next(folder.glob(f"*/{name}.onnx"))
                model = onnx.load(str(path))
                change(model)
                onnx.save(model, str(path))

            return changed

        def port(of, name, **changes):
            def change(model):
                found = next(port for port in getattr(model.graph, of) if port.name == name)
                if "kind" in changes:
                    found.type.tensor_type.elem_type = changes["kind"]
                if "size" in changes:
                    found.type.tensor_type.shape.dim[-1].dim_value = changes["size"]

            return change

        def one_more(model):
            model.graph.input.append(helper.make_tensor_value_info("speed", TensorProto.FLOAT, [1]))

        def older(model):
            model.opset_import[0].version = 11

        def other(model):
            model.opset_import[0].version = 16

        sampler = "moss_tts_local_fixed_sampled_frame"
        cases = {
            "also takes speed, which this version does not know": ("frame", graph(sampler, one_more)),
            "and not global_hidden: float": ("frame", graph(sampler, port("input", "global_hidden", size=48))),
            "and no present_key_2: float": (
                "decode",
                lambda folder: self._layers(folder, 3),
            ),
            "and not audio_codes: int32": (
                "vocode",
                graph("moss_audio_tokenizer_decode_step", port("input", "audio_codes", kind=TensorProto.INT64)),
            ),
            "of ONNX operator set 11": ("vocode", graph("moss_audio_tokenizer_decode_step", older)),
            "are of the operator sets 17 and 16": ("decode", graph("moss_tts_decode_step", other)),
            "cannot be read|incomplete": (
                "decode",
                lambda folder: (folder / TTS_FOLDER / "moss_tts_global_shared.data").unlink(),
            ),
            "no ONNX graph": (
                "condition",
                lambda folder: (folder / CODEC_FOLDER / "moss_audio_tokenizer_encode.onnx").write_bytes(b"x" * 99),
            ),
            "one frame among several": (
                "frame",
                lambda folder: self._joint_sampler(folder / TTS_FOLDER / f"{sampler}.onnx"),
            ),
        }
        for wanted, (role, change) in cases.items():
            with self.subTest(wanted), tempfile.TemporaryDirectory() as out:
                with self.assertRaisesRegex(ExportError, wanted):
                    family = moss_tts_nano.open_checkpoint(self.changed(change))
                    family.graphs()[role](Path(out) / f"{role}.onnx", "fp32")

    def _layers(self, folder, layers):
        path = folder / TTS_FOLDER / META
        whole = json.loads(path.read_text())
        whole["model_config"]["global_layers"] = layers
        path.write_text(json.dumps(whole))

    def _joint_sampler(self, path):
        """One with the right ports whose rows depend on each other."""
        sizes, size = self.family.published.sizes, self.family.published.codebook_size
        graph = Joined("sampler")
        hidden = graph.input("global_hidden", TensorProto.FLOAT, ["batch", sizes["hidden_size"]])
        seen = graph.input("repetition_seen_mask", TensorProto.INT32, ["batch", 16, size])
        graph.input("assistant_random_u", TensorProto.FLOAT, ["batch"])
        graph.input("audio_random_u", TensorProto.FLOAT, ["batch", 16])
        best = graph.op("ReduceMax", [hidden], keepdims=1)
        scores = graph.op("Mul", [graph.cast(seen, TensorProto.FLOAT), best])
        noise = graph.op(
            "Add",
            [scores, graph.op("Sin", [graph.op("Mul", [best, graph.constant(np.arange(size) * 31.7, np.float32)])])],
        )
        codes = graph.cast(graph.op("ArgMax", [noise], axis=2, keepdims=0), TensorProto.INT32)
        graph.output("frame_token_ids", TensorProto.INT32, ["batch", 16], codes)
        first = graph.cut(codes, graph.ints(0), graph.ints(1), 1)
        graph.output(
            "should_continue", TensorProto.INT32, ["batch", 1], graph.op("Mul", [first, graph.constant(0, np.int32)])
        )
        path.unlink()
        graph.save(path)


class Parts(unittest.TestCase):
    def test_nested_graphs_functions_and_constants_are_taken_over(self):
        """x * 2 where x is positive, else x + (a function of) 3, twice in one graph."""

        def value(name, shape=("n",)):
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))

        def constant(name, number):
            return helper.make_node(
                "Constant", [], [name], value=numpy_helper.from_array(np.array([number], np.float32))
            )

        then = helper.make_graph(
            [constant("two", 2), helper.make_node("Mul", ["x", "two"], ["r"])], "a", [], [value("r")]
        )
        otherwise = helper.make_graph([helper.make_node("More", ["x"], ["r2"], domain="own")], "b", [], [value("r2")])
        nodes = [
            constant("zero", 0),
            helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
            helper.make_node("Greater", ["sum", "zero"], ["positive"]),
            helper.make_node("Squeeze", ["positive"], ["flag"]),
            helper.make_node("If", ["flag"], ["y"], then_branch=then, else_branch=otherwise),
        ]
        more = helper.make_function(
            "own",
            "More",
            ["v"],
            ["w"],
            [constant("three", 3), helper.make_node("Add", ["v", "three"], ["w"])],
            [helper.make_opsetid("", 17)],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        model = helper.make_model(
            helper.make_graph(nodes, "g", [value("x")], [value("y")]),
            opset_imports=opsets,
            functions=[more],
            ir_version=9,
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "published.onnx"
            onnx.save(model, str(path))
            graph = Joined("twice")
            x = graph.input("x", TensorProto.FLOAT, ["n"])
            for name in ("first", "second"):
                x = graph.part(read_graph(path), {"x": x})["y"]
                graph.output(name, TensorProto.FLOAT, ["n"], x)
            graph.save(Path(folder) / "twice.onnx")
            session = open_graph(Path(folder) / "twice.onnx")
            for given in (np.array([1.0, 2.0]), np.array([-9.0, 1.0]), np.array([-2.0, 1.0])):
                given = given.astype(np.float32)
                first = given * 2 if given.sum() > 0 else given + 3
                second = first * 2 if first.sum() > 0 else first + 3
                ours = session.run(["first", "second"], {"x": given})
                np.testing.assert_array_equal(ours, [first, second])


class Tokenizers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def trained(self, *arguments, **options):
        path = self.folder / "tokenizer.model"
        path.write_bytes(moss_tts_nano_makers.train_tokenizer(*arguments, **options))
        return path

    def test_random_texts_have_the_ids_that_sentencepiece_gives(self):
        from tokenizers import Tokenizer

        chance = random.Random(1)
        letters = "".join(SENTENCES) + "<>/s|0x41   "
        texts = ["".join(chance.choice(letters) for _ in range(chance.randint(1, 40))) for _ in range(1500)]
        texts += ["<s>", "</s>", "<unk>", "<pad>", "<0x41>", "a<s>b", " <unk>", "\t", " \n "]
        for kind in ("unigram", "bpe"):
            for byte_fallback in (False, True):
                # Stray marks that join the letter before them are normalized differently: 3 in 4000 of such texts.
                for normalization, share in (("identity", 0.0), ("nmt_nfkc", 0.003)):
                    model = self.trained(1200, normalization, kind, byte_fallback)
                    count = write_tokenizer(model, self.folder / "tokenizer.json", 1200)
                    theirs = sentencepiece.SentencePieceProcessor(model_file=str(model))
                    ours = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
                    self.assertEqual(ours.get_vocab_size(), count)
                    different = [text for text in texts if ours.encode(text).ids != theirs.encode(text)]
                    if byte_fallback:
                        # As the name of a byte, which SentencePiece finds in no text.
                        different = [text for text in different if "<0x41>" not in text]
                    self.assertLessEqual(
                        len(different) / len(texts), share, f"{kind} {normalization}: {different[:3]!r}"
                    )

    def test_symbols_of_prompts_are_added_tokens(self):
        write_tokenizer(self.trained(64, "identity"), self.folder / "tokenizer.json", 64)
        added = json.loads((self.folder / "tokenizer.json").read_text())["added_tokens"]
        self.assertEqual([token["content"] for token in added], list(moss_tts_nano_makers.SYMBOLS))
        self.assertEqual(ids(self.folder / "tokenizer.json", "<|im_end|>")[-1], moss_tts_nano_makers.IM_END)

    def test_tokenizers_that_are_something_else_are_refused(self):
        model = self.trained(64, "identity")
        with self.assertRaisesRegex(ExportError, "of another model"):
            write_tokenizer(model, self.folder / "tokenizer.json", 20)
        with self.assertRaisesRegex(ExportError, "neither a unigram nor a BPE"):
            write_tokenizer(self.trained(64, "identity", "char"), self.folder / "tokenizer.json", 1000)
        model.write_bytes(b"\x0a\xff")
        with self.assertRaisesRegex(ExportError, "no SentencePiece model"):
            write_tokenizer(model, self.folder / "tokenizer.json", 1000)

        from sentencepiece import sentencepiece_model_pb2

        proto = sentencepiece_model_pb2.ModelProto.FromString(self.trained(64, "identity").read_bytes())
        proto.trainer_spec.treat_whitespace_as_suffix = True
        with self.assertRaisesRegex(ExportError, "spaces behind words"):
            tokenizer_json(proto, model)
        proto.trainer_spec.treat_whitespace_as_suffix = False
        proto.pieces.append(proto.pieces[12])
        with self.assertRaisesRegex(ExportError, "a piece twice"):
            tokenizer_json(proto, model)


class Listed(unittest.TestCase):
    def test_the_family_is_known_by_its_name(self):
        self.assertIs(families.load(moss_tts_nano.NAME), moss_tts_nano)


if __name__ == "__main__":
    unittest.main()
