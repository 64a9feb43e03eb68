"""Comparisons of CosyVoice3's graphs with the makers' PyTorch code, and what golden.json says. The family module uses it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Iterator

import numpy as np

from ..run import LanguageModel, Vocode, graph_path, greedy_frames, open_graph
from .cosyvoice3_vocode import MEL_AHEAD

RATE_HZ = 24000
SPEAKER_FLOATS = 192


def compare(family: Any, folder: Path) -> list[tuple[str, float, float]]:
    """What was compared, the worst difference, and the greatest that is allowed."""
    is_small = family.speech_table.shape[1] < 256
    results = _compare_condition(family, folder)
    results += _compare_language_model(
        family, folder, steps=500 if is_small else 60, ragged_steps=128 if is_small else 16
    )
    results += _compare_sound(family, folder, is_small)
    return results


def _compare_condition(family: Any, folder: Path) -> list[tuple[str, float, float]]:
    results = []
    graph = open_graph(graph_path(folder, "condition"))
    for samples in (24000, 37777, 72001):
        audio = recording(samples, samples)
        codes, mel, speaker = graph.run(["prompt_codes", "prompt_mel", "speaker"], {"audio": audio[None]})
        want = makers_voice(family, audio)
        what = f"condition, {samples} samples"
        results.append(
            (f"{what}: tokens of {want['prompt_codes'].size} unequal", _unequal(codes, want["prompt_codes"]), 0)
        )
        results.append((f"{what}: mel frames", _worst(mel, want["prompt_mel"]), 1e-3))
        results.append((f"{what}: speaker", _worst(speaker, want["speaker"]), 1e-3))
    return results


def _compare_language_model(family: Any, folder: Path, steps: int, ragged_steps: int) -> list[tuple[str, float, float]]:
    results = []
    rng = np.random.default_rng(7)
    prompt = open_graph(graph_path(folder, "prompt"))
    vocabulary = min(family.text_table.shape[0], family.parts.end_of_prompt)
    codes = rng.integers(0, family.sounds, (1, 50))

    def ids(count: int) -> np.ndarray:
        return rng.integers(0, vocabulary, (1, count))

    end = np.array([[family.parts.end_of_prompt]])
    none = np.zeros((1, 0), np.int64)
    cases = []
    for mode, text, transcript, instructions in (
        ("zero-shot", 20, 12, 0),
        ("without a transcript", 9, 0, 0),
        ("instructions", 9, 0, 7),
        ("instructions and a transcript", 5, 11, 3),
        ("zero-shot, one id", 1, 40, 0),
    ):
        feed = {
            "text_ids": np.concatenate([ids(6), end, ids(text)], 1),
            "transcript_ids": ids(transcript) if transcript else none,
            "instruction_ids": np.concatenate([ids(instructions), end], 1) if instructions else none,
            "prompt_codes": codes,
        }
        got = prompt.run(["embeds"], feed)[0][0]
        want = makers_prompt(family, feed)
        results.append((f"prompt, {mode}: {len(want)} columns", _worst(got, want), 1e-5))
        cases.append(want)

    model = LanguageModel(folder)
    want, logits = makers_tokens(family, cases[0], steps)
    got, first = greedy_frames(model, [(cases[0], None)], steps)
    results.append(("decode: logits of the prefill", _worst(first[0], logits), 1e-3))
    results.append((f"decode and embed, batch 1: greedy tokens of {steps} unequal", _unequal(got[0, :, 0], want), 0))
    rows = (cases * 2)[:8]
    rows = [row[: max(3, len(row) - 2 * i)] for i, row in enumerate(rows)]
    together, _ = greedy_frames(model, [(row, None) for row in rows], ragged_steps)
    unequal = sum(_unequal(got[:, 0], makers_tokens(family, row, ragged_steps)[0]) for row, got in zip(rows, together))
    results.append((f"the same, 8 ragged rows: greedy tokens of {8 * ragged_steps} unequal", unequal, 0))
    return results


def _compare_sound(family: Any, folder: Path, is_small: bool) -> list[tuple[str, float, float]]:
    """The flow by itself, HiFT by itself on the mel frames of the graph, and both. A difference of the pitch adds up in the phase
    of HiFT's source, so that both together differ by more than each."""
    results = []
    rng = np.random.default_rng(11)
    with tempfile.TemporaryDirectory(prefix="antiphon_export.") as extra:
        family._vocode("fp32", with_mel=True).save(Path(extra) / "vocode.onnx")
        vocode = Vocode(Path(extra))
        # All at once, and streamed. The makers' streams end a chunk with a block of the flow, which the graph does when the
        # recording is whole blocks.
        for n_prompt, count, is_streamed in (
            [
                (25, 27, False),
                (33, 60, False),
                (50, 180, False),
                (25, 28, True),
                (50, 60, True),
                (50, 180, True),
                (75, 31, True),
            ]
            if is_small
            else [(25, 20, False), (25, 40, True)]
        ):
            voice, codes = _random_voice(family, rng, n_prompt), rng.integers(0, family.sounds, (1, count))
            sounds, mels = stream(family, vocode, codes, voice, first=None if is_streamed else count + 1)
            sound, mel = np.concatenate(sounds, 2)[0], np.concatenate(mels, 1)
            want, want_mel = makers_sound(family, codes, voice, is_streamed)
            what = f"vocode, recording of {n_prompt} tokens, {count} tokens in {len(sounds)} chunks"
            results.append((f"{what}: mel frames", _worst(mel, want_mel), 1e-3))
            results.append((f"{what}: sound of these mel frames", _worst(sound, makers_hift(family, mel)), 1e-3))
            results.append((f"{what}: sound", _worst(sound, want), 2e-2))
    if is_small:
        vocode = Vocode(folder)
        voice, codes = _random_voice(family, rng, 33, rows=3), rng.integers(0, family.sounds, (3, 120))
        together = np.concatenate(stream(family, vocode, codes, voice)[0], 2)
        alone = [
            np.concatenate(stream(family, vocode, codes[i : i + 1], {k: v[i : i + 1] for k, v in voice.items()})[0], 2)[
                0
            ]
            for i in range(3)
        ]
        results.append(("vocode, streamed: 3 rows at once", _worst(together, np.stack(alone)), 1e-4))
        # The last tokens see all, so that they differ by chunks; the others do not.
        small = np.concatenate(stream(family, vocode, codes, voice, growth=1.2)[0], 2)
        end = 71 * family.contract()["samples_per_token"]
        results.append(("vocode, streamed in other chunks", _worst(small[:, :, :end], together[:, :, :end]), 1e-3))
    return results


def golden(family: Any, folder: Path) -> dict[str, Any]:
    """See LAYOUT.md. `waveform_streamed` is the makers' stream of the same codes, in the contract's chunks."""
    import soundfile
    from tokenizers import Tokenizer

    from .cosyvoice3 import TEXT, TRANSCRIPT

    soundfile.write(folder / "reference.wav", recording(RATE_HZ, 5), RATE_HZ, subtype="PCM_16")
    audio, _ = soundfile.read(folder / "reference.wav", dtype="float32")
    voice = makers_voice(family, audio)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = {
        "text_ids": tokenizer.encode(TEXT.replace("{text}", "Hello there, how are you?")).ids,
        "transcript_ids": tokenizer.encode(TRANSCRIPT.replace("{transcript}", "A short one.")).ids,
        "instruction_ids": [],
    }
    feed = {name: np.array([values], np.int64) for name, values in ids.items()} | {
        "prompt_codes": voice["prompt_codes"]
    }
    embeds = makers_prompt(family, feed)
    frames, logits = makers_tokens(family, embeds, 64)
    codes = np.random.default_rng(11).integers(0, family.sounds, (1, 45))
    stride = 97
    return {
        "ids": ids,
        "language": -1,
        "voice": {
            name: {
                "kind": "i64" if value.dtype == np.int64 else "f32",
                "shape": list(value.shape),
                "data": value.flatten().tolist() if value.dtype == np.int64 else _numbers(value.flatten()),
            }
            for name, value in voice.items()
        },
        "recording": "reference.wav",
        "prompt_embeds_sum": _numbers(embeds.sum(-1)),
        "first_logits": _numbers(logits),
        "frames": frames[:, None].tolist(),
        "codes": codes[0][:, None].tolist(),
        "waveform": _numbers(makers_sound(family, codes, voice)[0][0, ::stride]),
        "waveform_streamed": _numbers(makers_sound(family, codes, voice, is_streamed=True)[0][0, ::stride]),
        "waveform_stride": stride,
    }


def stream(
    family: Any,
    vocode: Vocode,
    codes: np.ndarray,
    voice: dict[str, np.ndarray],
    first: int | None = None,
    growth: float | None = None,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The chunks of sound of `codes` [B, N], cut as the engine cuts them, and where the graph has the output `mel`, the frames
    that each run made and HiFT used."""
    contract = family.contract()
    chunks, ratio = contract["chunks"], family.parts.flow_config.mel_per_token
    growth = chunks["growth"] if growth is None else growth
    state, sounds, mels = vocode.empty_state(len(codes)), [], []
    names = ["waveform", *(name.replace("state.", "next.") for name in state)]
    has_mel = any(port.name == "mel" for port in vocode.session.get_outputs())
    at, size = 0, first or chunks["first"]
    while at < codes.shape[1]:
        waiting = codes.shape[1] - at
        is_last = waiting < size + chunks["look_ahead"]
        count = waiting if is_last else size
        begin = max(0, at - chunks["left_context"])
        end = at + waiting if is_last else at + count + chunks["look_ahead"]
        marks = {"n_before": np.array([at - begin]), "is_last": np.array([is_last])}
        feed = {"codes": codes[:, begin:end], **state, **voice, **marks}
        values = vocode.session.run([*names, *(["mel"] if has_mel else [])], feed)
        sound, state = values[0], dict(zip(state, values[1:]))
        if has_mel:
            pending = MEL_AHEAD if at else 0
            mels.append(values[-1][:, ratio * (at - begin) + pending :])
        if sound.shape != (len(codes), 1, count * contract["samples_per_token"]):
            raise AssertionError(f"{sound.shape} samples for {count} tokens")
        sounds.append(sound)
        at += count
        size = min(max(int(np.float32(size) * np.float32(growth)), chunks["first"]), chunks["most"])
    return sounds, mels


def makers_voice(family: Any, audio: np.ndarray) -> dict[str, np.ndarray]:
    """What the makers' front end makes of a recording at 24 kHz."""
    import torch
    import torchaudio

    frontend = family.makers.frontend(
        get_tokenizer=lambda: _NoTokenizer(),
        feat_extractor=family.makers.mel_spectrogram,
        campplus_model=str(family.parts.speaker),
        speech_tokenizer_model=str(family.parts.tokens),
    )
    module = __import__(type(frontend).__module__, fromlist=["load_wav"])
    sound = torch.from_numpy(np.asarray(audio, np.float32))[None]

    def load_wav(_: Any, rate: int) -> Any:
        return sound if rate == RATE_HZ else torchaudio.transforms.Resample(RATE_HZ, rate)(sound)

    theirs, module.load_wav = module.load_wav, load_wav
    try:
        made = frontend.frontend_zero_shot("", "", "", RATE_HZ, "")
    finally:
        module.load_wav = theirs
    return {
        "prompt_codes": made["flow_prompt_speech_token"].numpy().astype(np.int64),
        "prompt_mel": made["prompt_speech_feat"].numpy(),
        "speaker": made["flow_embedding"].numpy(),
    }


class _NoTokenizer:
    """For a front end whose texts are empty."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return []


def makers_prompt(family: Any, feed: dict[str, np.ndarray]) -> np.ndarray:
    """Columns [L, H] that the makers' `inference` gives to its language model, in the mode that the ids ask for."""
    import torch

    class Ids(torch.Tensor):
        """Passes the makers' test for the real tokenizer's <|endofprompt|>."""

        def __contains__(self, _: Any) -> bool:
            return True

    llm = family.makers.llm
    text, transcript, instructions = (feed[name][0] for name in ("text_ids", "transcript_ids", "instruction_ids"))
    end = int(np.argmax(text == family.parts.end_of_prompt)) + 1
    codes = feed["prompt_codes"]
    if len(instructions):
        before, text, codes = instructions, text[end:], codes[:, :0]
    elif len(transcript):
        before, text = np.concatenate([text[:end], transcript]), text[end:]
    else:
        # Their cross-lingual mode: the caller writes the system text into the text.
        before, codes = text[:0], codes[:, :0]
    caught = []

    def catch(columns: Any, *_: Any) -> Iterator[int]:
        caught.append(columns)
        return iter(())

    def length(values: np.ndarray) -> Any:
        return torch.tensor([values.size], dtype=torch.int32)

    llm.inference_wrapper = catch
    try:
        list(
            llm.inference(
                text=torch.from_numpy(text.copy())[None].as_subclass(Ids),
                text_len=length(text),
                prompt_text=torch.from_numpy(before.copy())[None].as_subclass(Ids),
                prompt_text_len=length(before),
                prompt_speech_token=torch.from_numpy(codes.copy()),
                prompt_speech_token_len=length(codes),
                embedding=torch.zeros(0, SPEAKER_FLOATS),
            )
        )
    finally:
        del llm.inference_wrapper
    return caught[0].as_subclass(torch.Tensor)[0].numpy()


def makers_tokens(family: Any, embeds: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The makers' most likely tokens [count], each fed again, and the logits [V] of the prefill."""
    import torch

    llm, cache, tokens, first = family.makers.llm, None, [], None
    with torch.inference_mode():
        columns = torch.from_numpy(embeds)[None]
        length = 0
        for _ in range(count):
            length += columns.shape[1]
            seen = torch.ones((1, length, length), dtype=torch.bool).tril()
            hidden, cache = llm.llm.forward_one_step(columns, masks=seen, cache=cache)
            logits = llm.llm_decoder(hidden[:, -1])[0]
            first = logits.numpy().copy() if first is None else first
            tokens.append(int(logits.argmax()))
            columns = llm.speech_embedding.weight[tokens[-1]].reshape(1, 1, -1)
    return np.array(tokens), first


def makers_hift(family: Any, mel: np.ndarray) -> np.ndarray:
    """Sound [1, samples] of the makers' HiFT."""
    import torch

    with torch.inference_mode():
        sound, _ = family.makers.hift.inference(
            speech_feat=torch.from_numpy(mel.transpose(0, 2, 1).copy()), finalize=True
        )
    return sound.numpy()


def makers_sound(
    family: Any, codes: np.ndarray, voice: dict[str, np.ndarray], is_streamed: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Sound [1, samples] and mel frames [1, T, 80] as the makers' `tts` computes them: at once or streamed, all tokens being
    there. Their first chunk fills the recording's last block, which is none here: the recording is whole blocks."""
    import torch

    model = family.makers.model
    ahead, size, most, at, count = model.flow.pre_lookahead_len, 25, model.token_max_hop_len, 0, codes.shape[1]
    runs = []
    while is_streamed and count - at >= size + ahead:
        runs.append((at + size + ahead, at, True, False))
        at += size
        size = min(most, size * model.stream_scale_factor)
    sounds, session = [], "compared"
    model.hift_cache_dict[session] = None
    with torch.inference_mode():
        for end, offset, is_running, is_last in [*runs, (count, at, False, True)]:
            sound = model.token2wav(
                token=torch.from_numpy(codes[:, :end].copy()),
                prompt_token=torch.from_numpy(voice["prompt_codes"]),
                prompt_feat=torch.from_numpy(voice["prompt_mel"]),
                embedding=torch.from_numpy(voice["speaker"]),
                token_offset=offset,
                uuid=session,
                stream=is_running,
                finalize=is_last,
            )
            sounds.append(sound.numpy())
    mel = model.hift_cache_dict.pop(session)["mel"]
    return np.concatenate(sounds, 1), mel.numpy().transpose(0, 2, 1)


def recording(samples: int, seed: int) -> np.ndarray:
    """Sound that changes like speech."""
    rng = np.random.default_rng(seed)
    time = np.arange(samples) / RATE_HZ
    phase = 2 * np.pi * np.cumsum(140 + 40 * np.sin(2 * np.pi * 2.3 * time)) / RATE_HZ
    sound = sum(np.sin(n * phase) / n for n in range(1, 12)) * (0.55 + 0.45 * np.sin(2 * np.pi * 3.1 * time))
    return (0.2 * sound + 0.01 * rng.standard_normal(samples)).astype(np.float32)


def _random_voice(family: Any, rng: np.random.Generator, n_tokens: int, rows: int = 1) -> dict[str, np.ndarray]:
    size = family.parts.flow["spk_embed_affine_layer.weight"].shape[1]
    return {
        "prompt_codes": rng.integers(0, family.sounds, (rows, n_tokens)),
        "prompt_mel": rng.standard_normal((rows, 2 * n_tokens, family.parts.flow_config.mel)).astype(np.float32),
        "speaker": rng.standard_normal((rows, size)).astype(np.float32),
    }


def _worst(got: np.ndarray, want: np.ndarray) -> float:
    """The greatest difference; infinite where the shapes differ."""
    if got.shape != want.shape:
        return float("inf")
    return float(np.abs(np.asarray(got, np.float64) - want).max(initial=0.0))


def _unequal(got: np.ndarray, want: np.ndarray) -> float:
    return float((got != want).sum()) if got.shape == want.shape else float("inf")


def _numbers(values: np.ndarray) -> list[float]:
    return [float(f"{value:.7g}") for value in np.asarray(values, np.float64).flatten()]
