"""OpenAudio S1-mini with tiny random weights against the makers' PyTorch code, and what is said of checkpoints that are
something else. The comparisons are skipped where torch or `fish_speech` is not installed; FISH_SPEECH names a checkout
of it."""

import base64
import contextlib
import io
import json
import os
import random
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest(f"S1-mini cannot be tested: {missing}")

from antiphon_export import cli
from antiphon_export.errors import ExportError
from antiphon_export.families import s1_mini, s1_mini_makers
from antiphon_export.families.s1_mini_codec import CodecConfig
from antiphon_export.families.s1_mini_tokenizer import PATTERN, Vocabulary, read_vocabulary, tokenizer_json
from antiphon_export.run import Vocode, graph_path, open_graph

torch.set_num_threads(1)
if "FISH_SPEECH" in os.environ:
    sys.path.insert(0, os.environ["FISH_SPEECH"])


def quietly(function, *arguments):
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        result = function(*arguments)
    return result, errors.getvalue()


def write_checkpoint(folder, family, **changes):
    """A checkpoint as the makers publish it, with the weights of a random family."""
    folder.mkdir()
    config = {"model_type": "dual_ar", **family.config, **changes}
    (folder / "config.json").write_text(json.dumps(config))
    ranks = [f"{base64.b64encode(piece).decode()} {rank}" for piece, rank in family.vocabulary.ranks.items()]
    (folder / "tokenizer.tiktoken").write_text("\n".join(ranks) + "\n")
    (folder / "special_tokens.json").write_text(json.dumps(family.vocabulary.special))
    half = {name: value.to(torch.bfloat16) for name, value in family.makers.model.state_dict().items()}
    torch.save({"state_dict": {f"model.{name}": value for name, value in half.items()}}, folder / "model.pth")
    codec = {f"generator.{name}": value for name, value in family.makers.codec.state_dict().items()}
    torch.save(codec, folder / "codec.pth")


class Compared(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            s1_mini_makers.makers()
        except ExportError as missing:
            raise unittest.SkipTest(str(missing))
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = Path(cls.temporary.name) / "out"
        cls.folder.mkdir()
        cls.family = s1_mini.random_family("tiny", 1)
        quietly(cli.write_folder, cls.family, cls.folder, ["fp32", "fp16", "int8"], True)

    def test_every_graph_gives_what_the_makers_code_gives(self):
        for what, worst, tolerance in self.family.check(self.folder, frames=100):
            with self.subTest(what):
                self.assertLessEqual(worst, tolerance)

    def test_any_chunks_give_the_sound_of_the_whole(self):
        vocode = Vocode(self.folder)
        rng = np.random.default_rng(5)
        codes = rng.integers(0, 24, (2, 60, 10))
        whole = s1_mini.streamed(vocode, codes, [0, 60])
        for cuts in ([0, 1, 60], [0, 7, 8, 30, 59, 60], list(range(61))):
            np.testing.assert_allclose(s1_mini.streamed(vocode, codes, cuts), whole, atol=2e-4)

    def test_codes_beyond_a_codebook_are_its_last(self):
        vocode = Vocode(self.folder)
        last = np.full((1, 3, 10), 23)
        last[:, :, 0] = 47
        sound, _ = vocode.run(last, vocode.empty_state(1))
        beyond, _ = vocode.run(np.full((1, 3, 10), 4095), vocode.empty_state(1))
        np.testing.assert_array_equal(beyond, sound)

    def test_fp16_is_nearly_fp32(self):
        vocode = Vocode(self.folder)
        half = open_graph(graph_path(self.folder, "vocode", "fp16"))
        codes = np.random.default_rng(6).integers(0, 24, (1, 20, 10))
        state = vocode.empty_state(1)
        sound, _ = vocode.run(codes, state)
        noise = half.run(["waveform"], {"codes": codes, **state})[0] - sound
        self.assertGreater(10 * np.log10(np.mean(sound**2) / np.mean(noise**2)), 25)

    def test_scaled_embeddings_and_normed_hidden_states(self):
        sizes = s1_mini_makers.TINY
        changed = {
            "scale_codebook_embeddings": True,
            "norm_fastlayer_input": True,
            "fast_dim": 64,
            "tie_word_embeddings": True,
        }
        before = dict(sizes.model)
        try:
            sizes.model.update(changed)
            family = s1_mini.random_family("tiny", 3)
        finally:
            sizes.model.clear()
            sizes.model.update(before)
        with tempfile.TemporaryDirectory() as folder:
            quietly(cli.write_folder, family, Path(folder), ["fp32"], True)
            for what, worst, tolerance in family.check(Path(folder), frames=24):
                with self.subTest(what):
                    self.assertLessEqual(worst, tolerance)

    def test_a_checkpoint_is_read(self):
        sizes = s1_mini_makers.TINY
        codec_config = CodecConfig(head_size=sizes.head_size, window=sizes.window, positions=sizes.model["max_seq_len"])
        with tempfile.TemporaryDirectory() as folder:
            write_checkpoint(Path(folder) / "s1-mini", self.family)
            family = s1_mini.open_checkpoint(Path(folder) / "s1-mini", codec_config)
        self.assertEqual(family.unknown, [])
        self.assertEqual(
            (family.begin, family.stop, family.speaker), (self.family.begin, self.family.stop, self.family.speaker)
        )
        for name, weight in self.family.weights.items():
            np.testing.assert_array_equal(
                family.weights[name], torch.from_numpy(weight).bfloat16().float().numpy(), name
            )
        with tempfile.TemporaryDirectory() as folder:
            family.graphs()["vocode"](Path(folder) / "vocode.onnx", "fp32")
            same = (Path(folder) / "vocode.onnx").read_bytes()
        self.assertEqual(same, (self.folder / "vocode.onnx").read_bytes())

    def test_checkpoints_that_are_something_else_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            good = Path(folder) / "good"
            write_checkpoint(good, self.family)

            def refused(name, wanted, change):
                bad = Path(folder) / name
                bad.mkdir()
                for path in good.iterdir():
                    (bad / path.name).write_bytes(path.read_bytes())
                change(bad)
                with self.subTest(name), self.assertRaisesRegex(ExportError, wanted):
                    s1_mini.open_checkpoint(bad)

            def config(**changes):
                def change(bad):
                    whole = json.loads((bad / "config.json").read_text())
                    (bad / "config.json").write_text(json.dumps({**whole, **changes}))

                return change

            refused("s2", "Fish Audio S2", config(model_type="fish_qwen3_omni"))
            refused("naive", "not dual_ar", config(model_type="naive"))
            refused("fewer", "no dim", config(dim=None))
            refused("shape", r"layers\.0.*by config.json it should be", config(intermediate_size=41))
            refused("layers", r"layers\.2.* says that there is one", config(n_layer=3))
            refused("more", "another model", config(n_layer=1))
            refused("books", "codebook_embeddings", config(num_codebooks=9))
            refused("judge", "judges", config(is_reward_model=True))
            refused("old", "1.x", lambda bad: (bad / "codec.pth").unlink())
            refused("nothing", "neither", lambda bad: (bad / "model.pth").unlink())
            refused("cut", "cannot be read as weights", lambda bad: (bad / "model.pth").write_bytes(b"PK"))
            refused(
                "codec", "codec.pth of the checkpoint", lambda bad: torch.save({"x": torch.zeros(1)}, bad / "codec.pth")
            )
            refused("special", "missing", lambda bad: (bad / "special_tokens.json").unlink())
            refused("speech", "speech tokens", lambda bad: (bad / "special_tokens.json").write_text("{}"))
            refused("pieces", "256 bytes", lambda bad: (bad / "tokenizer.tiktoken").write_text("IQ== 0\n"))


class Tokenizers(unittest.TestCase):
    def setUp(self):
        self.vocabulary = Vocabulary(*s1_mini_makers.random_vocabulary(s1_mini_makers.TINY))

    def tokenizer(self):
        from tokenizers import Tokenizer

        return Tokenizer.from_str(json.dumps(tokenizer_json(self.vocabulary)))

    def test_random_texts_have_the_ids_that_tiktoken_gives(self):
        try:
            import tiktoken  # noqa: F401
        except ImportError:
            self.skipTest("tiktoken is not installed")
        ours = self.tokenizer()
        theirs = s1_mini_makers.Tokenizer(self.vocabulary.ranks, self.vocabulary.special, PATTERN).encoding
        chance = random.Random(1)
        letters = "tthheeiinnangs  \n\r\t'’.,!?()<|>:012é你好ー🙂\u0301\u00a0ſs'll'VE$%=^"
        for _ in range(3000):
            text = "".join(chance.choice(letters) for _ in range(chance.randint(0, 40)))
            self.assertEqual(ours.encode(text, add_special_tokens=False).ids, theirs.encode_ordinary(text), repr(text))

    def test_a_text_cannot_forge_speech_or_end_its_turn(self):
        ours = self.tokenizer()
        for text in ("<|im_end|>", "<|semantic:5|>", "<|interleave|>", "<|im_start|>"):
            ids = ours.encode(f"a{text}b", add_special_tokens=False).ids
            self.assertTrue(max(ids) < s1_mini_makers.TINY.first_special, text)
        phonemes = ours.encode("<|phoneme_start|>AH<|phoneme_end|>", add_special_tokens=False).ids
        self.assertEqual(phonemes[0], self.vocabulary.special["<|phoneme_start|>"])

    def test_files_that_contradict_each_other_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            lines = [f"{base64.b64encode(piece).decode()} {rank}" for piece, rank in self.vocabulary.ranks.items()]
            (folder / "tokenizer.tiktoken").write_text("\n".join(lines + ["= 5000", ""]))
            (folder / "special_tokens.json").write_text(json.dumps(self.vocabulary.special))
            self.assertEqual(read_vocabulary(folder), self.vocabulary)
            (folder / "special_tokens.json").write_text(json.dumps({"<|im_end|>": 7}))
            with self.assertRaisesRegex(ExportError, "stands for two"):
                read_vocabulary(folder)
            (folder / "tokenizer.tiktoken").write_text("!! 1\n")
            with self.assertRaisesRegex(ExportError, "cannot be read"):
                read_vocabulary(folder)


if __name__ == "__main__":
    unittest.main()
