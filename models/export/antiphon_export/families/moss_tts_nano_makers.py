"""MOSS-TTS-Nano for checks and fixtures: a publication of random weights, and the makers' runtime that runs it.

The makers' repository has the exporter of the language model's graphs and the runtime, but not the model's classes. So
the graphs here are what their exporter makes of stand-ins: modules with the attributes that it uses. The codec's
exporter is not in the repository: the codec is a stand-in with the ports of the published one (causal transformers with
caches of fixed sizes, at two rates). The converter itself needs none of this.

`--code` names the makers' repository, or it is on the path of modules.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import math
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Iterator

import numpy as np

from ..errors import ExportError
from .moss_tts_nano_published import CODEC_FOLDER, MANIFEST, TTS_FOLDER
from .moss_tts_nano_tokenizer import SENTENCES

EXPORTER, STORER = "export_moss_tts_browser_onnx", "export_hf_to_tts_onnx"
SYMBOLS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<|audio_user_slot|>",
    "<|audio_assistant_slot|>",
)
PAD, IM_START, IM_END, AUDIO_START, AUDIO_END, USER_SLOT, ASSISTANT_SLOT = range(3, 10)
CODEBOOKS = 16
# The alphabet of a tiny tokenizer.
PANGRAM = "The quick brown fox jumps over the lazy dog, and Anna, Bo and Max say: no, it is not the end!"
# What the sound of a frame is made of: positions of the codec's second transformer, and samples of each.
PARTS, PART = 16, 240
RATE = 48000


@dataclass(frozen=True)
class Sizes:
    """Dimensions of random weights."""

    hidden: int
    layers: int
    heads: int
    vocabulary: int
    codebook: int
    codec: int
    codec_heads: int
    contexts: tuple[int, int]
    """Columns of the codec's caches: frames, parts of frames."""
    normalization: str


SIZES = {
    "tiny": Sizes(24, 2, 2, 64, 32, 16, 2, (6, 24), "identity"),
    # The language model has the published dimensions, the codec those of one of its transformers.
    "true": Sizes(768, 12, 12, 16384, 1024, 256, 4, (500, 500), "nmt_nfkc"),
}


def publish(folder: Path, sizes: Sizes, seed: int) -> None:
    """Writes a publication of random weights into an empty folder, as the makers do."""
    exporter, storer = _exporter_module(EXPORTER), _exporter_module(STORER)
    import torch

    torch.manual_seed(seed)
    tts, codec = folder / TTS_FOLDER, folder / CODEC_FOLDER
    tts.mkdir()
    codec.mkdir()
    model = _language_model(sizes).eval()
    (tts / "tokenizer.model").write_bytes(train_tokenizer(sizes.vocabulary, sizes.normalization))
    loader = SimpleNamespace(from_pretrained=lambda *arguments, **options: model)
    arguments = [EXPORTER, "--checkpoint-path", "random", "--output-dir", str(tts)]
    with _replaced(exporter, "AutoModelForCausalLM", loader), _replaced(sys, "argv", arguments), _quiet():
        exporter.main()
    storer.externalize_onnx_dir(tts)
    graphs = {name: tts / f"moss_tts_{name}.onnx" for name in ("prefill", "decode_step")}
    storer.merge_shared_external_data(list(graphs.values()), tts / "moss_tts_global_shared.data")
    local = [tts / f"moss_tts_local_{name}.onnx" for name in ("cached_step", "decoder", "fixed_sampled_frame")]
    storer.merge_shared_external_data(local, tts / "moss_tts_local_shared.data")
    storer.patch_tts_external_data_files(tts / "tts_browser_onnx_meta.json")
    storer.cleanup_redundant_external_data(tts)
    _write_codec(codec, sizes)
    _write_manifest(tts, sizes, seed)


def runtime(folder: Path) -> Any:
    """The makers' runtime on a publication."""
    module = _makers("onnx_tts_runtime")
    with tempfile.TemporaryDirectory() as unused:
        return module.OnnxTtsRuntime(folder, thread_count=1, output_dir=unused)


def frames(made: Any, rows: dict, count: int, numbers: Any, with_seen: bool) -> dict[str, np.ndarray]:
    """So many frames of the makers' loop, whatever it says of the end: the hidden state before each, what it said, the
    codes and the flags that it was given. `numbers` [count, 1 + codebooks] are its random numbers."""
    given: dict[str, list] = {"hidden": [], "goes_on": [], "seen": []}
    draw, width = type(made).run_local_fixed_sampled_frame, 1 + CODEBOOKS
    chance = iter(np.asarray(numbers, np.float64).reshape(-1)[: count * width])
    size = int(made.tts_meta["model_config"]["audio_codebook_sizes"][0])

    def drawn(hidden: np.ndarray, *, previous_token_sets_by_channel: list[set[int]]) -> tuple[bool, list[int]]:
        sets = previous_token_sets_by_channel if with_seen else [set() for _ in previous_token_sets_by_channel]
        goes_on, codes = draw(made, hidden, previous_token_sets_by_channel=sets)
        given["hidden"].append(hidden[0])
        given["goes_on"].append(goes_on)
        given["seen"].append([[code in before for code in range(size)] for before in sets])
        return True, codes

    made.manifest["generation_defaults"] |= {"max_new_frames": count, "sample_mode": "fixed", "do_sample": True}
    made.rng = SimpleNamespace(random=lambda: next(chance))
    made.run_local_fixed_sampled_frame = drawn
    try:
        codes = made.generate_audio_frames(rows)
    finally:
        del made.run_local_fixed_sampled_frame
    return {
        "codes": np.array(codes, np.int64),
        "hidden": np.array(given["hidden"], np.float32),
        "goes_on": np.array(given["goes_on"], bool),
        "seen": np.array(given["seen"], np.int32),
    }


def encoded(made: Any, audio: np.ndarray) -> np.ndarray:
    """The frames that the makers' runtime makes of a mono recording, i64 [frames, codebooks]."""
    channels = int(made.codec_meta["codec_config"]["channels"])
    made._load_reference_audio = lambda path: np.repeat(audio[None, None], channels, 1).astype(np.float32)
    try:
        return np.array(made.encode_reference_audio("recording"), np.int64)
    finally:
        del made._load_reference_audio


def decoded(made: Any, codes: np.ndarray) -> np.ndarray:
    """The sound that the makers' runtime makes of all frames at once, [channels, samples]."""
    return np.stack(made.decode_full_audio(codes.tolist())[0])


def train_tokenizer(vocabulary: int, normalization: str, kind: str = "unigram", byte_fallback: bool = False) -> bytes:
    """A SentencePiece model of at most so many pieces."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((PANGRAM, *SENTENCES[:1]) * 20 if vocabulary < 512 else SENTENCES[:-1] * 20),
        model_writer=model,
        vocab_size=vocabulary,
        model_type=kind,
        normalization_rule_name=normalization,
        byte_fallback=byte_fallback,
        pad_id=PAD,
        user_defined_symbols=list(SYMBOLS),
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def _exporter_module(name: str) -> ModuleType:
    """A module of the makers' folder `onnx`, which is no package and has the name of one."""
    for folder in sys.path:
        path = Path(folder) / "onnx" / f"{name}.py"
        if path.is_file():
            spec = importlib.util.spec_from_file_location(f"moss_tts_nano_{name}", path)
            module = importlib.util.module_from_spec(spec)
            # Its dataclasses look for it.
            sys.modules[spec.name] = module
            try:
                spec.loader.exec_module(module)
            except ModuleNotFoundError as error:
                raise _missing(name, error) from error
            return module
    raise ExportError(
        f"there is no onnx/{name}.py of the makers: name a checkout of OpenMOSS/MOSS-TTS-Nano with --code"
    )


def _makers(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise _missing(name, error) from error


def _missing(name: str, error: ModuleNotFoundError) -> ExportError:
    return ExportError(
        f"the makers' {name} needs the Python module {error.name!r}: name a checkout of OpenMOSS/MOSS-TTS-Nano with"
        " --code, and install torch, torchaudio, transformers and sentencepiece"
    )


@contextlib.contextmanager
def _replaced(of: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(of, name)
    setattr(of, name, value)
    try:
        yield
    finally:
        setattr(of, name, before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _language_model(sizes: Sizes) -> Any:
    """A module with what the makers' exporter uses of theirs."""
    import torch
    from torch import nn

    class Rotary(nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.register_buffer("speeds", 10000.0 ** -(torch.arange(0, size, 2).float() / size))

        def forward(self, positions, device=None, dtype=None):
            angles = (positions.float()[..., None] * self.speeds).repeat_interleave(2, -1)[:, :, None]
            return angles.cos().to(dtype), angles.sin().to(dtype)

    class Attention(nn.Module):
        def __init__(self, index: int) -> None:
            super().__init__()
            self.c_attn = nn.Linear(sizes.hidden, 3 * sizes.hidden)
            self.c_proj = nn.Linear(sizes.hidden, sizes.hidden)
            self.resid_dropout = nn.Dropout(0.0)
            self.rotary_emb = Rotary(sizes.hidden // sizes.heads)
            self.layer_idx = index

    class Block(nn.Module):
        def __init__(self, index: int) -> None:
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(sizes.hidden), nn.LayerNorm(sizes.hidden)
            self.attn = Attention(index)
            wide = 4 * sizes.hidden if sizes.hidden > 64 else 2 * sizes.hidden
            self.mlp = nn.Sequential(nn.Linear(sizes.hidden, wide), nn.GELU(), nn.Linear(wide, sizes.hidden))

    class Transformer(nn.Module):
        position_embedding_type = "rope"

        def __init__(self, layers: int) -> None:
            super().__init__()
            self.config = SimpleNamespace(hidden_size=sizes.hidden, num_attention_heads=sizes.heads)
            self.drop = nn.Dropout(0.0)
            self.h = nn.ModuleList(Block(index) for index in range(layers))
            self.ln_f = nn.LayerNorm(sizes.hidden)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transformer = Transformer(sizes.layers)
            self.transformer.wte = nn.Embedding(sizes.vocabulary, sizes.hidden)
            self.local_transformer = Transformer(1)
            self.audio_embeddings = nn.ModuleList(nn.Embedding(sizes.codebook, sizes.hidden) for _ in range(CODEBOOKS))
            self.text_lm_head = nn.Linear(sizes.hidden, sizes.vocabulary)
            self.audio_lm_heads = nn.ModuleList(nn.Linear(sizes.hidden, sizes.codebook) for _ in range(CODEBOOKS))
            self.config = SimpleNamespace(
                gpt2_config=SimpleNamespace(
                    n_layer=sizes.layers, n_head=sizes.heads, n_embd=sizes.hidden, vocab_size=sizes.vocabulary
                ),
                n_vq=CODEBOOKS,
                hidden_size=sizes.hidden,
                local_transformer_layers=1,
                audio_codebook_sizes=[sizes.codebook] * CODEBOOKS,
                audio_pad_token_id=sizes.codebook,
                pad_token_id=PAD,
                im_start_token_id=IM_START,
                im_end_token_id=IM_END,
                audio_start_token_id=AUDIO_START,
                audio_end_token_id=AUDIO_END,
                audio_user_slot_token_id=USER_SLOT,
                audio_assistant_slot_token_id=ASSISTANT_SLOT,
            )

    model = Model()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0.0, 1.6 / math.sqrt(sizes.hidden))
        for table in (model.transformer.wte, *model.audio_embeddings):
            table.weight.normal_(0.0, 0.5)
        # A speech of some twenty frames.
        model.text_lm_head.bias.zero_()
        model.text_lm_head.bias[ASSISTANT_SLOT] = 3.0
        model.text_lm_head.weight[[ASSISTANT_SLOT, AUDIO_END]] *= 0.2
    return model


def _write_codec(folder: Path, sizes: Sizes) -> None:
    """The codec's graphs and their description."""
    import torch
    from torch import nn

    head = sizes.codec // sizes.codec_heads

    class Causal(nn.Module):
        """A causal layer whose positions see the latest `context` before them, and a cache of so many."""

        def __init__(self, context: int) -> None:
            super().__init__()
            self.context = context
            self.norm = nn.LayerNorm(sizes.codec)
            self.qkv = nn.Linear(sizes.codec, 3 * sizes.codec)
            self.out = nn.Linear(sizes.codec, sizes.codec)
            self.mlp = nn.Sequential(
                nn.Linear(sizes.codec, 2 * sizes.codec), nn.GELU(), nn.Linear(2 * sizes.codec, sizes.codec)
            )

        def forward(self, x, offset, keys, values, positions):
            length = x.shape[1]
            parts = self.qkv(self.norm(x)).reshape(1, length, 3, sizes.codec_heads, head).permute(2, 0, 3, 1, 4)
            queries, keys, values = parts[0], torch.cat([keys, parts[1]], 2), torch.cat([values, parts[2]], 2)
            at = offset[:, None] + torch.arange(length, dtype=torch.int32)[None]
            positions = torch.cat([positions, at], 1)
            distance = at[:, :, None] - positions[:, None]
            seen = (positions[:, None] >= 0) & (distance >= 0) & (distance < self.context)
            scores = queries @ keys.transpose(-1, -2) / math.sqrt(head) - 0.3 * distance[:, None].abs().float()
            odds = scores.masked_fill(~seen[:, None], -1e9).softmax(-1)
            x = x + self.out((odds @ values).transpose(1, 2).reshape(1, length, sizes.codec))
            kept = (keys[:, :, -self.context :], values[:, :, -self.context :], positions[:, -self.context :])
            return x + self.mlp(x), (offset + length, *kept)

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(sizes.codebook, sizes.codec) for _ in range(CODEBOOKS))
            self.frames, self.parts = (Causal(context) for context in sizes.contexts)
            self.spread = nn.Linear(sizes.codec, PARTS * sizes.codec)
            self.sound = nn.Linear(sizes.codec, 2 * PART)

        def run(self, codes, lengths, state):
            x = sum(table(codes[..., index]) for index, table in enumerate(self.tables)) / math.sqrt(CODEBOOKS)
            x, first = self.frames(x, *state[1:5])
            x = self.spread(x).reshape(1, -1, sizes.codec)
            x, second = self.parts(x, *state[6:10])
            sound = 0.5 * torch.tanh(self.sound(x).reshape(1, -1, 2, PART).permute(0, 2, 1, 3).reshape(1, 2, -1))
            left = (state[0] + lengths, *first, state[5] + lengths * PARTS, *second)
            return (sound, lengths * (PARTS * PART), *(value.to(value.dtype) for value in left))

        def forward(self, codes, lengths):
            return self.run(codes, lengths, [torch.full(shape, fill, dtype=kind) for _, _, shape, kind, fill in state])[
                :2
            ]

    class Step(nn.Module):
        def __init__(self, decoder: Any) -> None:
            super().__init__()
            self.decoder = decoder

        def forward(self, codes, lengths, *state):
            return self.decoder.run(codes, lengths, state)

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.listen = nn.Linear(2 * PART, sizes.codec)
            self.tables = nn.Parameter(torch.randn(CODEBOOKS, sizes.codebook, sizes.codec))

        def forward(self, waveform, lengths):
            padded = nn.functional.pad(waveform, (0, PARTS * PART))
            count = (padded.shape[2] // (PARTS * PART)) * (PARTS * PART)
            parts = padded[:, :, :count].reshape(1, 2, -1, PART).permute(0, 2, 1, 3).reshape(1, -1, 2 * PART)
            x = torch.tanh(4.0 * self.listen(parts)).reshape(1, -1, PARTS, sizes.codec).sum(2)
            codes = []
            for table in self.tables:
                code = (x[:, :, None] - table).square().sum(-1).argmin(-1)
                x = (x - table[code]) * 1.5
                codes.append(code)
            return torch.stack(codes, -1).to(torch.int32), (lengths + PARTS * PART - 1) // (PARTS * PART)

    state = []
    for i, context in enumerate(sizes.contexts):
        cache = (1, sizes.codec_heads, context, head)
        for name, shape, kind, fill in (
            ("transformer_offset", (1,), torch.int32, 0),
            ("attn_offset", (1,), torch.int32, 0),
            ("attn_cached_keys", cache, torch.float32, 0),
            ("attn_cached_values", cache, torch.float32, 0),
            ("attn_cached_positions", (1, context), torch.int32, -1),
        ):
            state.append((f"{name}_{i}", f"{name}_out_{i}", shape, kind, fill))
    encoder, decoder = Encoder().eval(), Decoder().eval()
    with torch.no_grad():
        decoder.sound.weight *= 4.0
    codes, lengths = torch.zeros((1, 3, CODEBOOKS), dtype=torch.int32), torch.tensor([3], dtype=torch.int32)
    begun = [torch.full(shape, fill, dtype=kind) for _, _, shape, kind, fill in state]
    files = {name: f"moss_audio_tokenizer_{name}.onnx" for name in ("encode", "decode_full", "decode_step")}
    sounds = {"audio_codes": {1: "frames"}, "audio": {2: "samples"}}
    for name, module, inputs, given, made, dynamic in (
        (
            "encode",
            encoder,
            (torch.zeros((1, 2, 9000)), torch.tensor([9000], dtype=torch.int32)),
            ["waveform", "input_lengths"],
            ["audio_codes", "audio_code_lengths"],
            {"waveform": {2: "samples"}, "audio_codes": {1: "frames"}},
        ),
        (
            "decode_full",
            decoder,
            (codes, lengths),
            ["audio_codes", "audio_code_lengths"],
            ["audio", "audio_lengths"],
            sounds,
        ),
        (
            "decode_step",
            Step(decoder),
            (codes, lengths, *begun),
            ["audio_codes", "audio_code_lengths", *(entry[0] for entry in state)],
            ["audio", "audio_lengths", *(entry[1] for entry in state)],
            sounds,
        ),
    ):
        with _quiet(), torch.no_grad():
            torch.onnx.export(
                module,
                inputs,
                str(folder / files[name]),
                input_names=given,
                output_names=made,
                dynamic_axes=dynamic,
                opset_version=17,
                dynamo=False,
            )
    named = {entry[0]: entry for entry in state}
    caches = []
    for i, context in enumerate(sizes.contexts):
        cache = {"index": i, "context": context, "num_heads": sizes.codec_heads, "head_dim": head}
        for part in ("offset", "cached_keys", "cached_values", "cached_positions"):
            cache[f"{part}_input_name"], cache[f"{part}_output_name"] = named[f"attn_{part}_{i}"][:2]
        cache["offset_shape"] = [1]
        cache["cache_shape"] = list(named[f"attn_cached_keys_{i}"][2])
        cache["positions_shape"] = [1, context]
        caches.append(cache)
    described = {
        "format_version": 1,
        "files": files,
        "codec_config": {
            "sample_rate": RATE,
            "channels": 2,
            "downsample_rate": PARTS * PART,
            "num_quantizers": CODEBOOKS,
        },
        "streaming_decode": {
            "transformer_offsets": [
                {
                    "index": i,
                    "input_name": f"transformer_offset_{i}",
                    "output_name": f"transformer_offset_out_{i}",
                    "shape": [1],
                }
                for i in range(len(sizes.contexts))
            ],
            "attention_caches": caches,
        },
    }
    (folder / "codec_browser_onnx_meta.json").write_text(json.dumps(described), encoding="utf-8")


def _write_manifest(folder: Path, sizes: Sizes, seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = json.loads((folder / "tts_browser_onnx_meta.json").read_text(encoding="utf-8"))["model_config"]
    manifest = {
        "model_files": {
            "tts_meta": "tts_browser_onnx_meta.json",
            "codec_meta": f"../{CODEC_FOLDER}/codec_browser_onnx_meta.json",
            "tokenizer_model": "tokenizer.model",
        },
        "tts_config": {name: value for name, value in model.items() if name.endswith("_id") or name == "n_vq"},
        "prompt_templates": {
            "user_prompt_prefix_token_ids": [IM_START, 12, 17, 11],
            "user_prompt_after_reference_token_ids": [13, 20, 21, 15, 14],
            "assistant_prompt_prefix_token_ids": [IM_END, 12, IM_START, 16],
        },
        "generation_defaults": {
            "max_new_frames": 375,
            "do_sample": True,
            "sample_mode": "fixed",
            "text_temperature": 1.0,
            "text_top_p": 1.0,
            "text_top_k": 50,
            "audio_temperature": 0.8,
            "audio_top_p": 0.95,
            "audio_top_k": 25,
            "audio_repetition_penalty": 1.2,
        },
        "builtin_voices": [
            {"voice": "Anna", "prompt_audio_codes": rng.integers(0, sizes.codebook, (7, CODEBOOKS)).tolist()}
        ],
        "text_samples": [{"text": SENTENCES[0], "text_token_ids": [30, 31, 32]}],
    }
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
