"""CosyVoice3 with tiny random weights against the makers' PyTorch code, a checkpoint as the makers publish it, and what is said of
checkpoints that are something else. Skipped where torch or the makers' code is not installed; COSYVOICE names a clone of it.
"""

import contextlib
import dataclasses
import io
import json
import os
import shutil
import sys
import tempfile
import tomllib
import unittest
import warnings
from pathlib import Path

import numpy as np

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest(f"CosyVoice3 cannot be tested: {missing}")

from antiphon_export import cli
from antiphon_export.errors import ExportError
from antiphon_export.families import cosyvoice3, cosyvoice3_check, cosyvoice3_condition, cosyvoice3_makers
from antiphon_export.run import LanguageModel, Vocode, graph_path, open_graph

torch.set_num_threads(1)
warnings.simplefilter("ignore")
if "COSYVOICE" in os.environ:
    sys.path.insert(0, os.environ["COSYVOICE"])

# What the makers' file says, for the dimensions of a tiny model.
SETTINGS = """
__set_seed: !apply:random.seed [1986]
sample_rate: 24000
token_mel_ratio: 2
chunk_size: 25
llm: !new:cosyvoice.llm.llm.CosyVoice3LM
    speech_token_size: 60
    sampling: !name:cosyvoice.utils.common.ras_sampling
        top_p: 0.8
        top_k: 25
        win_size: 10
        tau_r: 0.1
flow: !new:cosyvoice.flow.flow.CausalMaskedDiffWithDiT
    output_size: 80
    token_mel_ratio: !ref <token_mel_ratio>
    pre_lookahead_len: 3
    decoder: !new:cosyvoice.flow.flow_matching.CausalConditionalCFM
        cfm_params: !new:omegaconf.DictConfig
            content: {t_scheduler: 'cosine', inference_cfg_rate: 0.7}
        estimator: !new:cosyvoice.flow.DiT.dit.DiT
            heads: 2
            static_chunk_size: !ref <chunk_size> * <token_mel_ratio>
hift: !new:cosyvoice.hifigan.generator.CausalHiFTGenerator
    nb_harmonics: 8
    sampling_rate: !ref <sample_rate>
    nsf_alpha: 0.1
    nsf_sigma: 0.003
    nsf_voiced_threshold: 10
    upsample_rates: [8, 5, 3]
    istft_params: {n_fft: 16, hop_len: 4}
    resblock_kernel_sizes: [3, 5]
    resblock_dilation_sizes: [[1, 3], [1, 3]]
    source_resblock_dilation_sizes: [[1, 3], [1, 3], [1, 3]]
    lrelu_slope: 0.1
    audio_limit: 0.99
    conv_pre_look_right: 4
get_tokenizer: !name:cosyvoice.tokenizer.tokenizer.get_qwen_tokenizer
    version: cosyvoice3
"""


def quietly(function, *arguments):
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        result = function(*arguments)
    return result, errors.getvalue()


def write_checkpoint(folder, seed=5):
    """A checkpoint as the makers publish it, of tiny dimensions but with as many text tokens as the real one."""
    dimensions = dataclasses.replace(cosyvoice3_makers.TINY, text_tokens=151936)
    made = cosyvoice3_makers.build(dimensions, seed)
    folder.mkdir()
    torch.save(made.llm.state_dict() | {"epoch": 3}, folder / "llm.pt")
    torch.save(made.flow.state_dict(), folder / "flow.pt")
    torch.save({f"generator.{name}": value for name, value in made.hift.state_dict().items()}, folder / "hift.pt")
    (folder / "cosyvoice3.yaml").write_text(SETTINGS)
    cosyvoice3_makers.write_stand_ins(folder, dimensions, seed)
    qwen = folder / "CosyVoice-BlankEN"
    qwen.mkdir()
    config = {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "rope_theta": 1e6,
        "rms_norm_eps": 1e-6,
    }
    (qwen / "config.json").write_text(json.dumps(config))
    tiny = folder / "tiny.json"
    cosyvoice3_makers.write_tiny_tokenizer(tiny)
    vocabulary = json.loads(tiny.read_text())["model"]["vocab"]
    tiny.unlink()
    vocabulary |= {f"unused{i}": i for i in range(len(vocabulary), 151643)}
    (qwen / "vocab.json").write_text(json.dumps(vocabulary))
    (qwen / "merges.txt").write_text("#version: 0.2\n")
    special = {str(151643 + i): token for i, token in enumerate(("<|endoftext|>", "<|im_start|>", "<|im_end|>"))}
    added = {i: {"content": token, "special": True, "normalized": False} for i, token in special.items()}
    settings = {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": added, "eos_token": "<|endoftext|>"}
    (qwen / "tokenizer_config.json").write_text(json.dumps(settings))
    return made


class Compared(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            cosyvoice3_makers.import_makers()
        except ExportError as missing:
            raise unittest.SkipTest(str(missing))
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    def test_the_graphs_give_what_the_makers_code_gives(self):
        for seed in (1, 2):
            family = cosyvoice3.random_family("tiny", seed)
            out = Path(self.folder.name) / f"random{seed}"
            out.mkdir()
            quietly(cli.write_folder, family, out, ["fp32"], True)
            for what, worst, tolerance in family.check(out):
                self.assertLessEqual(worst, tolerance, what)

    def test_a_checkpoint_becomes_a_model(self):
        checkpoint, out = Path(self.folder.name) / "checkpoint", Path(self.folder.name) / "out"
        write_checkpoint(checkpoint)
        arguments = ["cosyvoice3", str(checkpoint), str(out), "--fp16", "--int8", "--accept-licence"]
        status, said = quietly(cli.main, arguments)
        self.assertEqual(status, 0, said)
        contract = tomllib.loads((out / "contract.toml").read_text())
        self.assertEqual(contract["tokens"]["stop_last"], contract["tokens"]["vocabulary"] - 1)
        for precision in ("_fp16", "_int8"):
            self.assertTrue((out / f"decode{precision}.onnx").exists())
        # The whole path: the checkpoint's weights in the makers' classes, beside the graphs.
        family = cosyvoice3.open_checkpoint(checkpoint)
        for what, worst, tolerance in family.check(out):
            self.assertLessEqual(worst, tolerance, what)
        # The makers' tokenizer and ours, with their special tokens.
        from tokenizers import Tokenizer

        ours = Tokenizer.from_file(str(out / "tokenizer.json"))
        theirs = cosyvoice3_makers.tokenizer(checkpoint / "CosyVoice-BlankEN")
        for text in (cosyvoice3.TEXT.replace("{text}", "[breath]Well, [j][ǐ] 你好!"), "plain", "<|endofprompt|>"):
            self.assertEqual(ours.encode(text).ids, theirs([text])["input_ids"][0], text)
        self.assertIn(cosyvoice3.END_OF_PROMPT_ID, ours.encode(cosyvoice3.TEXT).ids)

    def test_fp16_stays_close(self):
        family = cosyvoice3.random_family("tiny", 4)
        out = Path(self.folder.name) / "half"
        out.mkdir()
        quietly(cli.write_folder, family, out, ["fp32", "fp16"], True)
        rng = np.random.default_rng(0)
        voice, codes = cosyvoice3_check._random_voice(family, rng, 25), rng.integers(0, family.sounds, (1, 30))
        whole, half = Vocode(out), Vocode(out)
        half.session = open_graph(graph_path(out, "vocode", "fp16"))
        a, b = (np.concatenate(cosyvoice3_check.stream(family, graph, codes, voice)[0], 2) for graph in (whole, half))
        self.assertLess(np.abs(a - b).max(), 0.3 * np.abs(a).max())
        self.assertEqual(LanguageModel(out, "fp16").cache_type, np.float16)

    def test_the_left_context_may_slide(self):
        """What falls out of the window changes the sound a little; positions, noise and the joints stay."""
        family = cosyvoice3.random_family("tiny", 5)
        out = Path(self.folder.name) / "slides"
        out.mkdir()
        quietly(cli.write_folder, family, out, ["fp32"], True)
        rng = np.random.default_rng(0)
        voice, codes = cosyvoice3_check._random_voice(family, rng, 30), rng.integers(0, family.sounds, (1, 160))
        vocode, contract = Vocode(out), family.contract()
        whole = np.concatenate(cosyvoice3_check.stream(family, vocode, codes, voice)[0], 2)
        per_token = contract["samples_per_token"]
        # The second chunk begins at 21: as much context is all there is. The third has lost a block.
        contract["chunks"]["left_context"] = 46
        family.contract = lambda: contract
        slid = np.concatenate(cosyvoice3_check.stream(family, vocode, codes, voice)[0], 2)
        self.assertLess(np.abs(slid - whole)[:, :, : 71 * per_token].max(), 1e-4)
        self.assertTrue(np.isfinite(slid).all())
        self.assertEqual(slid.shape, whole.shape)


class Refused(unittest.TestCase):
    """Needs none of the makers' code."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "checkpoint"
        self.folder.mkdir()

    def said(self):
        with self.assertRaises(ExportError) as raised:
            cosyvoice3.open_checkpoint(self.folder)
        return str(raised.exception)

    def write(self, settings=SETTINGS, qwen=None):
        (self.folder / "cosyvoice3.yaml").write_text(settings)
        (self.folder / "CosyVoice-BlankEN").mkdir()
        for name in cosyvoice3.FILES:
            (self.folder / name).write_bytes(b"no weights")
        (self.folder / "CosyVoice-BlankEN/config.json").write_text(json.dumps(qwen or {"model_type": "qwen2"}))

    def test_other_checkpoints_by_their_names(self):
        self.assertIn("no checkpoint of CosyVoice3", self.said())
        (self.folder / "cosyvoice.yaml").write_text("")
        self.assertIn("CosyVoice (the first)", self.said())
        (self.folder / "cosyvoice2.yaml").write_text("")
        self.assertIn("is a checkpoint of CosyVoice2: cosyvoice3 takes Fun-CosyVoice3-0.5B", self.said())
        shutil.rmtree(self.folder)
        self.assertIn("is no folder", self.said())

    def test_missing_and_broken_files(self):
        (self.folder / "cosyvoice3.yaml").write_text(SETTINGS)
        self.assertIn("lacks llm.pt, flow.pt, hift.pt, campplus.onnx", self.said())
        self.write()
        self.assertIn("llm.pt is no file of PyTorch weights", self.said())

    def test_another_language_model(self):
        self.write(qwen={"model_type": "llama"})
        self.assertIn("'llama'", self.said())

    def test_other_settings(self):
        for before, after, part in (
            ("llm.CosyVoice3LM", "llm.Qwen2LM", "stands where CosyVoice3LM is expected"),
            ("ras_sampling", "nucleus_sampling", "ras_sampling is supported"),
            ("'cosine'", "'linear'", "cosine is supported"),
            ("nb_harmonics: 8", "nb_harmonics: 4", "nb_harmonics 8"),
            ("        top_k: 25\n", "", "lacks 'top_k'"),
            ("<sample_rate>", "<rate>", "lacks 'rate'"),
            ("heads: 2", "heads: two", "'two' stands where a number is expected"),
            ("sample_rate: 24000", "sample_rate: [", "cannot be read"),
        ):
            path = self.folder / "cosyvoice3.yaml"
            self.assertIn(before, SETTINGS)
            path.write_text(SETTINGS.replace(before, after))
            with self.assertRaises(ExportError) as raised:
                cosyvoice3._read_settings(path)
            self.assertIn(part, str(raised.exception))

    def test_settings_are_data_and_run_nothing(self):
        path = self.folder / "cosyvoice3.yaml"
        path.write_text(SETTINGS + "evil: !apply:os.mkdir ['made']\n")
        self.assertEqual(cosyvoice3._read_settings(path).speech_tokens, 60)
        self.assertFalse(Path("made").exists())

    def test_graphs_that_are_something_else(self):
        speaker, tokens = cosyvoice3_makers.write_stand_ins(self.folder, cosyvoice3_makers.TINY, 1)
        with self.assertRaises(ExportError) as raised:
            cosyvoice3_condition.build(self.folder / "condition.onnx", tokens, tokens, 24)
        self.assertIn("has the inputs feats, feats_length: 1 were expected", str(raised.exception))
        speaker.write_bytes(b"nothing")
        with self.assertRaises(ExportError) as raised:
            cosyvoice3_condition.build(self.folder / "condition.onnx", speaker, tokens, 24)
        self.assertIn("is no ONNX file", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
