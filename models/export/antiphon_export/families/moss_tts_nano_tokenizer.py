"""A SentencePiece model (tokenizer.model) as tokenizer.json of Hugging Face's `tokenizers`, which the engine reads.
MOSS-TTS-Nano's converter uses it. Both kinds of SentencePiece that have merges or scores are written, unigram and BPE;
nothing is added before or behind a text. What was written is compared with the sentencepiece library on sentences of
all languages.

SentencePiece finds only some of its pieces in a text: normal ones, those of its user, and bytes where there is no other
way. The others (controls, the unknown, unused ones) are written with a space before them, which no text has once its
spaces became U+2581.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from ..errors import ExportError

SPACE = "▁"
UNIGRAM, BPE = 1, 2
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
# What must have the same ids by both, at least.
SENTENCES = (
    "The next train to the coast leaves at 9:45, doesn't it?",
    "今天天气很好，我们去公园吧。欢迎关注！",
    "Der Zug fährt um neun Uhr ab, und die Schlüssel liegen auf dem Tisch.",
    "¿Dónde está la estación? ¡Mañana será otro día!",
    "L'été, nous irons à la mer; où étais-tu hier?",
    "今日はとても良い天気ですね。散歩に行きましょう。",
    "Perché no? La città è bella: ci vediamo lì.",
    "Holnap reggel hétkor indul a vonat, ugye?",
    "오늘은 날씨가 정말 좋네요. 산책하러 갈까요?",
    "Сегодня хорошая погода, и мы идём в парк.",
    "امروز هوا خیلی خوب است؛ به پارک می\u200cرویم.",
    "الطقس جميل اليوم، هل نذهب إلى الحديقة؟",
    "Żółty pociąg odjeżdża o dziewiątej rano.",
    "Amanhã de manhã não há aviões para São Paulo.",
    "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Rødgrød med fløde smager godt på en sommerdag.",
    "Åtta älskade sjösjuka sjömän på skeppet Shanghai.",
    "Ο καιρός είναι ωραίος σήμερα, πάμε στο πάρκο;",
    "Yarın sabah ışıklar sönünce güneş doğacak.",
    "It costs $3.50 (about 12% off) — “really”? e-mail: a.b@c.org #1 C++ x_y",
    "  two  spaces, and  a tab\tin between ",
    "ＡＢＣ １２３ ｶﾀｶﾅ ﬁne ½ café e\u0301 🙂👍🏽 ™",
    "",
)


def write_tokenizer(model: Path, path: Path, most: int) -> int:
    """Writes tokenizer.json of a SentencePiece model with at most so many pieces. How many it has."""
    processor, proto = _read(model)
    if len(proto.pieces) > most:
        raise ExportError(
            f"{model} has {len(proto.pieces)} pieces, the language model {most}: the tokenizer is of another model"
        )
    document = tokenizer_json(proto, model)
    path.write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    different = [text for text in SENTENCES if ids(path, text) != processor.encode(text, out_type=int)]
    if different:
        raise ExportError(
            f"{model} gives {different[0]!r} other ids than the tokenizer.json that was made of it ({len(different)} of"
            f" {len(SENTENCES)} sentences): it uses rules of SentencePiece that cannot be written there"
        )
    return len(proto.pieces)


def n_pieces(model: Path) -> int:
    """How many pieces a SentencePiece model has."""
    return len(_read(model)[1].pieces)


def ids(path: Path, text: str) -> list[int]:
    """The ids of a text by a tokenizer.json."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path)).encode(text).ids


def tokenizer_json(proto: Any, model: Path) -> dict:
    """The document, of the protocol buffer of a SentencePiece model."""
    trained, rules = proto.trainer_spec, proto.normalizer_spec
    refused = [
        (trained.model_type not in (UNIGRAM, BPE), "is neither a unigram nor a BPE model"),
        (trained.treat_whitespace_as_suffix, "puts spaces behind words"),
        (not rules.escape_whitespaces, "does not write spaces as U+2581"),
        (bool(proto.denormalizer_spec.precompiled_charsmap), "changes what it decodes"),
    ]
    for is_so, what in refused:
        if is_so:
            raise ExportError(f"{model} {what}, which is not converted: it is no tokenizer of MOSS-TTS-Nano")
    kinds = [piece.type for piece in proto.pieces]
    # Of none of the texts that are looked up: see the module.
    texts = [
        f" {piece.piece}" if kind in (UNKNOWN, CONTROL, UNUSED) else piece.piece
        for piece, kind in zip(proto.pieces, kinds)
    ]
    if len(set(texts)) != len(texts) or kinds.count(UNKNOWN) != 1:
        raise ExportError(f"{model} has a piece twice, or not one piece for what is unknown: it is damaged")
    normalizers: list[dict] = []
    if rules.precompiled_charsmap:
        charsmap = base64.b64encode(rules.precompiled_charsmap).decode("ascii")
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if rules.remove_extra_whitespaces:
        normalizers.append({"type": "Replace", "pattern": {"Regex": r" +\z"}, "content": ""})
        # Spaces at the beginning become the one that would be put there.
        normalizers.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": SPACE})
    splits = not any(SPACE in text[1:] for text, kind in zip(texts, kinds) if kind == NORMAL)
    scores = [piece.score for piece in proto.pieces]
    written = _unigram if trained.model_type == UNIGRAM else _bpe
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": id,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": False,
            }
            for id, (text, kind) in enumerate(zip(texts, kinds))
            if kind == USER
        ],
        "normalizer": {"type": "Sequence", "normalizers": normalizers} if normalizers else None,
        "pre_tokenizer": {
            "type": "Metaspace",
            "replacement": SPACE,
            "prepend_scheme": "first" if rules.add_dummy_prefix else "never",
            "split": splits,
        },
        "post_processor": None,
        "decoder": {
            "type": "Metaspace",
            "replacement": SPACE,
            "prepend_scheme": "first" if rules.add_dummy_prefix else "never",
            "split": splits,
        },
        "model": written(texts, scores, kinds, trained),
    }


def _unigram(texts: list[str], scores: list[float], kinds: list[int], trained: Any) -> dict:
    return {
        "type": "Unigram",
        "unk_id": kinds.index(UNKNOWN),
        "vocab": [[text, score] for text, score in zip(texts, scores)],
        "byte_fallback": bool(trained.byte_fallback),
    }


def _bpe(texts: list[str], scores: list[float], kinds: list[int], trained: Any) -> dict:
    """Merges are not in a SentencePiece model: each piece is one of any two that make it, and its score says when."""
    vocabulary = {text: id for id, text in enumerate(texts)}
    parts = {text for text, kind in zip(texts, kinds) if kind in (NORMAL, USER)}
    merges = []
    for text, score, kind in zip(texts, scores, kinds):
        if kind != NORMAL:
            continue
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in parts and right in parts:
                merges.append((-score, vocabulary[left], vocabulary[right], [left, right]))
    merges.sort(key=lambda merge: merge[:3])
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": texts[kinds.index(UNKNOWN)],
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": bool(trained.byte_fallback),
        "ignore_merges": False,
        "vocab": vocabulary,
        "merges": [merge[3] for merge in merges],
    }


def _read(model: Path) -> tuple[Any, Any]:
    try:
        content = Path(model).read_bytes()
        proto = sentencepiece_model_pb2.ModelProto.FromString(content)
        return sentencepiece.SentencePieceProcessor(model_proto=content), proto
    except Exception as error:
        # protobuf and sentencepiece raise errors of several kinds on damaged files.
        raise ExportError(f"{model} is no SentencePiece model, or its download is incomplete: {error}") from error
