"""The graph `prompt` of Qwen3-TTS: what the makers' `generate` makes of a text, a voice and a language in its streaming
mode, the default of `generate_voice_clone`. `qwen3_tts` uses it.

With a transcript the recording's own frames are the context (the makers' ICL mode); without one only the speaker's
embedding is. Both are one computation: without a transcript there are no frames and no ids of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

import numpy as np
from onnx import TensorProto

from ..transformer import GraphBuilder

# Ids around the text: `<|im_start|>assistant\n` before it, `<|im_end|>\n<|im_start|>assistant\n` behind it,
# `<|im_end|>\n` behind a transcript. The makers count them so.
BEFORE, BEHIND_TEXT, BEHIND_TRANSCRIPT = 3, 5, 2


@dataclass(frozen=True)
class PromptWeights:
    """float32 arrays; matrices are [out, in]."""

    text: np.ndarray
    """Embeddings of text ids [V, text hidden]."""
    fc1: np.ndarray
    fc1_bias: np.ndarray
    fc2: np.ndarray
    fc2_bias: np.ndarray
    codes: Sequence[np.ndarray]
    """Embeddings of each codebook [sounds, H]."""
    languages: np.ndarray
    """Embeddings of the languages [n, H]."""
    control: np.ndarray
    """Embeddings of the codec's pad, bos, think, nothink, think_bos and think_eos [6, H]."""
    pad_id: int
    """Text ids of tts_pad, tts_bos and tts_eos."""
    bos_id: int
    eos_id: int


def build_prompt(weights: PromptWeights, precision: str) -> GraphBuilder:
    graph = GraphBuilder("prompt", precision)
    hidden = weights.codes[0].shape[1]
    text_ids = graph.input("text_ids", TensorProto.INT64, [1, "text"])
    transcript_ids = graph.input("transcript_ids", TensorProto.INT64, [1, "transcript"])
    speaker = graph.input("speaker", TensorProto.FLOAT, [1, hidden])
    codes = graph.input("codes", TensorProto.INT64, [1, "frames", len(weights.codes)])
    language = graph.input("language", TensorProto.INT64, [1])
    graph.output("embeds", TensorProto.FLOAT, [1, "columns", hidden])
    graph.output("following", TensorProto.FLOAT, [1, "rows", hidden])

    def part(value: str, start, end, axis: int = 1) -> str:
        start, end = (limit if isinstance(limit, str) else graph.ints([limit]) for limit in (start, end))
        return graph.op("Slice", [value, start, end, graph.ints([axis])])

    def length(value: str, axis: int) -> str:
        return graph.op("Gather", [graph.op("Shape", [value]), graph.ints([axis])])

    def join(*values: str) -> str:
        return graph.op("Concat", list(values), axis=1)

    last = np.iinfo(np.int64).max
    # All ids are embedded in one run: what stands before the text, transcript and text, then pad, bos and eos.
    spoken = join(part(transcript_ids, BEFORE, -BEHIND_TRANSCRIPT), part(text_ids, BEFORE, -BEHIND_TEXT))
    marks = graph.ints([[weights.pad_id, weights.bos_id, weights.eos_id]])
    embedded = graph.lookup(weights.text, join(part(text_ids, 0, BEFORE), spoken, marks))
    inner = graph.linear(embedded, [weights.fc1], [weights.fc1_bias])
    inner = graph.op("Mul", [inner, graph.op("Sigmoid", [inner])])
    embedded = graph.linear(inner, [weights.fc2], [weights.fc2_bias])
    role = part(embedded, 0, BEFORE)
    spoken = join(part(embedded, BEFORE, -3), part(embedded, -1, last))
    pad, begin = part(embedded, -3, -2), part(embedded, -2, -1)

    # Control columns of the codec: whether and in which language it thinks, the speaker, pad.
    control = [graph.weight(row.reshape(1, 1, -1), real=False) for row in np.asarray(weights.control, np.float32)]
    codec_pad, codec_bos, think, nothink, think_bos, think_eos = control
    known = graph.op("GreaterOrEqual", [language, graph.ints(0)])
    row = graph.op("Max", [language, graph.ints(0)])
    tongue = graph.op("Unsqueeze", [graph.lookup(weights.languages, row), graph.ints([0])])
    tongue = part(tongue, 0, graph.op("Cast", [known], to=TensorProto.INT64))
    columns = join(
        graph.op("Where", [known, think, nothink]),
        think_bos,
        tongue,
        think_eos,
        graph.op("Unsqueeze", [speaker, graph.ints([1])]),
        codec_pad,
    )
    count = length(columns, 1)
    rows = graph.op(
        "Concat", [graph.ints([1]), graph.op("Sub", [count, graph.ints([1])]), graph.ints([hidden])], axis=0
    )
    columns = graph.op("Add", [columns, join(graph.op("Expand", [pad, rows]), begin)])

    # Frames of the recording, where there is a transcript, with the text beside them.
    has_transcript = graph.op("Min", [length(transcript_ids, 1), graph.ints([1])])
    frames = part(codes, 0, graph.op("Mul", [length(codes, 1), has_transcript]))
    books = [
        graph.lookup(table, graph.op("Gather", [frames, graph.ints(i)], axis=2))
        for i, table in enumerate(weights.codes)
    ]
    frames = join(codec_bos, graph.total(books))
    taken = length(frames, 1)
    missing = graph.op("Max", [graph.op("Sub", [taken, length(spoken, 1)]), graph.ints([0])])
    rows = graph.op("Concat", [graph.ints([1]), missing, graph.ints([hidden])], axis=0)
    spoken = join(spoken, graph.op("Expand", [pad, rows]))
    context = graph.op("Add", [part(spoken, 0, taken), frames])
    graph.op("Concat", [role, columns, context], outputs=["embeds"], axis=1)
    graph.op("Concat", [part(spoken, taken, last), pad], outputs=["following"], axis=1)
    return graph
