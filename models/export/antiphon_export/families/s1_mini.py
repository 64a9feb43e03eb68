"""OpenAudio S1-mini (Fish Audio, 0.5B): a checkpoint, or random weights, to the graphs of the layout.

The command line uses it, by its name `s1-mini`. A checkpoint is a folder with config.json (`dual_ar`), model.pth (or
model.safetensors), tokenizer.tiktoken, special_tokens.json and codec.pth. Its export needs PyTorch to read the files,
but not the makers' code; checks and fixtures do. The module never runs a graph but to check it.

What the family is: an outer transformer draws the semantic code of each frame (21.5 frames a second), an inner one the
nine residual codes. A prompt is

    <|interleave|> [ <|speaker:0|> TRANSCRIPT CODES <|im_end|> ] <|speaker:0|> TEXT

where the part in brackets is the reference: without a transcript the makers' model has none, and speaks with a voice of
its own choice. Each part is tokenized by itself: a mark as "(excited)" at the beginning of a text must not merge with
what is before it. That is why the graph adds the constant parts, and the text is an input of its own.

S2 checkpoints (`fish_qwen3_omni`) have other files, another prompt (a chat) and other scales, and are refused by name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable

import numpy as np
from onnx import TensorProto

from ..errors import ExportError
from ..files import Inline, available_memory, check_tensor_types, read_json
from ..run import LanguageModel, Vocode, graph_path, greedy_frames, open_graph
from ..transformer import FrameConfig, GraphBuilder, StackConfig, build_decode, build_frame, decode_section
from .s1_mini_codec import CodecConfig, CodecState, build_condition, build_vocode, rounded_rope
from .s1_mini_tokenizer import IM_END, INTERLEAVE, PATTERN, SPEAKER, Vocabulary, read_vocabulary, write_tokenizer

NAME = "s1-mini"
TITLE = "OpenAudio S1-mini 0.5B"
PACKAGE = "--code with a checkout of fishaudio/fish-speech"
LICENCE = "Fish-Audio-Research"
LICENCE_NOTE = """\
The weights of OpenAudio S1-mini are not free for commercial use. Fish Audio published them under CC-BY-NC-SA-4.0 and
places its materials under the Fish Audio Research License today: research and non-commercial use only; any use in or
for a business needs a written licence of Fish Audio. Who passes the weights on, an export of them included, or offers a
service that runs them, must pass on the licence, keep its notice and show "Built with Fish Audio". The terms that came
with your checkpoint are the ones that bind you. Clone only voices of people who agreed to it."""

# Of the makers' documentation of S1.
LANGUAGES = ["en", "zh", "ja", "ko", "fr", "de", "ar", "es"]
CAPACITY = 2048
MAX_FRAMES = 1024
REFERENCE_SECONDS = 30.0
GREEDY_FRAMES = 500
FIXTURE_TEXT = "(excited) The sun is up, and the birds sing!"
FIXTURE_TRANSCRIPT = "Is it noon?"


SHARED = ("n_head", "n_local_heads", "head_dim", "dim", "intermediate_size")
ATTENTION = ("attention_qkv_bias", "attention_qk_norm", "attention_o_bias")
REQUIRED = ("vocab_size", "n_layer", "n_head", "dim", "intermediate_size", "head_dim", "codebook_size", "num_codebooks")
DEFAULTS = {
    "rope_base": 10000,
    "norm_eps": 1e-5,
    "max_seq_len": 2048,
    "tie_word_embeddings": True,
    "attention_qkv_bias": False,
    "attention_o_bias": False,
    "attention_qk_norm": False,
    "scale_codebook_embeddings": False,
    "norm_fastlayer_input": False,
    "n_fast_layer": 4,
}
# Of training, or read from the tokenizer.
UNUSED = (
    "model_type",
    "dropout",
    "use_gradient_checkpointing",
    "initializer_range",
    "is_reward_model",
    "semantic_begin_id",
    "semantic_end_id",
    "audio_embed_dim",
    # Written by releases of 2024 and 2025, read by none.
    "share_codebook_embeddings",
)
KNOWN = {*REQUIRED, *DEFAULTS, *UNUSED, *SHARED, *(f"fast_{name}" for name in (*SHARED, *ATTENTION))}


class Family:
    """One model: its configuration, weights as NumPy arrays, codec and vocabulary. `makers` holds the makers' classes
    with the same weights, where it has random ones."""

    fp16_roles = ("prompt", "decode", "frame", "vocode")

    def __init__(
        self,
        config: dict,
        weights: dict[str, np.ndarray],
        codec: CodecState,
        vocabulary: Vocabulary,
        size: str | None = None,
        makers: Any = None,
    ) -> None:
        self.config = config
        self.weights = weights
        self.codec = codec
        self.vocabulary = vocabulary
        self.size = size
        self.makers = makers
        # Names of the configuration that this version does not know: they may change what the model computes.
        self.unknown = sorted(set(config) - KNOWN)
        self.codebooks = config["num_codebooks"]
        if self.codebooks != codec.codebooks:
            raise ExportError(
                f"the model has {self.codebooks} codebooks, the codec {codec.codebooks}: not of one checkpoint"
            )
        self.sounds = codec.semantic_size
        if config["codebook_size"] < max(self.sounds, codec.residual_size):
            raise ExportError(
                f"the model's codebooks have {config['codebook_size']} codes, those of the codec up to {self.sounds}:"
                " not of one checkpoint"
            )
        self.begin = vocabulary.semantic(self.sounds)
        self.stop = vocabulary.id(IM_END)
        self.interleave = vocabulary.id(INTERLEAVE)
        # Not a token of its own in S1-mini: pieces of text.
        self.speaker = _tokenized(vocabulary, SPEAKER)
        self.dim = config["dim"]
        self.scale = 1.0
        if config.get("scale_codebook_embeddings"):
            self.scale = 1.0 / np.sqrt(self.codebooks + 1)

    def graphs(self) -> dict[str, Callable[[Path, str], None]]:
        return {
            "condition": lambda path, precision: build_condition(self.codec, precision).save(path),
            "prompt": lambda path, precision: self._prompt(precision).save(path),
            "decode": lambda path, precision: self._decode(precision).save(path),
            "frame": lambda path, precision: self._frame(precision).save(path),
            "vocode": lambda path, precision: build_vocode(self.codec, precision).save(path),
        }

    def contract(self) -> dict:
        seconds = 0.3 if self.size == "tiny" else 1.0
        return {
            "format": 1,
            "name": NAME,
            "title": TITLE,
            "licence": LICENCE,
            "languages": LANGUAGES,
            "rate_hz": self.codec.config.sample_rate,
            "samples_per_token": self.codec.samples_per_frame,
            "watermark": "none",
            "text": {"tokenizer": "tokenizer.json", "vocabulary": 0, "template": "{text}"},
            "condition": {
                "file": "condition{precision}.onnx",
                "audio": "audio",
                "min_seconds": seconds,
                # No longer than RoPE is tabulated for.
                "use_seconds": min(
                    REFERENCE_SECONDS,
                    float(self.codec.config.positions * self.codec.hop // self.codec.config.sample_rate),
                ),
                # Without the words of the recording, the model takes no notice of it.
                "needs_transcript": True,
            },
            "prompt": {
                "file": "prompt{precision}.onnx",
                "voice": ["codes"],
                "embeds": "embeds",
                "ids": [
                    {"port": "text_ids", "template": "{text}"},
                    {"port": "transcript_ids", "template": "{transcript}"},
                ],
            },
            "frame": {"file": "frame{precision}.onnx", "temperature": 0.8, "top_k": 30, "top_p": 0.8},
            "decode": decode_section(
                layers=self.config["n_layer"],
                heads=self.config["n_local_heads"],
                head_size=self.config["head_dim"],
                context=self.config["max_seq_len"],
                capacity=min(CAPACITY, self.config["max_seq_len"]),
                hidden=True,
            ),
            "vocode": {
                "file": "vocode{precision}.onnx",
                "tokens": "codes",
                "carry": [],
                "waveform": "waveform",
                "with_prompt": False,
                "state": [
                    {"input": f"state.{name}", "output": f"next.{name}", "fill": 0.0}
                    for name in ("conv", "keys", "values", "position")
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
            # The makers' code of 2025 means to penalize the last 16 codes, but its penalty reaches one of them only.
            # That of 2026 draws a code again that is among the last 10, which is taken here. Both apply top_k and top_p
            # before the temperature.
            "sampling": {
                "order": ["top_k", "top_p", "temperature"],
                "temperature": 0.8,
                "top_k": 30,
                "top_p": 0.8,
                "repetition_penalty": 1.0,
                "redraw": Inline(window=10, share=0.1, temperature=1.0, top_k=30, top_p=0.9),
            },
            "length": {
                "max_tokens": min(MAX_FRAMES, self.config["max_seq_len"] // 2),
                "max_tokens_per_char": 10.0,
                "max_silence": 25,
                "end_silence": 75,
            },
            "chunks": {
                "first": 4,
                "growth": 2.0,
                "most": 32,
                "look_ahead": 0,
                "left_context": 0,
                "cross_fade_ms": 0,
            },
        }

    def write_tokenizer(self, path: Path) -> None:
        write_tokenizer(self.vocabulary, path)

    def _stack(self, prefix: str = "") -> StackConfig:
        config = self.config
        return StackConfig(
            layers=config["n_fast_layer" if prefix else "n_layer"],
            hidden=config[f"{prefix}dim"],
            heads=config[f"{prefix}n_head"],
            kv_heads=config[f"{prefix}n_local_heads"],
            head_size=config[f"{prefix}head_dim"],
            intermediate=config[f"{prefix}intermediate_size"],
            norm_eps=config["norm_eps"],
            rope_theta=config["rope_base"],
            positions=self.codebooks if prefix else config["max_seq_len"],
            rope_interleaved=True,
            qk_norm=config[f"{prefix}attention_qk_norm"],
            qkv_bias=config[f"{prefix}attention_qkv_bias"],
            o_bias=config[f"{prefix}attention_o_bias"],
            hidden_normed=config["norm_fastlayer_input"],
        )

    def _stack_weights(self, stack: StackConfig, prefix: str = "") -> dict[str, np.ndarray]:
        ours: dict[str, np.ndarray] = {"norm": self.weights[f"{prefix}norm.weight"]}
        ends = np.cumsum([stack.heads, stack.kv_heads])[:2] * stack.head_size
        for i in range(stack.layers):
            theirs, name = f"{prefix}layers.{i}", f"layers.{i}"
            for part, rows in zip("qkv", np.split(self.weights[f"{theirs}.attention.wqkv.weight"], ends)):
                ours[f"{name}.{part}"] = rows
            ours[f"{name}.o"] = self.weights[f"{theirs}.attention.wo.weight"]
            if stack.qkv_bias:
                for part, rows in zip("qkv", np.split(self.weights[f"{theirs}.attention.wqkv.bias"], ends)):
                    ours[f"{name}.{part}_bias"] = rows
            if stack.o_bias:
                ours[f"{name}.o_bias"] = self.weights[f"{theirs}.attention.wo.bias"]
            if stack.qk_norm:
                ours[f"{name}.q_norm"] = self.weights[f"{theirs}.attention.q_norm.weight"]
                ours[f"{name}.k_norm"] = self.weights[f"{theirs}.attention.k_norm.weight"]
            ours[f"{name}.input_norm"] = self.weights[f"{theirs}.attention_norm.weight"]
            ours[f"{name}.post_norm"] = self.weights[f"{theirs}.ffn_norm.weight"]
            ours[f"{name}.gate"] = self.weights[f"{theirs}.feed_forward.w1.weight"]
            ours[f"{name}.up"] = self.weights[f"{theirs}.feed_forward.w3.weight"]
            ours[f"{name}.down"] = self.weights[f"{theirs}.feed_forward.w2.weight"]
        ours["cos"], ours["sin"] = rounded_rope(stack.head_size, stack.rope_theta, stack.positions)
        return ours

    def _decode(self, precision: str) -> GraphBuilder:
        stack = self._stack()
        weights = self._stack_weights(stack)
        head = self.weights["embeddings.weight" if self.config["tie_word_embeddings"] else "output.weight"]
        weights["head"] = np.concatenate([head[self.begin : self.begin + self.sounds], head[self.stop : self.stop + 1]])
        return build_decode(stack, weights, precision)

    def _frame(self, precision: str) -> GraphBuilder:
        stack = self._stack("fast_")
        weights = self._stack_weights(stack, "fast_")
        if "fast_project_in.weight" in self.weights:
            weights["project"] = self.weights["fast_project_in.weight"]
            weights["project_bias"] = self.weights["fast_project_in.bias"]
        size, sounds = self.config["codebook_size"], self.sounds
        inner = self.weights["fast_embeddings.weight"]
        # For the inner transformer the end is the nearest code that there is.
        end = min(max(self.stop - self.begin, 0), size - 1)
        weights["inner.0"] = np.concatenate([inner[:sounds], inner[end : end + 1]])
        residual, head = (
            inner[: self.codec.residual_size],
            self.weights["fast_output.weight"][: self.codec.residual_size],
        )
        text, codes = self.weights["embeddings.weight"], self.weights["codebook_embeddings.weight"]
        semantic = text[self.begin : self.begin + sounds] + codes[:sounds]
        weights["outer.0"] = np.concatenate([semantic * np.float32(self.scale), text[self.stop : self.stop + 1]])
        for i in range(1, self.codebooks):
            weights[f"heads.{i}"] = head
            if i + 1 < self.codebooks:
                weights[f"inner.{i}"] = residual
            rows = codes[i * size : i * size + self.codec.residual_size]
            weights[f"outer.{i}"] = rows * np.float32(self.scale) if self.scale != 1.0 else rows
        return build_frame(FrameConfig(stack, self.dim, self.codebooks, sounds), weights, precision)

    def _prompt(self, precision: str) -> GraphBuilder:
        """The graph `prompt`. The reference counts where there are ids of a transcript and codes."""
        graph = GraphBuilder("prompt", precision)
        text = graph.input("text_ids", TensorProto.INT64, [1, "text"])
        transcript = graph.input("transcript_ids", TensorProto.INT64, [1, "transcript"])
        codes = graph.input("codes", TensorProto.INT64, [1, "frames", self.codebooks])
        graph.output("embeds", TensorProto.FLOAT, [1, "length", self.dim])
        table = self.weights["embeddings.weight"]
        speaker = graph.ints([self.speaker])
        columns = graph.op("Gather", [codes, graph.ints(0)], axis=2)
        said = graph.lookup(table, graph.op("Add", [columns, graph.ints(self.begin)]))
        offsets = graph.ints(np.arange(self.codebooks) * self.config["codebook_size"])
        parts = graph.lookup(self.weights["codebook_embeddings.weight"], graph.op("Add", [codes, offsets]))
        said = graph.op("Add", [said, graph.op("ReduceSum", [parts, graph.ints([2])], keepdims=0)])
        if self.scale != 1.0:
            said = graph.op("Mul", [said, graph.floats(self.scale)])
        before = graph.lookup(table, graph.op("Concat", [speaker, transcript], axis=1))
        reference = graph.op("Concat", [before, said, graph.lookup(table, graph.ints([[self.stop]]))], axis=1)
        counts = [
            graph.op("Gather", [graph.op("Shape", [port]), graph.ints([1])], axis=0)
            for port in (transcript, codes, reference)
        ]
        present = graph.op("Min", [graph.op("Min", counts[:2]), graph.ints([1])])
        kept = graph.op("Mul", [counts[2], present])
        reference = graph.op("Slice", [reference, graph.ints([0]), kept, graph.ints([1])])
        start = graph.lookup(table, graph.ints([[self.interleave]]))
        asked = graph.lookup(table, graph.op("Concat", [speaker, text], axis=1))
        graph.op("Concat", [start, reference, asked], outputs=["embeds"], axis=1)
        return graph

    def check(self, folder: Path, frames: int = 0) -> list[tuple[str, float, float]]:
        """Compares the graphs with the makers' classes, step by step: what was compared, the worst difference, what is
        tolerated. Differences of codes are the number of those that differ. `frames`: how many greedy frames are
        compared; 0: as many as the size has time for."""
        from . import s1_mini_makers as makers

        reference = self._makers()
        # A tiny model takes longer to share than to run.
        threads = 1 if self.size == "tiny" else 0
        rng = np.random.default_rng(7)
        found: list[tuple[str, float, float]] = []
        wrong = sum(ours != theirs for ours, theirs in self._tokenized_both(reference.tokenizer))
        found.append(("tokenizer: texts with other ids", float(wrong), 0.0))

        condition = open_graph(graph_path(folder, "condition"), threads)
        rate = self.codec.config.sample_rate
        seconds = 7 if self.size == "tiny" else 3
        for name, samples in ((f"{seconds} s", rate * seconds + 13), ("1 sample", 1)):
            audio = _recording(samples, rate, rng)
            expected = makers.encoded(reference.codec, audio)
            codes = condition.run(None, {"audio": audio})[0]
            _same_shape("condition", name, codes.shape, expected.shape)
            found.append(
                (f"condition: codes of {name} that differ, of {codes.size}", float((codes != expected).sum()), 0.0)
            )

        vocode = Vocode(folder, threads)
        sizes = [self.sounds] + [self.codec.residual_size] * (self.codebooks - 1)
        columns = 40
        codes = np.stack([rng.integers(0, size, (3, columns)) for size in sizes], 2)
        expected = makers.decoded(reference.codec, codes)
        for name, cuts in (
            ("whole", [0, columns]),
            ("chunks of 4, 8, 16, 12", [0, 4, 12, 28, columns]),
            ("chunks of 1", list(range(columns + 1))),
        ):
            sound = streamed(vocode, codes, cuts)
            found.append((f"vocode: samples, {name}", float(np.abs(sound - expected).max()), 1e-3))

        prompt = open_graph(graph_path(folder, "prompt"), threads)
        greedy = makers.Greedy(reference.model, reference.tokenizer, self.codec.residual_size)
        voice = makers.encoded(reference.codec, _recording(rate, rate, rng))
        for name, text, transcript, heard in (
            ("with a reference", "Hello, world.", "Is it noon?", voice),
            ("without a transcript", "(excited) What?", "", voice),
            ("without codes", "Go on.", "Yes.", voice[:, :0]),
            ("without text", "", "Yes.", voice),
        ):
            theirs = greedy.embeds(self._makers_prompt(text, transcript, heard))
            ours = self._embeds(prompt, text, transcript, heard)
            _same_shape("prompt", name, ours.shape[1:], theirs.shape)
            found.append((f"prompt: embeddings {name}", float(np.abs(ours[0] - theirs).max()), 1e-5))

        model = LanguageModel(folder, threads=threads)
        hidden = rng.standard_normal((8, self.dim)).astype(np.float32)
        first = np.concatenate([rng.integers(0, self.sounds, 7), [self.sounds]])
        others, embeds = model.draw_frame(hidden, first)
        ids = np.where(first < self.sounds, self.begin + first, self.stop)
        theirs = greedy.embeds(np.concatenate([ids[None], np.minimum(first, self.sounds - 1)[None], others.T]))
        found.append(("frame: embeddings of frames and of the end", float(np.abs(embeds - theirs).max()), 1e-5))

        one, many = (GREEDY_FRAMES, GREEDY_FRAMES) if self.size == "tiny" else (60, 12)
        one, many = frames or one, min(frames, many) or many
        texts = [
            "Hi.",
            "What is it?",
            "(sad) No.",
            "A longer one, with more words in it.",
            "1 2 3",
            "Yes!",
            "é ü 你好",
            "So.",
        ]
        prompts = [(text, "Is it noon?" if i % 2 else "", voice[:, : 4 + i]) for i, text in enumerate(texts)]
        theirs = [greedy.run(self._makers_prompt(*said), many if i else one) for i, said in enumerate(prompts)]
        rows = [(self._embeds(prompt, *said)[0], None) for said in prompts]
        for name, count, length in (("one row", 1, one), ("8 ragged rows", 8, many)):
            drawn, logits = greedy_frames(model, rows[:count], length)
            worst = max(float(np.abs(ours - expected).max()) for ours, (expected, _) in zip(logits, theirs))
            found.append((f"decode: logits of the prefill, {name}", worst, 1e-3))
            differing = sum(int((ours != expected[:length]).sum()) for ours, (_, expected) in zip(drawn, theirs))
            found.append(
                (
                    f"decode and frame: codes of {length} greedy frames that differ, of {drawn.size}, {name}",
                    float(differing),
                    0.0,
                )
            )
        return found

    def golden(self, folder: Path) -> dict:
        """What the makers' classes compute for a fixture. Writes reference.wav into the folder."""
        from . import s1_mini_makers as makers

        reference = self._makers()
        rng = np.random.default_rng(11)
        rate = self.codec.config.sample_rate
        audio = _write_wav(folder / "reference.wav", _recording(rate * 6 // 10, rate, rng)[0], rate)[None]
        voice = makers.encoded(reference.codec, audio)
        values = self._makers_prompt(FIXTURE_TEXT, FIXTURE_TRANSCRIPT, voice)
        greedy = makers.Greedy(reference.model, reference.tokenizer, self.codec.residual_size)
        sums = greedy.embeds(values).sum(axis=1)
        first_logits, frames = greedy.run(values, 64)
        codes = frames[frames[:, 0] < self.sounds][:32]
        sound = makers.decoded(reference.codec, codes[None])[0]
        stride = 37
        return {
            "ids": {
                "text_ids": reference.tokenizer.encode(FIXTURE_TEXT),
                "transcript_ids": reference.tokenizer.encode(FIXTURE_TRANSCRIPT),
            },
            "language": -1,
            "voice": {"codes": {"kind": "i64", "shape": list(voice.shape), "data": voice.ravel().tolist()}},
            "recording": "reference.wav",
            "prompt_embeds_sum": _rounded(sums),
            "first_logits": _rounded(first_logits),
            "frames": frames.tolist(),
            "codes": codes.tolist(),
            "waveform": _rounded(sound.ravel()[::stride]),
            "waveform_stride": stride,
        }

    def _makers(self) -> Any:
        if self.makers is None:
            raise ExportError("s1-mini is checked with random weights: the makers' code is not run on a checkpoint")
        return self.makers

    def _makers_prompt(self, text: str, transcript: str, voice: np.ndarray) -> Any:
        from . import s1_mini_makers as makers

        codes = voice[0] if voice.shape[1] else None
        return makers.prompt(self._makers().tokenizer, text, transcript, codes, self.codebooks)

    def _embeds(self, session: Any, text: str, transcript: str, voice: np.ndarray) -> np.ndarray:
        ids = {
            f"{name}_ids": np.array([self._makers().tokenizer.encode(said)], np.int64).reshape(1, -1)
            for name, said in (("text", text), ("transcript", transcript))
        }
        return session.run(None, {**ids, "codes": voice})[0]

    def _tokenized_both(self, theirs: Any) -> list[tuple[list[int], list[int]]]:
        from tokenizers import Tokenizer

        from .s1_mini_tokenizer import tokenizer_json

        ours = Tokenizer.from_str(json.dumps(tokenizer_json(self.vocabulary)))
        texts = [
            "Hello, world!",
            "(excited) I'VE said it's 1234,56 — they'll   come?!  ?!x",
            "  two  spaces\n\n\ttabs \r\n and lines \n",
            "«Füße», naïve café, 你好，世界。 こんにちは 안녕하세요 مرحبا 🙂‍↔️ e\u0301",
            "<|speaker:0|> a<|b|>c <|phoneme_start|>HH AH0<|phoneme_end|>",
            "the thing and the other in the end",
            "",
        ]
        return [(ours.encode(text, add_special_tokens=False).ids, theirs.encode(text)) for text in texts]


def open_checkpoint(checkpoint: Path, codec_config: CodecConfig | None = None) -> Family:
    """A checkpoint's folder, or `ExportError`. `codec_config` is S1-mini's unless it is given."""
    checkpoint = Path(checkpoint)
    if not checkpoint.is_dir():
        raise ExportError(
            f"{checkpoint} is no folder: name the folder of the checkpoint, with config.json and codec.pth in it"
        )
    config = complete_config(
        read_json(checkpoint / "config.json", "the configuration"), str(checkpoint / "config.json")
    )
    if not (checkpoint / "codec.pth").is_file():
        raise ExportError(
            f"the codec is missing: there is no {checkpoint / 'codec.pth'}; checkpoints of fish-speech 1.x have"
            " another one and are not supported"
        )
    vocabulary = read_vocabulary(checkpoint)
    files = [checkpoint / name for name in ("model.safetensors", "model.pth")]
    files = [path for path in files if path.is_file()][:1]
    if not files:
        raise ExportError(f"the weights are missing: there is neither model.pth nor model.safetensors in {checkpoint}")
    _check_memory([*files, checkpoint / "codec.pth"])
    weights = _model_weights(_loaded(files[0]), files[0])
    verify(weights, config, str(files[0]))
    if vocabulary.size > config["vocab_size"]:
        raise ExportError(
            f"the tokenizer has {vocabulary.size} ids, the model embeddings for {config['vocab_size']}: not of one"
            " checkpoint"
        )
    codec_config = codec_config or CodecConfig(positions=config["max_seq_len"])
    codec = CodecState(_codec_weights(_loaded(checkpoint / "codec.pth")), codec_config)
    return Family(config, weights, codec, vocabulary)


def random_family(size: str, seed: int) -> Family:
    """Random weights in the makers' classes, of "tiny" or "true" dimensions."""
    from . import s1_mini_makers as makers

    sizes = {"tiny": makers.TINY, "true": makers.TRUE}.get(size)
    if sizes is None:
        raise ExportError(f"size {size!r}: there are tiny and true")
    vocabulary = Vocabulary(*makers.random_vocabulary(sizes))
    tokenizer = makers.Tokenizer(vocabulary.ranks, vocabulary.special, PATTERN)
    config = complete_config(
        {"model_type": "dual_ar", "vocab_size": sizes.vocabulary, **sizes.model}, "the random model"
    )
    model = makers.randomized(makers.model_of(config, tokenizer), seed)
    codec = makers.audible(makers.randomized(makers.codec_of(sizes), seed + 1), seed + 2)
    codec_config = CodecConfig(head_size=sizes.head_size, window=sizes.window, positions=config["max_seq_len"])
    weights = makers.state_of(model)
    verify(weights, config, "the random model")
    reference = makers.Reference(model, codec, tokenizer)
    return Family(config, weights, CodecState(makers.state_of(codec), codec_config), vocabulary, size, reference)


def complete_config(config: dict, origin: str) -> dict:
    """The configuration with what the makers' classes assume where it is silent, or `ExportError`."""
    kind = config.get("model_type")
    if kind == "fish_qwen3_omni":
        raise ExportError(
            f"{origin} is of Fish Audio S2: its prompt, its files and the scale of its embeddings are others; s1-mini"
            " exports OpenAudio S1-mini only"
        )
    if kind != "dual_ar":
        raise ExportError(f"{origin} has the model_type {kind!r}, not dual_ar: not a checkpoint of OpenAudio S1-mini")
    if config.get("is_reward_model"):
        raise ExportError(f"{origin} is of a model that judges speech (is_reward_model), not of one that speaks")
    missing = [name for name in REQUIRED if not isinstance(config.get(name), int)]
    if missing:
        raise ExportError(f"{origin} has no {', '.join(missing)}: not a checkpoint of OpenAudio S1-mini")
    complete = {**DEFAULTS, **{name: value for name, value in config.items() if value is not None}}
    if complete.get("n_local_heads", -1) == -1:
        complete["n_local_heads"] = complete["n_head"]
    for name in SHARED:
        complete[f"fast_{name}"] = complete.get(f"fast_{name}") or complete[name]
    for name in ATTENTION:
        complete.setdefault(f"fast_{name}", complete[name])
    return complete


def verify(weights: dict[str, np.ndarray], config: dict, origin: str) -> None:
    """Refuses weights that are not those of the configuration."""
    wanted: dict[str, tuple[int, ...]] = {
        "embeddings.weight": (config["vocab_size"], config["dim"]),
        "codebook_embeddings.weight": (config["codebook_size"] * config["num_codebooks"], config["dim"]),
        "fast_embeddings.weight": (config["codebook_size"], config["fast_dim"]),
        "fast_output.weight": (config["codebook_size"], config["fast_dim"]),
    }
    if not config["tie_word_embeddings"]:
        wanted["output.weight"] = (config["vocab_size"], config["dim"])
    if config["fast_dim"] != config["dim"]:
        wanted["fast_project_in.weight"] = (config["fast_dim"], config["dim"])
        wanted["fast_project_in.bias"] = (config["fast_dim"],)
    for prefix, layers in (("", config["n_layer"]), ("fast_", config["n_fast_layer"])):
        dim, size, network = (config[prefix + name] for name in ("dim", "head_dim", "intermediate_size"))
        queries, keys = config[f"{prefix}n_head"] * size, config[f"{prefix}n_local_heads"] * size
        wanted[f"{prefix}norm.weight"] = (dim,)
        for i in range(layers):
            name = f"{prefix}layers.{i}"
            wanted[f"{name}.attention.wqkv.weight"] = (queries + 2 * keys, dim)
            wanted[f"{name}.attention.wo.weight"] = (dim, queries)
            wanted[f"{name}.feed_forward.w1.weight"] = wanted[f"{name}.feed_forward.w3.weight"] = (network, dim)
            wanted[f"{name}.feed_forward.w2.weight"] = (dim, network)
            wanted[f"{name}.attention_norm.weight"] = wanted[f"{name}.ffn_norm.weight"] = (dim,)
            if config[f"{prefix}attention_qkv_bias"]:
                wanted[f"{name}.attention.wqkv.bias"] = (queries + 2 * keys,)
            if config[f"{prefix}attention_o_bias"]:
                wanted[f"{name}.attention.wo.bias"] = (dim,)
            if config[f"{prefix}attention_qk_norm"]:
                wanted[f"{name}.attention.q_norm.weight"] = wanted[f"{name}.attention.k_norm.weight"] = (size,)
    for name, shape in wanted.items():
        if name not in weights:
            raise ExportError(f"{origin} has no {name}: its config.json says that there is one")
        if weights[name].shape != shape:
            raise ExportError(f"{origin}: {name} is {weights[name].shape}, by config.json it should be {shape}")
    unknown = [name for name in weights if name not in wanted]
    if any("lora" in name for name in unknown):
        raise ExportError(f"{origin} is an adapter (LoRA): merge it into the model with the makers' tool first")
    if any(name.endswith(".weight") for name in unknown):
        names = ", ".join(sorted(name for name in unknown if name.endswith(".weight"))[:3])
        raise ExportError(f"{origin} has weights that S1-mini does not have ({names}): another model")


def streamed(vocode: Vocode, codes: np.ndarray, cuts: list[int]) -> np.ndarray:
    """The sound [B, 1, samples] of codes [B, N, K], chunk by chunk."""
    state, sounds = vocode.empty_state(codes.shape[0]), []
    for start, end in zip(cuts, cuts[1:]):
        sound, state = vocode.run(codes[:, start:end], state)
        sounds.append(sound)
    return np.concatenate(sounds, 2)


def _tokenized(vocabulary: Vocabulary, text: str) -> list[int]:
    """Ids of a constant part of the prompt."""
    from tokenizers import Tokenizer

    from .s1_mini_tokenizer import tokenizer_json

    return Tokenizer.from_str(json.dumps(tokenizer_json(vocabulary))).encode(text, add_special_tokens=False).ids


def _loaded(path: Path) -> dict[str, Any]:
    """Tensors by name of a file of weights."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(str(path)))
        import torch

        state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except ImportError as error:
        raise ExportError(f"{path} needs the Python module {error.name!r}, which is not installed") from error
    except Exception as error:
        raise ExportError(f"{path} cannot be read as weights: {error}") from error
    state = state.get("state_dict", state) if isinstance(state, dict) else None
    if not isinstance(state, dict) or not all(hasattr(value, "shape") for value in state.values()):
        raise ExportError(f"{path} holds no tensors by name")
    return state


def _model_weights(state: dict[str, Any], path: Path) -> dict[str, np.ndarray]:
    """The language model's weights as float32, under the makers' names of today."""
    prefix = "model." if next(iter(state), "").startswith("model.") else ""
    state = {name.removeprefix(prefix): value for name, value in state.items() if "audio_" not in name}
    for name in [name for name in state if name.endswith(".attention.wq.weight")]:
        import torch

        stem = name.removesuffix("wq.weight")
        parts = [state.pop(f"{stem}w{part}.weight", None) for part in "qkv"]
        if any(part is None for part in parts):
            raise ExportError(f"{path}: {stem} lacks one of wq, wk and wv")
        state[f"{stem}wqkv.weight"] = torch.cat(parts)
    derived = ("freqs_cis", "causal_mask", "k_cache", "v_cache")
    return _as_arrays({name: value for name, value in state.items() if not name.endswith(derived)}, path)


def _codec_weights(state: dict[str, Any]) -> dict[str, np.ndarray]:
    if any(name.startswith("generator.") for name in state):
        state = {
            name.removeprefix("generator."): value for name, value in state.items() if name.startswith("generator.")
        }
    kept = {name: value for name, value in state.items() if not name.endswith(("freqs_cis", "causal_mask"))}
    return _as_arrays(kept, Path("codec.pth"))


def _as_arrays(state: dict[str, Any], path: Path) -> dict[str, np.ndarray]:
    check_tensor_types(state, path)
    return {name: value.detach().float().numpy() for name, value in state.items()}


def _check_memory(files: list[Path]) -> None:
    """Refuses to begin where the weights, in float32, and one graph made of them do not fit into memory."""
    available = available_memory()
    needed = 3 * sum(path.stat().st_size for path in files) + (1 << 30)
    if available is not None and available < needed:
        raise ExportError(
            f"too little memory: the export needs about {needed / 2**30:.1f} GiB, and {available / 2**30:.1f} GiB are"
            " available: close other programs, or export on another machine"
        )


def _same_shape(role: str, name: str, ours: tuple, theirs: tuple) -> None:
    if tuple(ours) != tuple(theirs):
        raise ExportError(f"{role} gives {tuple(ours)} {name}, the makers' code {tuple(theirs)}")


def _recording(samples: int, rate: int, rng: np.random.Generator) -> np.ndarray:
    """Something like a voice [1, samples]: harmonics that move, with pauses and breath."""
    time = np.arange(samples) / rate
    pitch = 140.0 + 50.0 * np.sin(2 * np.pi * 1.7 * time) + 20.0 * np.sin(2 * np.pi * 5.1 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    voiced = sum(np.sin(n * phase) / n * (1.0 + np.sin(2 * np.pi * (0.6 + 0.3 * n) * time + n)) for n in range(1, 9))
    loudness = np.clip(np.sin(2 * np.pi * 2.3 * time) + 0.6, 0.0, 1.0)
    sound = 0.12 * loudness * voiced + 0.01 * rng.standard_normal(samples)
    return np.clip(sound, -0.99, 0.99).astype(np.float32)[None]


def _write_wav(path: Path, audio: np.ndarray, rate: int) -> np.ndarray:
    """Writes mono of 16 bits, and gives back what a reader gets."""
    import wave

    numbers = np.round(audio * 32767.0).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(numbers.tobytes())
    return (numbers / 32768.0).astype(np.float32)


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.7g}") for value in np.asarray(values, np.float64).ravel()]
