"""The tokenizer of OpenAudio S1-mini: tokenizer.tiktoken and special_tokens.json of a checkpoint, to tokenizer.json.

The family module uses it. The module never tokenizes anything itself.

Control tokens (speech, turns, modalities) are in the vocabulary of tokenizer.json but are not recognized in a text: the
prompt's graph adds them by their ids, so that a text cannot forge the speech or end its turn. Tokens that a text may
contain, those of phonemes and whatever a checkpoint adds, are recognized.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import ExportError
from ..files import read_json

# How the makers' tokenizer splits a text before it is encoded; `\?!\S` is theirs.
PATTERN = "|".join(
    [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"\p{P}",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(\?!\S)",
        r"\s+",
    ]
)
INTERLEAVE = "<|interleave|>"
IM_END = "<|im_end|>"
SPEAKER = "<|speaker:0|>"
SEMANTIC = re.compile(r"<\|semantic:(\d+)\|>")
CONTROL = {
    INTERLEAVE,
    IM_END,
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|pad|>",
    "<|im_start|>",
    "<|text|>",
    "<|voice|>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<|audio|>",
    "<|audio_pad|>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
}


@dataclass(frozen=True)
class Vocabulary:
    """Pieces of text by their ranks, which are their ids, and special tokens."""

    ranks: dict[bytes, int]
    special: dict[str, int]

    @property
    def size(self) -> int:
        return max([*self.ranks.values(), *self.special.values()]) + 1

    def semantic(self, count: int) -> int:
        """The id of the first speech token. They follow each other, `count` of them."""
        ids = {int(match.group(1)): id for token, id in self.special.items() if (match := SEMANTIC.fullmatch(token))}
        if len(ids) != count:
            raise ExportError(
                f"special_tokens.json has {len(ids)} speech tokens <|semantic:N|>, the codec has {count}: not of one"
                " checkpoint"
            )
        if any(ids.get(i) != ids.get(0, -1) + i for i in range(count)):
            raise ExportError(
                "the ids of <|semantic:0|>, <|semantic:1|>, ... in special_tokens.json do not follow each other"
            )
        return ids[0]

    def id(self, token: str) -> int:
        if token not in self.special:
            raise ExportError(f"special_tokens.json has no {token}: not a checkpoint of OpenAudio S1-mini")
        return self.special[token]


def read_vocabulary(checkpoint: Path) -> Vocabulary:
    """The vocabulary of a checkpoint's folder."""
    path = checkpoint / "tokenizer.tiktoken"
    ranks: dict[bytes, int] = {}
    try:
        for number, line in enumerate(path.read_text(encoding="ascii").splitlines(), 1):
            if not line:
                continue
            piece, rank = line.split()
            # The empty piece is written so; it is never used.
            if piece != "=":
                ranks[base64.b64decode(piece, validate=True)] = int(rank)
    except FileNotFoundError as error:
        raise ExportError(f"the tokenizer is missing: there is no {path}") from error
    except (OSError, ValueError) as error:
        raise ExportError(f"the tokenizer cannot be read: {path}, line {number if ranks else 1}: {error}") from error
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise ExportError(f"{path} has no piece for {len(missing)} of the 256 bytes: it is damaged")
    special = read_json(checkpoint / "special_tokens.json", "the list of special tokens")
    if not all(isinstance(id, int) for id in special.values()):
        raise ExportError(f"{checkpoint / 'special_tokens.json'} does not give each token an id")
    taken = set(ranks.values())
    if len(taken) != len(ranks) or len(set(special.values())) != len(special) or taken & set(special.values()):
        raise ExportError(f"an id stands for two tokens in {path} or special_tokens.json")
    return Vocabulary(ranks, special)


def tokenizer_json(vocabulary: Vocabulary) -> dict:
    """The tokenizer as a JSON document of Hugging Face's `tokenizers`."""
    letters = _letters()

    def written(piece: bytes) -> str:
        return "".join(letters[byte] for byte in piece)

    vocab = {written(piece): rank for piece, rank in vocabulary.ranks.items()}
    for token, id in vocabulary.special.items():
        if vocab.setdefault(token, id) != id:
            raise ExportError(f"the special token {token} is a piece of text too")
    merges = [[written(left), written(right)] for left, right in _merges(vocabulary.ranks)]
    recognized = sorted(
        (id, token)
        for token, id in vocabulary.special.items()
        if token not in CONTROL and not SEMANTIC.fullmatch(token)
    )
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": id,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for id, token in recognized
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            # A piece that is in the vocabulary is taken whole, as tiktoken does.
            "ignore_merges": True,
            "vocab": vocab,
            "merges": merges,
        },
    }


def write_tokenizer(vocabulary: Vocabulary, path: Path) -> None:
    Path(path).write_text(json.dumps(tokenizer_json(vocabulary), ensure_ascii=False) + "\n", encoding="utf-8")


def _merges(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """The merges that make the pieces, in the order in which they apply: of a piece, the last merge of its encoding by
    the pieces of lower rank."""
    merges = []
    for piece, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(piece) == 1:
            continue
        parts = _encoded(ranks, piece, rank)
        # A piece that the others never lead to is found whole only.
        if len(parts) == 2:
            merges.append((parts[0], parts[1]))
    return merges


def _encoded(ranks: dict[bytes, int], piece: bytes, limit: int) -> list[bytes]:
    """The piece in parts of ranks below `limit`."""
    parts = [piece[i : i + 1] for i in range(len(piece))]
    while len(parts) > 1:
        candidates = [(ranks.get(parts[i] + parts[i + 1], limit), i) for i in range(len(parts) - 1)]
        rank, i = min(candidates)
        if rank >= limit:
            break
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts


def _letters() -> dict[int, str]:
    """What stands for each byte in a byte-level vocabulary: itself where it is printable, else a letter from U+0100
    on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in letters)
    letters.update({byte: chr(0x100 + i) for i, byte in enumerate(others)})
    return letters
