"""Qwen3-TTS with tiny random weights against the makers' PyTorch code. Skipped where torch or `qwen-tts` is not
installed."""

import contextlib
import io
import json
import tempfile
import tomllib
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

try:
    import torch
    from safetensors.torch import save_file

    from antiphon_export.families import qwen3_tts
except ImportError as missing:
    raise unittest.SkipTest(f"Qwen3-TTS cannot be tested: {missing}")

from antiphon_export import cli, files
from antiphon_export.errors import ExportError
from antiphon_export.report import agreement
from antiphon_export.run import LanguageModel, Vocode, graph_path, greedy_frames, open_graph

torch.set_num_threads(1)


def quietly(function, *arguments):
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        result = function(*arguments)
    return result, errors.getvalue()


def write_checkpoint(folder, family, size="tiny", kind=None):
    """A checkpoint as the makers publish it, with the weights of a random family."""
    model_config, codec_config, _ = qwen3_tts._dimensions(size)
    folder.mkdir()
    codec = folder / "speech_tokenizer"
    codec.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_tts", **model_config}))
    (codec / "config.json").write_text(json.dumps({"model_type": "qwen3_tts_tokenizer_12hz", **codec_config}))
    (folder / "generation_config.json").write_text(
        json.dumps({"temperature": 0.7, "subtalker_top_k": 20, "do_sample": True})
    )
    qwen3_tts._write_random_tokenizer(folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    for target, module in ((folder, family.model), (codec, family.codec)):
        state = {k: v.detach().clone().contiguous() for k, v in module.state_dict().items()}
        if kind is not None:
            state = {k: v.to(kind) if v.is_floating_point() else v for k, v in state.items()}
        save_file(state, str(target / "model.safetensors"))


class Exported(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = Path(cls.temporary.name) / "out"
        cls.folder.mkdir()
        cls.family = qwen3_tts.random_family("tiny", 1)
        quietly(cli.write_folder, cls.family, cls.folder, ["fp32", "fp16", "int8"], True)

    def test_every_graph_gives_what_the_makers_code_gives(self):
        for what, worst, tolerance in self.family.check(self.folder, frames=24):
            with self.subTest(what):
                self.assertLessEqual(worst, tolerance)

    def test_stacks_of_two_sizes_are_projected(self):
        family = qwen3_tts.random_family("tiny-projected", 4)
        with tempfile.TemporaryDirectory() as folder:
            quietly(cli.write_folder, family, Path(folder), ["fp32"], True)
            for what, worst, tolerance in family.check(Path(folder), frames=8):
                with self.subTest(what):
                    self.assertLessEqual(worst, tolerance)

    def test_other_precisions_nearly_agree(self):
        found = agreement(self.folder, self.family.contract(), ["fp16", "int8"], steps=200)
        self.assertGreater(found["fp16"]["first_code_agreement"], 0.97)
        self.assertGreater(found["int8"]["first_code_agreement"], 0.9)
        self.assertGreater(found["int8"]["other_code_agreement"], 0.9)

    def test_the_prompt_in_fp16_is_nearly_the_same(self):
        rng = np.random.default_rng(8)
        feed = {
            "text_ids": rng.integers(0, 128, (1, 20)),
            "transcript_ids": rng.integers(0, 128, (1, 11)),
            "language": np.array([1]),
            "speaker": rng.standard_normal((1, 32)).astype(np.float32),
            "codes": rng.integers(0, self.family.sounds, (1, 9, 16)),
        }
        full, half = (
            open_graph(graph_path(self.folder, "prompt", precision)).run(["embeds", "following"], feed)
            for precision in ("fp32", "fp16")
        )
        for one, other in zip(full, half):
            np.testing.assert_allclose(one, other, atol=1e-2)

    def test_the_makers_generate_gives_the_same_speech_and_ends_where_it_ends(self):
        rng = np.random.default_rng(12)
        speaker = rng.standard_normal(32).astype(np.float32)
        codes = rng.integers(0, self.family.sounds, (10, 16))
        text, transcript = rng.integers(0, 128, (1, 24)), rng.integers(0, 128, (1, 13))
        model, prompt = LanguageModel(self.folder), open_graph(graph_path(self.folder, "prompt"))
        for in_context in (True, False):
            known = transcript if in_context else transcript[:, :0]
            with torch.no_grad():
                made, _ = self.family.model.generate(
                    input_ids=[torch.tensor(text)],
                    ref_ids=[torch.tensor(transcript) if in_context else None],
                    voice_clone_prompt={
                        "ref_code": [torch.tensor(codes) if in_context else None],
                        "ref_spk_embedding": [torch.tensor(speaker)],
                        "x_vector_only_mode": [not in_context],
                        "icl_mode": [in_context],
                    },
                    languages=["chinese"],
                    do_sample=False,
                    subtalker_dosample=False,
                    repetition_penalty=1.0,
                    max_new_tokens=60,
                )
            made = made[0].numpy()
            feed = {"text_ids": text, "transcript_ids": known, "language": np.array([1])}
            feed |= {"speaker": speaker[None], "codes": codes[None]}
            embeds, following = prompt.run(["embeds", "following"], feed)
            frames, _ = greedy_frames(model, [(embeds[0], following[0])], 60)
            self.assertGreater(len(made), 3)
            np.testing.assert_array_equal(frames[0, : len(made)], made)
            if len(made) < 59:
                self.assertEqual(frames[0, len(made), 0], self.family.sounds)

    def test_the_contract_fits_the_graphs(self):
        contract = tomllib.loads((self.folder / "contract.toml").read_text())
        model = LanguageModel(self.folder)
        decode = contract["decode"]
        self.assertEqual(len(model.past), 2 * decode["layers"])
        self.assertEqual(model.cache_shape[1::2], [decode["heads"], decode["head_size"]])
        logits = next(port for port in model.decode.get_outputs() if port.name == "logits")
        self.assertEqual(logits.shape[2], contract["tokens"]["vocabulary"])
        state = Vocode(self.folder).empty_state(1)
        self.assertEqual([entry["input"] for entry in contract["vocode"]["state"]], list(state))

    def test_rows_of_the_vocoder_are_independent(self):
        """Rows whose streams began at different times share a run."""
        rng = np.random.default_rng(2)
        vocode = Vocode(self.folder)
        codes = rng.integers(0, self.family.sounds, (2, 12, 16))
        alone = []
        for row in codes:
            state, sounds = vocode.empty_state(1), []
            for at in range(0, 12, 3):
                sound, state = vocode.run(row[None, at : at + 3], state)
                sounds.append(sound)
            alone.append(np.concatenate(sounds, 2))
        fresh = vocode.empty_state(1)
        _, ahead = vocode.run(codes[:1, :3], fresh)
        joined = {name: np.concatenate([ahead[name], fresh[name]]) for name in fresh}
        sound, _ = vocode.run(np.stack([codes[0, 3:6], codes[1, :3]]), joined)
        samples = self.family.vocoder.samples_per_frame
        np.testing.assert_allclose(sound[0], alone[0][0, :, 3 * samples : 6 * samples], atol=1e-4)
        np.testing.assert_allclose(sound[1], alone[1][0, :, : 3 * samples], atol=1e-4)

    def test_speech_in_context_is_that_of_the_makers_wrapper(self):
        """The makers decode the recording's frames before the speech and cut their sound; the engine runs them for the
        state."""
        rng = np.random.default_rng(3)
        before, speech = rng.integers(0, self.family.sounds, (2, 10, 16))
        whole = qwen3_tts.spoken(self.family.vocoder, np.concatenate([before, speech]))
        vocode = Vocode(self.folder)
        _, state = vocode.run(before[None], vocode.empty_state(1))
        sound, _ = vocode.run(speech[None], state)
        cut = int(len(before) / (len(before) + len(speech)) * len(whole))
        np.testing.assert_allclose(sound[0, 0], whole[cut:], atol=1e-4)


class Checkpoints(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.family = qwen3_tts.random_family("tiny", 1)

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.checkpoint = self.folder / "checkpoint"

    def write(self, kind=None):
        write_checkpoint(self.checkpoint, self.family, kind=kind)

    def change(self, name, **values):
        path = self.checkpoint / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    def refused(self, message):
        with self.assertRaisesRegex(ExportError, message):
            qwen3_tts.open_checkpoint(self.checkpoint)

    def test_a_checkpoint_is_exported_by_the_command_line(self):
        for kind in (None, torch.bfloat16, torch.float16):
            with self.subTest(kind=kind):
                self.checkpoint = self.folder / f"checkpoint-{kind}"
                self.write(kind)
                out = self.folder / f"out-{kind}"
                status, errors = quietly(cli.main, ["qwen3-tts", str(self.checkpoint), str(out), "--accept-licence"])
                self.assertEqual(status, 0, errors)
                contract = tomllib.loads((out / "contract.toml").read_text())
                self.assertEqual(contract["title"], "Qwen3-TTS 0.6B Base")
                self.assertEqual(contract["sampling"]["temperature"], 0.7)
                self.assertEqual(contract["frame"]["top_k"], 20)
                family = qwen3_tts.open_checkpoint(self.checkpoint)
                for what, worst, tolerance in family.check(out, frames=6):
                    self.assertLessEqual(worst, tolerance, what)
                if kind is None:
                    mine = dict(self.family.model.named_parameters())
                    for name, value in family.model.named_parameters():
                        torch.testing.assert_close(value, mine[name])
                self.assertTrue((out / "tokenizer.json").exists())

    def test_another_model_is_named(self):
        self.write()
        self.change("config.json", model_type="chatterbox")
        self.refused("checkpoint of chatterbox")

    def test_other_kinds_of_the_family_are_refused_with_what_would_be_right(self):
        self.write()
        for kind in ("custom_voice", "voice_design"):
            self.change("config.json", tts_model_type=kind)
            self.refused(f"{kind}.*Qwen3-TTS-12Hz-0.6B-Base")

    def test_missing_files_are_named(self):
        for name, message in (
            ("config.json", "configuration is missing"),
            ("model.safetensors", "the model's weights are missing"),
            ("speech_tokenizer/config.json", "codec's configuration is missing"),
            ("speech_tokenizer/model.safetensors", "codec's weights are missing"),
            ("generation_config.json", "generation configuration is missing"),
            ("tokenizer.json", "tokenizer is missing.*vocab.json"),
        ):
            with self.subTest(name):
                self.checkpoint = self.folder / name.replace("/", "-")
                self.write()
                (self.checkpoint / name).unlink()
                self.refused(message)

    def test_a_newer_architecture_is_refused(self):
        self.write()
        config = json.loads((self.checkpoint / "config.json").read_text())
        config["talker_config"]["mixture_of_experts"] = 8
        (self.checkpoint / "config.json").write_text(json.dumps(config))
        self.assertEqual(qwen3_tts.open_checkpoint(self.checkpoint).unknown, ["talker_config.mixture_of_experts"])
        out = str(self.folder / "out")
        status, errors = quietly(cli.main, ["qwen3-tts", str(self.checkpoint), out, "--accept-licence"])
        self.assertEqual(status, 1)
        self.assertIn("mixture_of_experts", errors)

    def test_what_would_be_computed_differently_is_refused(self):
        self.write()
        config = json.loads((self.checkpoint / "config.json").read_text())
        config["talker_config"] |= {"use_sliding_window": True, "hidden_act": "gelu"}
        (self.checkpoint / "config.json").write_text(json.dumps(config))
        self.refused("silu; a talker with a sliding window")

    def test_tensors_that_do_not_fit_are_named(self):
        self.write()
        path = self.checkpoint / "model.safetensors"
        state = {k: v.detach().clone() for k, v in self.family.model.state_dict().items()}
        save_file(state | {"talker.extra.weight": torch.zeros(2)}, str(path))
        self.assertEqual(qwen3_tts.open_checkpoint(self.checkpoint).unknown, ["the tensor talker.extra.weight"])
        removed = state.pop("talker.codec_head.weight")
        save_file(state, str(path))
        self.refused("1 tensors of the model are missing, among them talker.codec_head.weight")
        save_file(state | {"talker.codec_head.weight": removed[:-1].clone()}, str(path))
        self.refused("talker.codec_head.weight has the shape")

    def test_too_little_memory(self):
        self.write()
        with mock.patch.object(files, "available_memory", return_value=1 << 20):
            self.refused("too little memory")


if __name__ == "__main__":
    unittest.main()
