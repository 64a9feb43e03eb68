"""MOSS-TTS-Nano (OpenMOSS, 0.1B): the ONNX graphs that its makers publish, to those of the layout.

The command line uses it, by its name `moss-tts-nano`. The checkpoint is a folder with the makers' two repositories
(`moss_tts_nano_published` says how it lies); the conversion needs sentencepiece, and neither PyTorch nor the makers'
code. Checks and fixtures need both. Each graph is run once beside the published one it was made of, and refused where
they differ.

What the family is: a transformer over rows of 17 ids, an id of text and 16 codes, gives the hidden state of each frame
(12.5 frames a second); an inner one says whether the speech goes on and draws the codes, by settings that are constants
of its graph. A prompt is

    PREFIX <audio start> ROWS OF THE REFERENCE <audio end> BETWEEN TEXT SUFFIX <audio start>

What the engine calls embeddings are the rows of ids here, as floats: the published graphs embed them themselves.
`decode` is the makers' prefill where the cache is empty, else their decoding step; both read the same weights. The
codec's streaming graph is the vocoder, with the state that it has.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Callable, Mapping

import numpy as np
import onnx
from onnx import TensorProto

from ..errors import ExportError
from ..files import available_memory
from ..run import open_graph
from ..transformer import GraphBuilder
from .moss_tts_nano_graph import Joined, read_graph
from .moss_tts_nano_published import Published, State, check_ports, read_published
from .moss_tts_nano_tokenizer import SENTENCES, ids, n_pieces, write_tokenizer

NAME = "moss-tts-nano"
TITLE = "MOSS-TTS-Nano 0.1B"
PACKAGE = "sentencepiece; for checks --code with a checkout of OpenMOSS/MOSS-TTS-Nano"
LICENCE = "Apache-2.0"
LICENCE_NOTE = """\
The makers offer MOSS-TTS-Nano and its codec under the Apache License 2.0: use, changes and redistribution are free, for
commercial purposes too. Who passes the weights on, or what was made of them, adds a copy of the licence, keeps the
notices and says what was changed. The terms that came with your download are the ones that bind you. Clone only voices
of people who agreed to it."""

# Of the makers' documentation.
LANGUAGES = [
    *("en", "zh", "de", "es", "fr", "ja", "it", "hu", "ko", "ru"),
    *("fa", "ar", "pl", "pt", "cs", "da", "sv", "el", "tr"),
]
FLOAT, INT32, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
REFERENCE_SECONDS = 20.0
GREEDY_FRAMES = 64
CHECKED_FRAMES = 500
FIXTURE_TEXT = "The fox and Anna say: no!"
FIXTURE_SECONDS = 0.5
# The published graphs and those made of them compute the same; ONNX Runtime may fuse their operators differently.
TOLERANCE = 2e-4
# Times the weights of a folder in memory while a graph is made.
COPIES = 2.5


class Family:
    """A publication. `temporary` is the folder of one with random weights, and `makers` the module that runs the
    makers' code on it."""

    # There is no graph in another precision: what is published is fp32. The first that is asked for is refused.
    fp16_roles = ("condition", "prompt", "decode", "frame", "vocode")

    def __init__(
        self, published: Published, size: str | None = None, temporary: Any = None, makers: Any = None
    ) -> None:
        self.published = published
        self.unknown = published.unknown
        self.size = size
        self.temporary = temporary
        self.makers = makers
        self.codebooks = published.sizes["n_vq"]
        self.width = published.sizes["row_width"]
        self.hidden = published.sizes["hidden_size"]
        self.layers = published.sizes["global_layers"]
        self._samples_per_frame: int | None = None

    def graphs(self) -> dict[str, Callable[[Path, str], None]]:
        makers_of = {
            "condition": self._condition,
            "prompt": self._prompt,
            "decode": self._decode,
            "frame": self._frame,
            "vocode": self._vocode,
        }
        return {role: _only_fp32(write) for role, write in makers_of.items()}

    def contract(self) -> dict:
        sizes = self.published.sizes
        return {
            "format": 1,
            "name": NAME,
            "title": TITLE,
            "licence": LICENCE,
            "languages": LANGUAGES,
            "rate_hz": self.published.rate_hz,
            "samples_per_token": self.samples_per_frame(),
            "watermark": "none",
            "text": {
                "tokenizer": "tokenizer.json",
                "vocabulary": n_pieces(self.published.tokenizer),
                "template": "{text}",
                # As the makers do in all languages.
                "end": "。",
            },
            "condition": {
                "file": "condition{precision}.onnx",
                "audio": "audio",
                "min_seconds": 0.3 if self.size == "tiny" else 1.0,
                "use_seconds": REFERENCE_SECONDS,
            },
            "prompt": {
                "file": "prompt{precision}.onnx",
                "voice": ["codes"],
                "embeds": "embeds",
                "ids": [{"port": "text_ids", "template": "{text}"}],
            },
            "frame": {"file": "frame{precision}.onnx", "draws_all": True, "takes_seen": True},
            "decode": {
                "file": "decode{precision}.onnx",
                "embeds": "inputs_embeds",
                "lengths": "lengths",
                "hidden": "hidden",
                "past": ["past.{i}.key", "past.{i}.value"],
                "present": ["present.{i}.key", "present.{i}.value"],
                "cache": "columns_first",
                "layers": self.layers,
                "heads": sizes["global_heads"],
                "head_size": sizes["head_dim"],
                "policy": "single",
            },
            "vocode": {
                "file": "vocode{precision}.onnx",
                "tokens": "codes",
                "carry": [],
                "waveform": "waveform",
                "with_prompt": False,
                "state": [
                    {"input": _given(state), "output": _left(state), "fill": float(state.fill)}
                    for state in self.published.states
                ],
            },
            "tokens": {
                "vocabulary": self.published.codebook_size,
                "sounds": self.published.codebook_size,
                "start": -1,
                "stop": -1,
                "silence": -1,
                "codebooks": self.codebooks,
            },
            # A frame is 80 ms: no text is shorter than two, and slow speech of a language with a letter a word has four
            # for each. Of nothing but an end there would be no speech.
            "length": {
                "min_tokens": 2,
                "max_tokens": self.published.max_frames,
                "max_tokens_per_char": 4.0,
                "max_silence": 12,
                "end_silence": 37,
            },
            "chunks": {"first": 2, "growth": 1.5, "most": 8, "look_ahead": 0, "left_context": 0, "cross_fade_ms": 0},
        }

    def write_tokenizer(self, path: Path) -> None:
        write_tokenizer(self.published.tokenizer, path, self.published.sizes["vocab_size"])

    def samples_per_frame(self) -> int:
        """What the codec makes of one frame."""
        if self._samples_per_frame is None:
            self._checked("codec_decode_step")
            session = open_graph(self.published.graphs["codec_decode_step"])
            sound = _published_sound(session, self.published, np.zeros((1, 1, self.codebooks)), self._empty_state())[0]
            if not sound.shape[2]:
                raise ExportError("the published codec makes no sound of a frame: it is of another release")
            self._samples_per_frame = sound.shape[2]
        return self._samples_per_frame

    def check(self, folder: Path, frames: int = CHECKED_FRAMES) -> list[tuple[str, float, float]]:
        return _Comparison(self, folder).results(frames)

    def golden(self, folder: Path) -> dict:
        """What golden.json says. The language model gets random numbers of 0 and no flags, and goes on whatever it
        says; the sound is the mean of the makers' channels."""
        made, makers = self.makers.runtime(self.published.folder.parent), self.makers
        rng = np.random.default_rng(7)
        audio = _recording(int(FIXTURE_SECONDS * self.published.rate_hz), self.published.rate_hz, rng)
        _write_wav(folder / "reference.wav", audio, self.published.rate_hz)
        codes = makers.encoded(made, audio)
        text_ids = made.encode_text(FIXTURE_TEXT)
        rows = made.build_voice_clone_request_rows(codes.tolist(), text_ids)
        numbers = np.zeros((GREEDY_FRAMES, self.width))
        frames = makers.frames(made, rows, GREEDY_FRAMES, numbers, with_seen=False)["codes"]
        spoken = frames[:24].copy()
        # Of any frames, so that no window is like another.
        spoken[8:] = rng.integers(0, self.published.codebook_size, spoken[8:].shape)
        stride = 37
        return {
            "ids": {"text_ids": text_ids},
            "language": 0,
            "voice": {"codes": {"kind": "i64", "shape": [1, *codes.shape], "data": codes.reshape(-1).tolist()}},
            "recording": "reference.wav",
            "prompt_embeds_sum": [float(sum(row)) for row in rows["inputIds"]],
            "first_logits": [],
            "frames": frames.tolist(),
            "codes": spoken.tolist(),
            "waveform": [round(float(x), 6) for x in makers.decoded(made, spoken).mean(0)[::stride]],
            "waveform_stride": stride,
        }

    def _checked(self, name: str) -> onnx.ModelProto:
        """A published graph whose ports are those that are used."""
        path, sizes = self.published.graphs[name], self.published.sizes
        _check_memory(path)
        model = read_graph(path)
        cache = ((FLOAT,), (None, None, sizes["global_heads"], sizes["head_dim"]))
        past, present = (
            {f"{word}_{part}_{i}": cache for i in range(self.layers) for part in ("key", "value")}
            for word in ("past", "present")
        )
        # What the graphs give is converted; what they take is of the makers' types.
        integer = (INT32, INT64)
        rows, codes = ((INT32,), (None, None, self.width)), ((INT32,), (None, None, self.codebooks))
        one, hidden = ((INT32,), (None,)), {"global_hidden": ((FLOAT,), (None, None, self.hidden))}
        states = self.published.states
        ports = {
            "prefill": ({"input_ids": rows, "attention_mask": ((INT32,), (None, None))}, hidden | present),
            "decode_step": ({"input_ids": rows, "past_valid_lengths": one} | past, hidden | present),
            "local_fixed_sampled_frame": (
                {
                    "global_hidden": ((FLOAT,), (None, self.hidden)),
                    "repetition_seen_mask": ((INT32,), (None, self.codebooks, self.published.codebook_size)),
                    "assistant_random_u": ((FLOAT,), (None,)),
                    "audio_random_u": ((FLOAT,), (None, self.codebooks)),
                },
                {"should_continue": ((*integer, BOOL), None), "frame_token_ids": (integer, (None, self.codebooks))},
            ),
            "encode": (
                {"waveform": ((FLOAT,), (None, self.published.channels, None)), "input_lengths": one},
                {"audio_codes": (integer, (None, None, self.codebooks)), "audio_code_lengths": (integer, None)},
            ),
            "codec_decode_step": (
                {"audio_codes": codes, "audio_code_lengths": one}
                | {state.input: ((state.kind,), state.shape) for state in states},
                {"audio": ((FLOAT,), (None, self.published.channels, None)), "audio_lengths": (integer, None)}
                | {state.output: ((state.kind,), state.shape) for state in states},
            ),
        }
        check_ports(model, path.name, *ports[name])
        return model

    def _condition(self, path: Path) -> None:
        """A mono recording, for the codec in all of its channels, to the frames that are its own."""
        graph = Joined("condition")
        audio = graph.input("audio", FLOAT, [1, "samples"])
        wave = graph.op("Concat", [graph.op("Unsqueeze", [audio, graph.ints(1)])] * self.published.channels, axis=1)
        length = graph.cast(graph.size(audio, 1), INT32)
        made = graph.part(self._checked("encode"), {"waveform": wave, "input_lengths": length})
        n_frames = graph.op("Reshape", [graph.cast(made["audio_code_lengths"], INT64), graph.ints(1)])
        codes = graph.cut(graph.cast(made["audio_codes"], INT64), graph.ints(0), n_frames, 1)
        graph.output("codes", INT64, [1, "frames", self.codebooks], codes)
        graph.save(path)

        ours, theirs = open_graph(path), open_graph(self.published.graphs["encode"])
        rng = np.random.default_rng(1)
        for seconds in (1.0, 0.37):
            audio = _recording(int(seconds * self.published.rate_hz), self.published.rate_hz, rng)[None]
            feed = {
                "waveform": np.repeat(audio[:, None], self.published.channels, 1),
                "input_lengths": np.array([audio.shape[1]], np.int32),
            }
            codes, lengths = theirs.run(["audio_codes", "audio_code_lengths"], feed)
            _same(
                path,
                "the frames of a recording",
                ours.run(None, {"audio": audio})[0],
                codes[:, : int(lengths.reshape(-1)[0])],
            )

    def _prompt(self, path: Path) -> None:
        """The rows of a prompt. Ids of the text that are none of the vocabulary are an error."""
        sizes, slots, templates = self.published.sizes, self.published.slots, self.published.templates
        pad = sizes["audio_pad_token_id"]
        graph = GraphBuilder("prompt")
        text = graph.input("text_ids", INT64, [1, "text"])
        codes = graph.input("codes", INT64, [1, "frames", self.codebooks])
        graph.output("embeds", FLOAT, [1, "length", self.width])

        def rows(ids: list[int]) -> str:
            fixed = np.full((1, len(ids), self.width), pad, np.float32)
            fixed[0, :, 0] = ids
            return graph.floats(fixed)

        def column(of: str, value: float, count: int) -> str:
            length = graph.op("Slice", [graph.op("Shape", [of]), graph.ints([1]), graph.ints([2])])
            shape = graph.op("Concat", [graph.ints([1]), length, graph.ints([count])], axis=0)
            return graph.op("Expand", [graph.floats([[[value]]]), shape])

        said = graph.op("Gather", [graph.weight(np.arange(sizes["vocab_size"], dtype=np.float32)), text], axis=0)
        said = graph.op("Unsqueeze", [said, graph.ints([2])])
        said = graph.op("Concat", [said, column(text, pad, self.codebooks)], axis=2)
        heard = graph.op("Cast", [codes], to=FLOAT)
        heard = graph.op("Concat", [column(codes, slots["audio_user_slot_token_id"], 1), heard], axis=2)
        before, between, after = templates.values()
        parts = [
            rows([*before, slots["audio_start_token_id"]]),
            heard,
            rows([slots["audio_end_token_id"], *between]),
            said,
            rows([*after, slots["audio_start_token_id"]]),
        ]
        graph.op("Concat", parts, outputs=["embeds"], axis=1)
        graph.save(path)

    def _decode(self, path: Path) -> None:
        """The makers' prefill or decoding step."""
        sizes = self.published.sizes
        cache = [1, "past", sizes["global_heads"], sizes["head_dim"]]
        names = [f"{i}.{part}" for i in range(self.layers) for part in ("key", "value")]
        theirs = [f"{part}_{i}" for i in range(self.layers) for part in ("key", "value")]
        graph = Joined("decode")
        embeds = graph.input("inputs_embeds", FLOAT, [1, "columns", self.width])
        lengths = graph.input("lengths", INT32, [1])
        past = {f"past_{their}": graph.input(f"past.{name}", FLOAT, cache) for name, their in zip(names, theirs)}
        # The engine warms up with what is no row.
        highest = np.full(self.width, max(sizes["audio_pad_token_id"], self.published.codebook_size - 1), np.float32)
        highest[0] = sizes["vocab_size"] - 1
        rows = graph.op(
            "Min", [graph.op("Max", [embeds, graph.constant(0, np.float32)]), graph.constant(highest, np.float32)]
        )
        rows = graph.cast(rows, INT32)
        is_empty = graph.op("Equal", [graph.size(past[f"past_{theirs[0]}"], 1), graph.ints(0)])
        is_empty = graph.op("Reshape", [is_empty, graph.constant([], np.int64)])

        def made(name: str, feeds: Mapping[str, str]) -> list[str]:
            values = graph.part(self._checked(name), feeds)
            last = graph.cut(values["global_hidden"], graph.ints(-1), graph.ints(np.iinfo(np.int64).max), 1)
            return [last, *(values[f"present_{their}"] for their in theirs)]

        def prefill() -> list[str]:
            shape = graph.op("Concat", [graph.size(embeds, 0), graph.size(embeds, 1)], axis=0)
            mask = graph.op("Expand", [graph.constant(1, np.int32), shape])
            return made("prefill", {"input_ids": rows, "attention_mask": mask})

        def step() -> list[str]:
            return made("decode_step", {"input_ids": rows, "past_valid_lengths": lengths} | past)

        graph.output("hidden", FLOAT, [1, 1, self.hidden])
        for name in names:
            graph.output(f"present.{name}", FLOAT, [1, "present", *cache[2:]])
        graph.choose(is_empty, prefill, step, ["hidden", *(f"present.{name}" for name in names)], FLOAT)
        graph.save(path)

        rng = np.random.default_rng(2)
        ours = Decoding(path, self)
        before, after = (open_graph(self.published.graphs[name]) for name in ("prefill", "decode_step"))
        rows_given = self._random_rows(rng, 9)
        feed = {"input_ids": rows_given, "attention_mask": np.ones(rows_given.shape[:2], np.int32)}
        outputs = ["global_hidden", *(f"present_{their}" for their in theirs)]
        hidden, *state = before.run(outputs, feed)
        _same(path, "the hidden state of a prompt", ours.run(rows_given), hidden[:, -1:])
        for length in range(9, 12):
            row = self._random_rows(rng, 1)
            feed = {"input_ids": row, "past_valid_lengths": np.array([length], np.int32)}
            hidden, *state = after.run(outputs, feed | {f"past_{their}": one for their, one in zip(theirs, state)})
            _same(path, "the hidden state of a frame", ours.run(row), hidden)
            for one, present in zip(ours.cache.values(), state):
                _same(path, "the cache", one, present)

    def _frame(self, path: Path) -> None:
        """The makers' drawing of a frame. The first random number is for the end."""
        size = self.published.codebook_size
        graph = Joined("frame")
        hidden = graph.input("hidden", FLOAT, ["batch", self.hidden])
        uniform = graph.input("uniform", FLOAT, ["batch", 1 + self.codebooks])
        seen = graph.input("seen", INT32, ["batch", self.codebooks, size])
        first = graph.cut(uniform, graph.ints(0), graph.ints(1), 1)
        feeds = {
            "global_hidden": hidden,
            "repetition_seen_mask": seen,
            "assistant_random_u": graph.op("Reshape", [first, graph.ints(-1)]),
            "audio_random_u": graph.cut(uniform, graph.ints(1), graph.ints(1 + self.codebooks), 1),
        }
        made = graph.part(self._checked("local_fixed_sampled_frame"), feeds)
        goes_on = graph.op("Reshape", [graph.cast(made["should_continue"], BOOL), graph.ints(-1)])
        graph.output("goes_on", BOOL, ["batch"], goes_on)
        codes = graph.output("codes", INT64, ["batch", self.codebooks], graph.cast(made["frame_token_ids"], INT64))
        shape = graph.op("Concat", [graph.size(codes, 0), graph.ints(1)], axis=0)
        slot = graph.constant([[self.published.slots["audio_assistant_slot_token_id"]]], np.float32)
        row = graph.op("Concat", [graph.op("Expand", [slot, shape]), graph.cast(codes, FLOAT)], axis=1)
        graph.output("embeds", FLOAT, ["batch", self.width], row)
        graph.save(path)

        rng = np.random.default_rng(3)
        ours, theirs = open_graph(path), open_graph(self.published.graphs["local_fixed_sampled_frame"])
        feed = {
            "hidden": rng.normal(size=(3, self.hidden)).astype(np.float32),
            "uniform": rng.random((3, 1 + self.codebooks)).astype(np.float32),
            "seen": rng.integers(0, 2, (3, self.codebooks, size), dtype=np.int32),
        }
        together = ours.run(["codes", "goes_on"], feed)
        for row in range(3):
            alone = {name: value[row : row + 1] for name, value in feed.items()}
            given = {
                "global_hidden": alone["hidden"],
                "repetition_seen_mask": alone["seen"],
                "assistant_random_u": alone["uniform"][:, 0],
                "audio_random_u": alone["uniform"][:, 1:],
            }
            codes, goes_on = theirs.run(["frame_token_ids", "should_continue"], given)
            # Of several rows, since the engine draws the frames of all listeners in one run.
            _same(path, "the codes of one frame among several", together[0][row], codes[0])
            _same(path, "whether one speech among several goes on", together[1][row], goes_on.reshape(-1)[0])

    def _vocode(self, path: Path) -> None:
        """The codec's streaming graph."""
        graph = Joined("vocode")
        codes = graph.input("codes", INT64, [1, "frames", self.codebooks])
        feeds = {"audio_codes": graph.cast(codes, INT32), "audio_code_lengths": graph.cast(graph.size(codes, 1), INT32)}
        for state in self.published.states:
            feeds[state.input] = graph.input(_given(state), state.kind, state.shape)
        made = graph.part(self._checked("codec_decode_step"), feeds)
        n_samples = graph.op("Reshape", [graph.cast(made["audio_lengths"], INT64), graph.ints(1)])
        sound = graph.cut(made["audio"], graph.ints(0), n_samples, 2)
        graph.output("waveform", FLOAT, [1, self.published.channels, "samples"], sound)
        for state in self.published.states:
            graph.output(_left(state), state.kind, state.shape, made[state.output])
        graph.save(path)

        rng = np.random.default_rng(4)
        ours, theirs = open_graph(path), open_graph(self.published.graphs["codec_decode_step"])
        state = self._empty_state()
        mine = {_given(one): state[one.input] for one in self.published.states}
        for count in (1, 3, 2):
            codes = rng.integers(0, self.published.codebook_size, (1, count, self.codebooks))
            sound, state = _published_sound(theirs, self.published, codes, state)
            made, *left = ours.run(
                ["waveform", *(_left(one) for one in self.published.states)], {"codes": codes, **mine}
            )
            mine = {_given(one): value for one, value in zip(self.published.states, left)}
            _same(path, "the sound of frames", made, sound)
            for one in self.published.states:
                _same(path, f"the state {one.output}", mine[_given(one)], state[one.input])
            if made.shape[2] != count * self.samples_per_frame():
                raise ExportError(
                    f"the published codec makes {made.shape[2]} samples of {count} frames and"
                    f" {self.samples_per_frame()} of one: a release that is not known here"
                )

    def _empty_state(self) -> dict[str, np.ndarray]:
        kinds = {FLOAT: np.float32, INT32: np.int32}
        return {one.input: np.full(one.shape, one.fill, kinds[one.kind]) for one in self.published.states}

    def _random_rows(self, rng: np.random.Generator, count: int) -> np.ndarray:
        rows = rng.integers(0, self.published.codebook_size, (1, count, self.width), dtype=np.int32)
        rows[..., 0] = rng.integers(0, self.published.sizes["vocab_size"], (1, count))
        rows[:, ::2, 1:] = self.published.sizes["audio_pad_token_id"]
        return rows


def open_checkpoint(checkpoint: Path) -> Family:
    """The family of a folder with the makers' published graphs."""
    return Family(read_published(checkpoint))


def random_family(size: str, seed: int) -> Family:
    """A family with random weights: a publication that the makers' exporter writes."""
    from . import moss_tts_nano_makers as makers

    temporary = tempfile.TemporaryDirectory(prefix="antiphon_export.")
    makers.publish(Path(temporary.name), makers.SIZES[size], seed)
    return Family(read_published(Path(temporary.name)), size, temporary, makers)


class Decoding:
    """`decode` in Python, for one row whose cache grows."""

    def __init__(self, path: Path, family: Family) -> None:
        self.session = open_graph(path)
        self.length = 0
        sizes = family.published.sizes
        empty = np.zeros((1, 0, sizes["global_heads"], sizes["head_dim"]), np.float32)
        self.cache = {port.name: empty for port in self.session.get_inputs() if port.name.startswith("past.")}

    def run(self, rows: np.ndarray) -> np.ndarray:
        """The hidden state [1, 1, H] behind these rows [1, S, W]."""
        self.length += rows.shape[1]
        feed = {
            "inputs_embeds": rows.astype(np.float32),
            "lengths": np.array([self.length - 1], np.int32),
            **self.cache,
        }
        hidden, *present = self.session.run(
            ["hidden", *(name.replace("past.", "present.") for name in self.cache)], feed
        )
        self.cache = dict(zip(self.cache, present))
        return hidden


class _Comparison:
    """The graphs of a folder against the makers' runtime on the publication they were made of."""

    def __init__(self, family: Family, folder: Path) -> None:
        self.family = family
        self.folder = folder
        self.made = family.makers.runtime(family.published.folder.parent)
        self.rng = np.random.default_rng(5)

    def results(self, frames: int) -> list[tuple[str, float, float]]:
        published = self.family.published
        audio = _recording(int(1.7 * published.rate_hz), published.rate_hz, self.rng)
        reference = self.family.makers.encoded(self.made, audio)
        condition = open_graph(self.folder / "condition.onnx")
        ours = condition.run(None, {"audio": audio[None]})[0][0]
        text_ids = self.made.encode_text(SENTENCES[0])
        rows = self.made.build_voice_clone_request_rows(reference.tolist(), text_ids)
        prompt = open_graph(self.folder / "prompt.onnx")
        feed = {"text_ids": np.array([text_ids], np.int64), "codes": reference[None]}
        embeds = prompt.run(None, feed)[0]
        different = [
            text for text in SENTENCES if ids(self.folder / "tokenizer.json", text) != self.made.encode_text(text)
        ]
        return [
            (f"ids of {len(SENTENCES)} sentences: different ones", float(len(different)), 0.0),
            ("frames of a recording: different codes", _unequal(ours, reference), 0.0),
            ("rows of a prompt: different ids", _unequal(embeds[0], np.array(rows["inputIds"])), 0.0),
            *self._frames(embeds, rows, frames),
            *self._sound(),
        ]

    def _frames(self, embeds: np.ndarray, rows: dict, count: int) -> list[tuple[str, float, float]]:
        numbers = self.rng.random((count, self.family.width)).astype(np.float32)
        theirs = self.family.makers.frames(self.made, rows, count, numbers, with_seen=True)
        decode, frame = Decoding(self.folder / "decode.onnx", self.family), open_graph(self.folder / "frame.onnx")
        seen = np.zeros((1, self.family.codebooks, self.family.published.codebook_size), np.int32)
        worst = codes = ends = flags = 0.0
        for step in range(count):
            hidden = decode.run(embeds)[:, 0]
            flags += _unequal(seen[0], theirs["seen"][step])
            feed = {"hidden": hidden, "uniform": numbers[step : step + 1], "seen": seen}
            drawn, goes_on, row = frame.run(["codes", "goes_on", "embeds"], feed)
            worst = max(worst, float(np.abs(hidden[0] - theirs["hidden"][step]).max()))
            codes += _unequal(drawn[0], theirs["codes"][step])
            ends += float(goes_on[0] != theirs["goes_on"][step])
            seen[0, np.arange(self.family.codebooks), drawn[0]] = 1
            embeds = row[:, None]
        return [
            (f"{count} frames with random numbers: different codes", codes, 0.0),
            (f"{count} frames: different flags of what was drawn", flags, 0.0),
            (f"{count} frames, {int((~theirs['goes_on']).sum())} of them ends: different ends", ends, 0.0),
            (f"{count} frames: hidden states", worst, TOLERANCE),
        ]

    def _sound(self) -> list[tuple[str, float, float]]:
        published = self.family.published
        codes = self.rng.integers(0, published.codebook_size, (1, 40, self.family.codebooks))
        whole = self.family.makers.decoded(self.made, codes[0])
        vocode = open_graph(self.folder / "vocode.onnx")
        results = []
        for cuts in ([0, 40], [0, 2, 5, 9, 17, 25, 33, 40], list(range(41))):
            empty = self.family._empty_state()
            state, sounds = {_given(one): empty[one.input] for one in published.states}, []
            for start, end in zip(cuts, cuts[1:]):
                names = ["waveform", *(_left(one) for one in published.states)]
                sound, *left = vocode.run(names, {"codes": codes[:, start:end], **state})
                state = {_given(one): value for one, value in zip(published.states, left)}
                sounds.append(sound[0])
            worst = float(np.abs(np.concatenate(sounds, 1) - whole).max())
            results.append((f"sound of 40 frames in {len(cuts) - 1} chunks", worst, TOLERANCE))
        return results


def _only_fp32(write: Callable[[Path], None]) -> Callable[[Path, str], None]:
    def written(path: Path, precision: str) -> None:
        if precision != "fp32":
            raise ExportError(
                f"{NAME} has no {precision}: the makers publish its graphs in fp32; leave --{precision} out"
            )
        write(path)

    return written


def _given(state: State) -> str:
    return f"state.{state.input}"


def _left(state: State) -> str:
    return f"next.{state.input}"


def _published_sound(
    session: Any, published: Published, codes: np.ndarray, state: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """What the published codec makes of frames, and the state that it leaves."""
    feed = {"audio_codes": codes.astype(np.int32), "audio_code_lengths": np.array([codes.shape[1]], np.int32), **state}
    names = ["audio", "audio_lengths", *(one.output for one in published.states)]
    sound, lengths, *left = session.run(names, feed)
    return sound[:, :, : int(lengths.reshape(-1)[0])], {one.input: value for one, value in zip(published.states, left)}


def _same(path: Path, what: str, ours: np.ndarray, theirs: np.ndarray) -> None:
    """Refuses a graph that differs from the published one."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if ours.shape != theirs.shape:
        raise ExportError(
            f"{path.name}: {what} has the shape {list(ours.shape)}, and {list(theirs.shape)} by the published graph:"
            " the publication is of a release that is not known here"
        )
    worst = float(np.abs(ours - theirs).max(initial=0.0))
    most = max(float(np.abs(theirs).max(initial=0.0)), 1.0)
    if not worst <= TOLERANCE * most:
        raise ExportError(
            f"{path.name}: {what} differs by {worst:.3g} from that of the published graph: the publication is of a"
            " release that is not known here"
        )


def _unequal(ours: np.ndarray, theirs: np.ndarray) -> float:
    """How many numbers differ; all where the shapes do."""
    if ours.shape != theirs.shape:
        return float(max(ours.size, theirs.size, 1))
    return float((ours != theirs).sum())


def _check_memory(path: Path) -> None:
    data = sum(file.stat().st_size for file in (path, *path.parent.glob("*.data")) if file.is_file())
    available = available_memory()
    if available is not None and available < COPIES * data:
        raise ExportError(
            f"too little memory: the conversion needs about {COPIES * data / 2**30:.1f} GiB, and"
            f" {available / 2**30:.1f} GiB are available: close other programs, or convert on another machine"
        )


def _recording(samples: int, rate_hz: int, rng: np.random.Generator) -> np.ndarray:
    """What sounds a little like a voice, in the steps of 16 bits."""
    time = np.arange(samples) / rate_hz
    pitch = 140 + 30 * np.sin(2 * np.pi * 2.3 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / rate_hz
    sound = sum(np.sin(n * phase + rng.uniform(0, 6)) / n for n in range(1, 12))
    sound = sound * (0.4 + 0.3 * np.sin(2 * np.pi * 3.1 * time)) + 0.02 * rng.normal(size=samples)
    return (np.round(np.clip(0.3 * sound, -1, 1) * 32767) / 32768).astype(np.float32)


def _write_wav(path: Path, audio: np.ndarray, rate_hz: int) -> None:
    import wave

    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(np.round(audio * 32768).astype("<i2").tobytes())
