"""Qwen3-TTS (Base checkpoints, 12 Hz tokenizer): a talker over text and the first codebook, a code predictor over the
other 15, an ECAPA speaker encoder, and a codec that is Mimi's encoder with a causal decoder.

The command line loads this module by name. It needs the makers' package `qwen-tts`, whose classes hold the weights and
are what the graphs are compared with. It never downloads anything. CustomVoice and VoiceDesign checkpoints are refused:
they have no speaker encoder, and the layout makes every voice of a recording.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import torch

from qwen_tts.core import Qwen3TTSTokenizerV2Config, Qwen3TTSTokenizerV2Model
from qwen_tts.core.models import Qwen3TTSConfig, Qwen3TTSForConditionalGeneration
from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSTalkerCodePredictorConfig, Qwen3TTSTalkerConfig

from ..errors import ExportError
from ..files import Inline, check_memory, check_weight_types, export_module, read_json, weight_files
from ..run import LanguageModel, Vocode, graph_path, greedy_frames, open_graph
from ..transformer import FrameConfig, StackConfig, build_decode, build_frame, decode_section, fold
from .qwen3_tts_codec import Condition, Vocoder, spoken
from .qwen3_tts_prompt import PromptWeights, build_prompt

NAME = "qwen3-tts"
TITLE = "Qwen3-TTS"
LICENCE = "Apache-2.0"
LICENCE_NOTE = (
    "Qwen3-TTS is published by Alibaba under the Apache License 2.0: you may use, change and pass on the weights,"
    " also for commerce, if you keep the licence and its notices. Clone a voice only with its owner's consent."
)
PACKAGE = "qwen-tts"

TEXT = "<|im_start|>assistant\n{text}<|im_end|>\n<|im_start|>assistant\n"
TRANSCRIPT = "<|im_start|>assistant\n{transcript}<|im_end|>\n"
LANGUAGES = {
    "english": "en",
    "chinese": "zh",
    "german": "de",
    "french": "fr",
    "spanish": "es",
    "italian": "it",
    "portuguese": "pt",
    "russian": "ru",
    "japanese": "ja",
    "korean": "ko",
}
# The makers' defaults where generation_config.json says nothing.
SAMPLING = {
    "do_sample": True,
    "top_k": 50,
    "top_p": 1.0,
    "temperature": 0.9,
    "repetition_penalty": 1.05,
    "subtalker_dosample": True,
    "subtalker_top_k": 50,
    "subtalker_top_p": 1.0,
    "subtalker_temperature": 0.9,
}
# Ids at the end of the talker's vocabulary that are no codes; the makers' `generate` has this number.
CONTROL_IDS = 1024
# The longest sequence that RoPE is tabulated for, and the columns of a slot's cache: 80 s of prompt and speech.
POSITIONS = 8192
CAPACITY = 1024
# Keys that published configurations have and that the makers' classes do not name.
MORE_TALKER_KEYS = {
    "head_dim",
    "text_vocab_size",
    "position_id_per_seconds",
    "code_predictor_config",
    "attention_bias",
    "accept_hidden_layer",
    "output_router_logits",
    "shared_expert_intermediate_size",
    "spatial_merge_size",
    "seconds_per_chunk",
    "layer_types",
    "max_window_layers",
    "audio_token_id",
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
    "audio_start_token_id",
    "audio_end_token_id",
    "text_config",
    "thinker_hidden_size",
    "speaker_id",
}


class Family:
    """A model in the makers' classes, in float32."""

    def __init__(
        self,
        model: Qwen3TTSForConditionalGeneration,
        codec: Qwen3TTSTokenizerV2Model,
        title: str,
        sampling: dict[str, Any],
        tokenizer: Callable[[Path], None],
        capacity: int = CAPACITY,
        unknown: list[str] | None = None,
    ) -> None:
        self.model = model.eval()
        self.codec = codec.eval()
        self.title = title
        self.sampling = {**SAMPLING, **{k: v for k, v in sampling.items() if k in SAMPLING and v is not None}}
        self.tokenizer = tokenizer
        self.capacity = capacity
        self.unknown = unknown or []
        """What the configuration says and this version does not know."""
        self.config = model.config.talker_config
        self.codebooks = self.config.num_code_groups
        self.sounds = self.config.vocab_size - CONTROL_IDS
        known = self.config.codec_language_id or {}
        self.languages = [(name, tag) for name, tag in LANGUAGES.items() if name in known]
        self._vocoder = None
        _check_architecture(self)

    # What is exported

    def graphs(self) -> dict[str, Callable[[Path, str], None]]:
        return {
            "condition": self._condition,
            "prompt": lambda path, precision: build_prompt(self._prompt_weights(), precision).save(path),
            "decode": lambda path, precision: build_decode(*self._decode_weights(), precision).save(path),
            "frame": lambda path, precision: build_frame(*self._frame_weights(), precision).save(path),
            "vocode": self._vocode,
        }

    def contract(self) -> dict[str, Any]:
        config, sampling = self.config, self.sampling
        temperature = float(sampling["temperature"]) if sampling["do_sample"] else 0.0
        inner = float(sampling["subtalker_temperature"]) if sampling["subtalker_dosample"] else 0.0
        return {
            "format": 1,
            "name": NAME,
            "title": self.title,
            "licence": LICENCE,
            "languages": [tag for _, tag in self.languages],
            "rate_hz": int(self.codec.output_sample_rate),
            "samples_per_token": self.vocoder.samples_per_frame,
            "watermark": "none",
            "text": {"tokenizer": "tokenizer.json", "vocabulary": 0, "template": "{text}"},
            "condition": {
                "file": "condition{precision}.onnx",
                "audio": "audio",
                "prompt": "codes",
                "min_seconds": 1.0,
                "use_seconds": 15.0,
            },
            "prompt": {
                "file": "prompt{precision}.onnx",
                "voice": ["speaker", "codes"],
                "embeds": "embeds",
                "following": "following",
                "ids": [
                    {"port": "text_ids", "template": TEXT},
                    {"port": "transcript_ids", "template": TRANSCRIPT},
                ],
                "language": {
                    "port": "language",
                    "ids": Inline({tag: i for i, (_, tag) in enumerate(self.languages)}),
                    "auto": -1,
                },
            },
            "frame": {
                "file": "frame{precision}.onnx",
                "temperature": inner,
                "top_k": int(sampling["subtalker_top_k"]),
                "top_p": float(sampling["subtalker_top_p"]),
            },
            "decode": decode_section(
                layers=config.num_hidden_layers,
                heads=config.num_key_value_heads,
                head_size=config.head_dim,
                context=self._stack(config).positions,
                capacity=self.capacity,
                hidden=True,
            ),
            "vocode": {
                "file": "vocode{precision}.onnx",
                "tokens": "codes",
                "waveform": "waveform",
                "with_prompt": True,
                "state": [
                    {"input": f"state.{n}", "output": f"next.{n}", "fill": 0.0} for n in self.vocoder.empty_state(1)
                ],
            },
            "tokens": {
                "vocabulary": self.sounds + 1,
                "sounds": self.sounds,
                "start": -1,
                "stop": self.sounds,
                "silence": -1,
                "codebooks": self.codebooks,
            },
            "sampling": {
                "order": ["repetition", "temperature", "top_k", "top_p"],
                "temperature": temperature,
                "top_k": int(sampling["top_k"]),
                "top_p": float(sampling["top_p"]),
                "repetition_penalty": float(sampling["repetition_penalty"]),
                "repetition_window": 0,
            },
            # 12.5 frames a second. The makers let no speech end before its third frame.
            "length": {
                "max_tokens": min(750, self.capacity * 3 // 4),
                "min_tokens": 2,
                "max_tokens_per_char": 6.0,
                "max_silence": 12,
                "end_silence": 37,
            },
            "chunks": {
                "first": 3,
                "growth": 2.0,
                "most": 25,
                "look_ahead": 0,
                "left_context": 0,
                "cross_fade_ms": 0,
            },
        }

    def write_tokenizer(self, path: Path) -> None:
        self.tokenizer(path)

    @property
    def vocoder(self) -> Vocoder:
        if self._vocoder is None:
            self._vocoder = Vocoder(self.codec.decoder).eval()
        return self._vocoder

    def _condition(self, path: Path, precision: str) -> None:
        module = Condition(self.model.speaker_encoder, self.codec)
        audio = torch.sin(torch.arange(20011) * 0.05)[None] * 0.3
        dynamic = {"audio": {1: "samples"}, "codes": {1: "frames"}}
        export_module(module, path, [audio], ["audio"], ["speaker", "codes"], dynamic, fold=False)

    def _vocode(self, path: Path, precision: str) -> None:
        state = self.vocoder.empty_state(2)
        inputs = [f"state.{name}" for name in state]
        outputs = [f"next.{name}" for name in state]
        dynamic = {name: {0: "batch"} for name in (*inputs, *outputs)}
        dynamic |= {"codes": {0: "batch", 1: "frames"}, "waveform": {0: "batch", 2: "samples"}}
        codes = torch.zeros(2, 3, self.codebooks, dtype=torch.int64)
        export_module(self.vocoder, path, [codes, *state.values()], ["codes", *inputs], ["waveform", *outputs], dynamic)

    # Weights

    def _stack(self, config: Any) -> StackConfig:
        return StackConfig(
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_size=config.head_dim,
            intermediate=config.intermediate_size,
            norm_eps=config.rms_norm_eps,
            rope_theta=config.rope_theta,
            positions=min(config.max_position_embeddings, POSITIONS if config is self.config else 64),
            qk_norm=True,
            qkv_bias=config.attention_bias,
            o_bias=config.attention_bias,
        )

    def _stop_row(self, table: torch.Tensor) -> np.ndarray:
        """Rows of the codes, and behind them that of the id that ends the speech."""
        rows = table.detach()
        stop = rows[self.config.codec_eos_token_id]
        return torch.cat([rows[: self.sounds], stop[None]]).numpy()

    def _decode_weights(self) -> tuple[StackConfig, dict[str, np.ndarray]]:
        talker = self.model.talker
        weights = _stack_weights(talker.model, self.config.attention_bias)
        weights["head"] = self._stop_row(talker.codec_head.weight)
        return self._stack(self.config), weights

    def _frame_weights(self) -> tuple[FrameConfig, dict[str, np.ndarray]]:
        talker, predictor = self.model.talker, self.model.talker.code_predictor
        inner = predictor.config
        weights = _stack_weights(predictor.model, inner.attention_bias)
        tables = [self._stop_row(talker.model.codec_embedding.weight)]
        tables += [_array(table.weight) for table in predictor.model.codec_embedding]
        projection = predictor.small_to_mtp_projection
        if isinstance(projection, torch.nn.Linear):
            weights["project"] = _array(projection.weight)
            weights["project_bias"] = _array(projection.bias)
            inputs = [fold(table, weights["project"], weights["project_bias"]) for table in tables[:-1]]
        else:
            inputs = tables[:-1]
        weights |= {f"outer.{i}": table for i, table in enumerate(tables)}
        weights |= {f"inner.{i}": table for i, table in enumerate(inputs)}
        weights |= {f"heads.{i}": _array(head.weight) for i, head in enumerate(predictor.lm_head, 1)}
        return FrameConfig(stack=self._stack(inner), hidden=self.config.hidden_size, codebooks=self.codebooks), weights

    def _prompt_weights(self) -> PromptWeights:
        talker, config = self.model.talker, self.config
        table = _array(talker.model.codec_embedding.weight)
        control = [
            config.codec_pad_id,
            config.codec_bos_id,
            config.codec_think_id,
            config.codec_nothink_id,
            config.codec_think_bos_id,
            config.codec_think_eos_id,
        ]
        return PromptWeights(
            text=_array(talker.model.text_embedding.weight),
            fc1=_array(talker.text_projection.linear_fc1.weight),
            fc1_bias=_array(talker.text_projection.linear_fc1.bias),
            fc2=_array(talker.text_projection.linear_fc2.weight),
            fc2_bias=_array(talker.text_projection.linear_fc2.bias),
            codes=[table[: self.sounds], *(_array(t.weight) for t in talker.code_predictor.model.codec_embedding)],
            languages=table[[config.codec_language_id[name] for name, _ in self.languages]],
            control=table[control],
            pad_id=self.model.config.tts_pad_token_id,
            bos_id=self.model.config.tts_bos_token_id,
            eos_id=self.model.config.tts_eos_token_id,
        )

    # What the makers' code gives

    def upstream_voice(self, audio: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The speaker's embedding [D] and the frames [T, K] of a recording [N]."""
        with torch.no_grad():
            speaker = self.model.extract_speaker_embedding(audio.astype(np.float32), 24000)
            sound = torch.as_tensor(audio, dtype=torch.float32)[None]
            codes = self.codec.encode(sound, torch.ones_like(sound, dtype=torch.int64), return_dict=True).audio_codes[0]
        return speaker.numpy(), codes.numpy()

    def upstream_prompt(
        self,
        text_ids: np.ndarray,
        transcript_ids: np.ndarray,
        language: int,
        speaker: np.ndarray,
        codes: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Embeddings [L, H] that the makers' `generate` begins with, and those that it adds to each frame [T, H]."""
        caught: dict[str, torch.Tensor] = {}

        class Caught(Exception):
            pass

        def catch(**arguments):
            caught.update(arguments)
            raise Caught

        talker = self.model.talker
        in_context = transcript_ids.size > 0
        talker.generate = catch
        try:
            with torch.no_grad():
                self.model.generate(
                    input_ids=[torch.as_tensor(text_ids)[None]],
                    ref_ids=[torch.as_tensor(transcript_ids)[None] if in_context else None],
                    voice_clone_prompt={
                        "ref_code": [torch.as_tensor(codes) if in_context else None],
                        "ref_spk_embedding": [torch.as_tensor(speaker)],
                        "x_vector_only_mode": [not in_context],
                        "icl_mode": [in_context],
                    },
                    languages=["auto" if language < 0 else self.languages[language][0]],
                    non_streaming_mode=False,
                )
        except Caught:
            pass
        finally:
            del talker.generate
        trailing, pad = caught["trailing_text_hidden"][0], caught["tts_pad_embed"][0]
        # Where the text ended within the context, the makers' code says so by one row of padding.
        following = pad if torch.equal(trailing, pad) else torch.cat([trailing, pad])
        return caught["inputs_embeds"][0].numpy(), following.numpy()

    def upstream_frames(self, embeds: np.ndarray, following: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The most likely frames [count, K] of the makers' talker, and the logits [V] of the prefill."""
        talker = self.model.talker
        stop = self.config.codec_eos_token_id
        allowed = torch.tensor([*range(self.sounds), stop])
        frames, first = [], None
        trailing = torch.as_tensor(following)[None, :-1]
        pad = torch.as_tensor(following)[None, -1:]
        with torch.no_grad():
            out = talker(inputs_embeds=torch.as_tensor(embeds)[None], use_cache=True)
            for _ in range(count):
                logits = out.logits[0, -1, allowed]
                first = logits.numpy() if first is None else first
                code = int(logits.argmax())
                out = talker(
                    input_ids=allowed[code].view(1, 1),
                    past_key_values=out.past_key_values,
                    past_hidden=out.past_hidden,
                    generation_step=out.generation_step,
                    trailing_text_hidden=trailing,
                    tts_pad_embed=pad,
                    subtalker_dosample=False,
                    use_cache=True,
                )
                frames.append([code, *out.hidden_states[1][0, 1:].tolist()])
        return np.array(frames), first

    # Comparison

    def check(self, folder: Path, frames: int | None = None) -> list[tuple[str, float, float]]:
        """`frames` are compared of each prompt: 64, or 8 of a model whose frames take seconds."""
        folder = Path(folder)
        if frames is None:
            frames = 64 if self.config.num_hidden_layers < 8 else 8
        rng = np.random.default_rng(7)
        results: list[tuple[str, float, float]] = []
        condition, prompt = (open_graph(graph_path(folder, role)) for role in ("condition", "prompt"))
        for samples in (19200, 30011):
            audio = _recording(samples, 24000, seed=samples)
            speaker, codes = condition.run(["speaker", "codes"], {"audio": audio[None]})
            want_speaker, want_codes = self.upstream_voice(audio)
            results.append((f"condition, {samples} samples: speaker", _worst(speaker[0], want_speaker), 1e-3))
            results.append((f"condition, {samples} samples: codes unequal", _unequal(codes[0], want_codes), 0))

        prompts = []
        text_vocabulary = self.config.text_vocab_size
        for case, (text, transcript, language) in enumerate(
            [(9, 0, -1), (4, 12, 0), (30, 3, -1), (1, 0, len(self.languages) - 1)]
        ):
            ids = {
                "text_ids": rng.integers(0, text_vocabulary, (1, text + 8)),
                "transcript_ids": rng.integers(0, text_vocabulary, (1, transcript + 5 if transcript else 0)),
            }
            feed = {**ids, "language": np.array([language]), "speaker": speaker, "codes": codes}
            got = prompt.run(["embeds", "following"], feed)
            want = self.upstream_prompt(ids["text_ids"][0], ids["transcript_ids"][0], language, speaker[0], codes[0])
            what = f"prompt {case}: {text} ids, transcript of {transcript}, language {language}"
            results.append((what, max(_worst(got[0][0], want[0]), _worst(got[1][0], want[1])), 1e-4))
            prompts.append(want)

        model = LanguageModel(folder)
        batch = prompts + prompts
        together, _ = greedy_frames(model, batch, frames)
        for case, (embeds, following) in enumerate(prompts):
            want, want_logits = self.upstream_frames(embeds, following, frames)
            alone, logits = greedy_frames(model, [(embeds, following)], frames)
            results.append((f"decode, prompt {case}: logits of the prefill", _worst(logits[0], want_logits), 1e-3))
            results.append(
                (f"decode and frame, prompt {case}: codes of {want.size} unequal", _unequal(alone[0], want), 0)
            )
            rows = (together[case], together[case + len(prompts)])
            results.append(
                (
                    f"the same in a ragged batch of {len(batch)}: codes unequal",
                    max(_unequal(row, want) for row in rows),
                    0,
                )
            )

        vocode = Vocode(folder)
        count = 3 * self.vocoder.window if self.vocoder.window < 20 else 90
        codes = rng.integers(0, self.sounds, (2, count, self.codebooks))
        whole = np.stack([spoken(self.vocoder, row) for row in codes])
        for chunks in ([count], [1] * 5 + [2, 3, 7, 25]):
            state, sounds, at = vocode.empty_state(2), [], 0
            while at < count:
                size = chunks[min(len(sounds), len(chunks) - 1)]
                sound, state = vocode.run(codes[:, at : at + size], state)
                sounds.append(sound[:, 0])
                at += size
            got = np.concatenate(sounds, 1)
            results.append((f"vocode, {count} frames in {len(sounds)} chunks", _worst(got, whole), 1e-3))
        return results

    def golden(self, folder: Path) -> dict[str, Any]:
        import soundfile
        from tokenizers import Tokenizer

        folder = Path(folder)
        soundfile.write(folder / "reference.wav", _recording(24000, 24000, seed=5), 24000, subtype="PCM_16")
        audio, _ = soundfile.read(folder / "reference.wav", dtype="float32")
        speaker, codes = self.upstream_voice(audio)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        ids = {
            "text_ids": tokenizer.encode(TEXT.replace("{text}", "Hello there, how are you?")).ids,
            "transcript_ids": tokenizer.encode(TRANSCRIPT.replace("{transcript}", "A short one.")).ids,
        }
        language = 0
        embeds, following = self.upstream_prompt(*map(np.array, ids.values()), language, speaker, codes)
        frames, logits = self.upstream_frames(embeds, following, 64)
        vocoded = np.random.default_rng(11).integers(0, self.sounds, (24, self.codebooks))
        stride = 61
        return {
            "ids": ids,
            "language": language,
            "voice": {
                "speaker": {"kind": "f32", "shape": [1, len(speaker)], "data": _numbers(speaker)},
                "codes": {"kind": "i64", "shape": [1, *codes.shape], "data": codes.flatten().tolist()},
            },
            "recording": "reference.wav",
            "prompt_embeds_sum": _numbers(embeds.sum(-1)),
            "first_logits": _numbers(logits),
            "frames": frames.tolist(),
            "codes": vocoded.tolist(),
            "waveform": _numbers(spoken(self.vocoder, vocoded)[::stride]),
            "waveform_stride": stride,
        }


def open_checkpoint(checkpoint: Path) -> Family:
    """Loads a checkpoint's folder: config.json, weights, tokenizer, and the codec in speech_tokenizer/."""
    checkpoint = Path(checkpoint)
    if not checkpoint.is_dir():
        raise ExportError(f"{checkpoint} is no folder: name the folder of the downloaded checkpoint")
    raw = read_json(checkpoint / "config.json", "the checkpoint's configuration")
    if raw.get("model_type") != "qwen3_tts":
        raise ExportError(
            f"{checkpoint} is a checkpoint of {raw.get('model_type') or 'an unnamed model'}; {NAME} takes one whose"
            " config.json says qwen3_tts"
        )
    kind = raw.get("tts_model_type")
    if kind != "base":
        raise ExportError(
            f"{checkpoint} is a {kind} checkpoint: it speaks with built-in or described voices. {NAME} exports Base"
            " checkpoints, which clone a recording: take Qwen3-TTS-12Hz-0.6B-Base or Qwen3-TTS-12Hz-1.7B-Base"
        )
    if "12hz" not in str(raw.get("tokenizer_type", "")).lower():
        raise ExportError(f"the tokenizer {raw.get('tokenizer_type')!r} is not supported: take a 12Hz checkpoint")
    unknown = _unknown_keys(raw)
    codec_folder = checkpoint / "speech_tokenizer"
    raw_codec = read_json(codec_folder / "config.json", "the codec's configuration")
    if raw_codec.get("model_type") != "qwen3_tts_tokenizer_12hz":
        raise ExportError(
            f"{codec_folder} holds {raw_codec.get('model_type')!r}: qwen3_tts_tokenizer_12hz is supported"
        )
    sampling = read_json(checkpoint / "generation_config.json", "the generation configuration")
    files = weight_files(checkpoint, "the model's weights")
    codec_files = weight_files(codec_folder, "the codec's weights")
    _tokenizer_files(checkpoint)
    check_weight_types([*files, *codec_files])
    check_memory([*files, *codec_files])
    try:
        config = Qwen3TTSConfig(**raw)
        codec_config = Qwen3TTSTokenizerV2Config(**raw_codec)
    except Exception as error:
        raise ExportError(f"the configuration is not one that {PACKAGE} reads: {error}") from error
    with torch.no_grad():
        model, more = _loaded(lambda: Qwen3TTSForConditionalGeneration(config), files, "the model")
        codec, more_codec = _loaded(lambda: Qwen3TTSTokenizerV2Model(codec_config), codec_files, "the codec")
    unknown += [f"the tensor {name}" for name in (*more, *more_codec)]
    size = str(raw.get("tts_model_size", "")).lower()
    title = f"{TITLE} {({'0b6': '0.6B', '1b7': '1.7B'}).get(size, size.upper())} Base"
    return Family(model, codec, title, sampling, lambda path: _write_tokenizer(checkpoint, path), unknown=unknown)


def random_family(size: str, seed: int) -> Family:
    """Random weights in the makers' classes. Beside "tiny" and "true" there is "tiny-projected", whose two stacks have
    different sizes, as those of the 1.7B model."""
    model_config, codec_config, capacity = _dimensions(size)
    torch.manual_seed(seed)
    with torch.no_grad():
        model = Qwen3TTSForConditionalGeneration(Qwen3TTSConfig(**model_config)).float()
        codec = Qwen3TTSTokenizerV2Model(Qwen3TTSTokenizerV2Config(**codec_config)).float()
        _randomize(model, seed)
        _randomize(codec, seed + 1)
    return Family(model, codec, f"{TITLE} ({size}, random weights)", {}, _write_random_tokenizer, capacity)


def _dimensions(size: str) -> tuple[dict, dict, int]:
    if size == "true":
        talker = dict(
            vocab_size=3072,
            hidden_size=1024,
            intermediate_size=3072,
            num_hidden_layers=28,
            num_attention_heads=16,
            num_key_value_heads=8,
            head_dim=128,
            text_hidden_size=2048,
            text_vocab_size=151936,
            rope_scaling={"interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
        )
        predictor = dict(
            vocab_size=2048,
            hidden_size=1024,
            intermediate_size=3072,
            num_hidden_layers=5,
            num_attention_heads=16,
            num_key_value_heads=8,
            head_dim=128,
        )
        speaker: dict[str, Any] = dict(enc_dim=1024)
        encoder: dict[str, Any] = dict(frame_rate=12.5)
        decoder = dict(
            codebook_dim=512, hidden_size=512, intermediate_size=1024, head_dim=64, latent_dim=1024, decoder_dim=1536
        )
        marks, control, capacity = (151671, 151672, 151673), 2148, CAPACITY
    elif size in ("tiny", "tiny-projected"):
        hidden = 32 if size == "tiny" else 48
        talker = dict(
            vocab_size=32 + CONTROL_IDS,
            hidden_size=hidden,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            text_hidden_size=32,
            text_vocab_size=128,
            max_position_embeddings=576,
            rope_scaling={"interleaved": True, "mrope_section": [3, 3, 2], "rope_type": "default"},
        )
        predictor = dict(
            vocab_size=32,
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
        )
        speaker = dict(
            enc_dim=hidden,
            enc_channels=[8, 8, 8, 8, 24],
            enc_attention_channels=8,
            enc_res2net_scale=4,
            enc_se_channels=8,
        )
        encoder = dict(
            frame_rate=12.5,
            hidden_size=16,
            num_filters=2,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            codebook_size=32,
            codebook_dim=8,
            vector_quantization_hidden_dimension=8,
            upsample_groups=16,
        )
        decoder = dict(
            codebook_size=32,
            codebook_dim=16,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=8,
            latent_dim=8,
            decoder_dim=16,
            sliding_window=8,
        )
        marks, control, capacity = (120, 121, 122), 36, 512
    else:
        raise ExportError(f"there is no size {size!r}: tiny or true")
    pad, bos, eos, think = control, control + 1, control + 2, control + 6
    names = [*LANGUAGES, "beijing_dialect"] if size == "true" else ["english", "chinese", "german", "beijing_dialect"]
    talker |= dict(
        num_code_groups=16,
        rope_theta=1000000.0,
        codec_pad_id=pad,
        codec_bos_id=bos,
        codec_eos_token_id=eos,
        codec_think_id=think,
        codec_nothink_id=think + 1,
        codec_think_bos_id=think + 2,
        codec_think_eos_id=think + 3,
        codec_language_id={name: think + 4 + i for i, name in enumerate(names)},
        spk_id={},
        spk_is_dialect={},
        code_predictor_config=predictor | dict(num_code_groups=16, rope_theta=1000000.0, max_position_embeddings=65536),
    )
    model = dict(
        talker_config=talker,
        speaker_encoder_config=speaker,
        tokenizer_type="qwen3_tts_tokenizer_12hz",
        tts_model_size="0b6",
        tts_model_type="base",
        tts_pad_token_id=marks[0],
        tts_bos_token_id=marks[1],
        tts_eos_token_id=marks[2],
    )
    return model, dict(encoder_config=encoder, decoder_config=decoder), capacity


def _randomize(model: torch.nn.Module, seed: int) -> None:
    """Weights of a scale with which the sizes of activations stay as they are, and with which every part matters."""
    generator = torch.Generator().manual_seed(seed)
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if not value.is_floating_point() or "inv_freq" in name:
            continue
        leaf = name.rsplit(".", 1)[-1]
        noise = torch.randn(value.shape, generator=generator)
        if leaf in ("cluster_usage", "initialized"):
            value.fill_(1.0)
        elif leaf in ("embedding_sum", "embed_sum"):
            value.copy_(noise)
        elif "norm" in name and leaf == "weight":
            value.copy_(1 + 0.1 * noise)
        elif leaf in ("scale", "gamma"):
            value.copy_(0.3 + 0.1 * noise)
        elif value.ndim == 1:
            value.copy_(0.1 * noise)
        elif "embedding" in name:
            value.copy_(noise * 0.5)
        elif "lm_head" in name or "codec_head" in name:
            value.copy_(noise * 3 * value.shape[1] ** -0.5)
        else:
            fan, gain = value[0].numel(), 1.0
            if name.startswith("decoder.decoder.") and ".block.1.conv." in name:
                fan = 2 * value.shape[0]
            elif name.startswith("decoder.decoder.") and ".conv2." in name:
                gain = 0.3
            elif name.startswith("decoder.decoder.") and value.shape[0] == 1:
                # The last convolution: a sound that is seldom clipped.
                gain = 0.1
            value.copy_(noise * gain * fan**-0.5)
    for module in model.modules():
        if hasattr(module, "_embed"):
            module._embed = None


def _check_architecture(family: Family) -> None:
    """Refuses what the graphs would compute differently."""
    config, codec = family.config, family.codec.config
    predictor = config.code_predictor_config
    decoder = codec.decoder_config
    scaling = config.rope_scaling or {}
    faults = [
        (config.hidden_act != "silu" or predictor.hidden_act != "silu", "an activation that is not silu"),
        (scaling.get("rope_type", "default") != "default", f"RoPE of the type {scaling.get('rope_type')!r}"),
        (
            bool((predictor.rope_scaling or {}).get("rope_type", "default") != "default"),
            "a code predictor with scaled RoPE",
        ),
        (config.sliding_window is not None, "a talker with a sliding window"),
        ("sliding_attention" in predictor.layer_types, "a code predictor with a sliding window"),
        (
            predictor.vocab_size != family.sounds,
            f"{predictor.vocab_size} codes beside {family.sounds} of the first codebook",
        ),
        (decoder.codebook_size < family.sounds, f"a codec of {decoder.codebook_size} codes for {family.sounds}"),
        (
            decoder.num_quantizers != family.codebooks,
            f"a codec of {decoder.num_quantizers} codebooks for {family.codebooks}",
        ),
        (predictor.num_code_groups != family.codebooks, "a code predictor of another number of codebooks"),
        (codec.encoder_valid_num_quantizers != family.codebooks, "an encoder of another number of codebooks"),
        (not codec.encoder_config.use_causal_conv, "an encoder that is not causal"),
        (family.model.speaker_encoder_sample_rate != 24000, "a speaker encoder that is not for 24 kHz"),
        (codec.input_sample_rate != 24000 or codec.output_sample_rate != 24000, "a codec that is not for 24 kHz"),
        (family.vocoder.samples_per_frame != codec.decode_upsample_rate, "upsampling that is not decode_upsample_rate"),
        (not family.languages, "no language that is known"),
    ]
    found = [what for is_fault, what in faults if is_fault]
    if found:
        raise ExportError(
            f"a newer or different architecture: {'; '.join(found)}. This version exports the 12Hz models of 2026-01"
        )


def _unknown_keys(raw: dict[str, Any]) -> list[str]:
    talker = raw.get("talker_config") or {}
    known = set(Qwen3TTSTalkerConfig().to_dict()) | MORE_TALKER_KEYS
    unknown = [f"talker_config.{key}" for key in talker if key not in known]
    known = set(Qwen3TTSTalkerCodePredictorConfig().to_dict()) | MORE_TALKER_KEYS
    predictor = talker.get("code_predictor_config") or {}
    return unknown + [f"talker_config.code_predictor_config.{key}" for key in predictor if key not in known]


def _loaded(make: Callable[[], torch.nn.Module], files: list[Path], what: str) -> tuple[torch.nn.Module, list[str]]:
    """A module with the tensors of safetensors files, in float32, and the names of those that have no place in it. None
    may be missing."""
    from safetensors import safe_open

    model = make().float()
    places = dict(model.named_parameters()) | dict(model.named_buffers())
    wanted = set(model.state_dict())
    unknown: list[str] = []
    for path in files:
        with safe_open(str(path), framework="pt") as tensors:
            for name in tensors.keys():
                place = places.get(name)
                if place is None:
                    unknown.append(name)
                    continue
                value = tensors.get_tensor(name)
                if value.shape != place.shape:
                    raise ExportError(
                        f"{path}: the tensor {name} has the shape {list(value.shape)}, and config.json says"
                        f" {list(place.shape)}"
                    )
                place.data.copy_(value)
                wanted.discard(name)
    if wanted:
        some = ", ".join(sorted(wanted)[:3])
        raise ExportError(f"{files[0].parent}: {len(wanted)} tensors of {what} are missing, among them {some}")
    for module in model.modules():
        if hasattr(module, "_embed"):
            module._embed = None
    return model, unknown


def _tokenizer_files(checkpoint: Path) -> None:
    if (checkpoint / "tokenizer.json").is_file():
        return
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        if not (checkpoint / name).is_file():
            raise ExportError(
                f"the tokenizer is missing: there is no {checkpoint / name}; download the whole checkpoint"
            )


def _write_tokenizer(checkpoint: Path, path: Path) -> None:
    from transformers import AutoTokenizer

    # The makers load it with the same argument.
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(checkpoint), use_fast=True, fix_mistral_regex=True)
    except (OSError, ValueError, TypeError) as error:
        raise ExportError(f"the tokenizer in {checkpoint} cannot be read: {error}; download it again") from error
    tokenizer.backend_tokenizer.save(str(path))


def _write_random_tokenizer(path: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = [chr(code) for code in range(33, 127)] + ["\u0120", "\u010a"]
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in ("<|im_start|>", "<|im_end|>")]
    )
    # The template counts `assistant` as one id.
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ("assistant", "user")])
    tokenizer.save(str(path))


def _stack_weights(model: torch.nn.Module, has_bias: bool) -> dict[str, np.ndarray]:
    weights = {"norm": _array(model.norm.weight)}
    for i, layer in enumerate(model.layers):
        attention = layer.self_attn
        parts = {
            "input_norm": layer.input_layernorm,
            "post_norm": layer.post_attention_layernorm,
            "q": attention.q_proj,
            "k": attention.k_proj,
            "v": attention.v_proj,
            "o": attention.o_proj,
            "q_norm": attention.q_norm,
            "k_norm": attention.k_norm,
            "gate": layer.mlp.gate_proj,
            "up": layer.mlp.up_proj,
            "down": layer.mlp.down_proj,
        }
        weights |= {f"layers.{i}.{name}": _array(part.weight) for name, part in parts.items()}
        if has_bias:
            weights |= {f"layers.{i}.{name}_bias": _array(parts[name].bias) for name in "qkvo"}
    return weights


def _array(value: torch.Tensor) -> np.ndarray:
    return value.detach().numpy()


def _recording(samples: int, rate: int, seed: int) -> np.ndarray:
    """Something like a voice: a gliding tone with overtones and breath."""
    rng = np.random.default_rng(seed)
    time = np.arange(samples) / rate
    pitch = 2 * np.pi * np.cumsum(130 + 40 * np.sin(2 * np.pi * 2.3 * time + seed)) / rate
    tone = sum(np.sin(k * pitch) / k for k in range(1, 9))
    loud = 0.12 * (1.1 + np.sin(2 * np.pi * 3.1 * time))
    return (loud * tone + 0.01 * rng.standard_normal(samples)).clip(-0.95, 0.95).astype(np.float32)


def _worst(got: np.ndarray, want: np.ndarray) -> float:
    if got.shape != want.shape:
        return float("inf")
    return float(np.abs(got.astype(np.float64) - want).max(initial=0.0))


def _unequal(got: np.ndarray, want: np.ndarray) -> float:
    return float((got != want).sum()) if got.shape == want.shape else float("inf")


def _numbers(values: np.ndarray) -> list[float]:
    return [
        float(np.format_float_positional(v, precision=7, unique=True, fractional=False))
        for v in np.asarray(values).flatten()
    ]
