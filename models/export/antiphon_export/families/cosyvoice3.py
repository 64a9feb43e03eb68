"""The family Fun-CosyVoice3: a Qwen2 language model that speaks in tokens, a flow to mel frames, and a HiFT vocoder.

The command line uses it. An export reads the checkpoint's own files, and executes nothing in them; the makers' code is
imported for the tokenizer's special tokens, which are listed nowhere else, for `check` and for `golden`. The graphs of the
sound are described in `cosyvoice3_vocode` and `cosyvoice3_condition`.

**The prompt.** The makers put a system text before everything, and <|endofprompt|> behind it. With a transcript the language
model goes on from the recording's own tokens; without one, and with instructions, it gets none of them (their modes
zero-shot, cross-lingual and instruct2). With instructions the transcript is left out:

    transcript      sos, system, transcript, text, task, tokens of the recording
    neither         sos, system, text, task
    instructions    sos, system with the instructions, text, task
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping

import numpy as np
import torch
import yaml
from onnx import TensorProto

from ..errors import ExportError
from ..files import Inline, available_memory, check_tensor_types, read_json, save_model
from ..transformer import StackConfig, build_decode, build_embed, decode_section
from . import cosyvoice3_condition as condition
from .cosyvoice3_graph import Net
from .cosyvoice3_vocode import MEL_AHEAD, FlowConfig, HiftConfig, VocodeWeights, build, flow_weights, hift_weights

NAME = "cosyvoice3"
TITLE = "Fun-CosyVoice3 0.5B"
LICENCE = "Apache-2.0"
LICENCE_NOTE = (
    "The Apache License 2.0 allows any use, commercial too, with its text and notices kept. Cloning somebody's voice needs that"
    " person's consent whatever the licence says."
)
PACKAGE = "a clone of FunAudioLLM/CosyVoice, with its submodules"

SYSTEM = "You are a helpful assistant."
END_OF_PROMPT = "<|endofprompt|>"
TEXT = f"{SYSTEM}{END_OF_PROMPT}{{text}}"
TRANSCRIPT = "{transcript}"
INSTRUCTIONS = f"{SYSTEM} {{instructions}}{END_OF_PROMPT}"
# The id that the makers' code expects it to have.
END_OF_PROMPT_ID = 151646
# Rows of the speech table behind the tokens: begin, end, task, fill and some that are not in use. Each ends the speech.
SPECIAL_ROWS = 200
LANGUAGES = ["en", "zh", "ja", "ko", "de", "es", "fr", "it", "ru"]
FILES = ["llm.pt", "flow.pt", "hift.pt", "campplus.onnx", "speech_tokenizer_v3.onnx"]
# Of the language model that it was made of: the tokenizer is read from there.
FILES += [f"CosyVoice-BlankEN/{name}" for name in ("config.json", "vocab.json", "merges.txt")]
# Tokens of the speech before a chunk that the flow computes again: whole blocks, less what lies behind each chunk.
# Tokens that a text may use, beside those in square brackets: the makers' tags for laughing and stressed words.
MARKS = ("<strong>", "</strong>", "<laughter>", "</laughter>")
# The speech tokens of silence, by the makers (cosyvoice/cli/model.py, CosyVoice3Model).
SILENT_TOKENS = (1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323)
LEFT_CONTEXT_BLOCKS = 12

Weights = Mapping[str, np.ndarray]


@dataclass
class Parts:
    """A checkpoint, read."""

    llm: Weights
    flow: Weights
    hift: Weights
    speaker: Path
    """campplus.onnx."""
    tokens: Path
    """speech_tokenizer_v3.onnx."""
    heads: int
    kv_heads: int
    rope_theta: float
    norm_eps: float
    end_of_prompt: int
    flow_config: FlowConfig
    hift_config: HiftConfig
    flow_noise: np.ndarray
    source_noise: np.ndarray
    sampling: Mapping[str, float]
    positions: int
    capacity: int


class Family:
    """See `families`."""

    fp16_roles = ("prompt", "embed", "decode", "vocode")

    def __init__(self, parts: Parts, tokenizer: Callable[[Path], None], makers: Callable[[], Any]) -> None:
        self.parts = parts
        self._tokenizer = tokenizer
        self._makers = makers
        self._made: Any = None
        self._vocode_weights: VocodeWeights | None = None
        self.text_table = parts.llm["llm.model.model.embed_tokens.weight"]
        self.speech_table = parts.llm["speech_embedding.weight"]
        self.head = parts.llm["llm_decoder.weight"]
        self.sounds = self.speech_table.shape[0] - SPECIAL_ROWS
        self.title = TITLE
        if self.head.shape != self.speech_table.shape:
            raise ExportError(
                f"llm.pt has a head of {self.head.shape[0]} rows and a speech table of {self.speech_table.shape[0]}: they should"
                " be equal; it is of another model"
            )
        if parts.flow["input_embedding.weight"].shape[0] < self.sounds:
            raise ExportError(
                f"flow.pt knows {parts.flow['input_embedding.weight'].shape[0]} speech tokens and llm.pt speaks {self.sounds}:"
                " they are of different models"
            )

    def graphs(self) -> dict[str, Callable[[Path, str], None]]:
        return {
            "condition": self._condition,
            "prompt": lambda path, precision: self._prompt(precision).save(path),
            "decode": self._decode,
            "embed": lambda path, precision: build_embed(self.speech_table, precision).save(path),
            "vocode": lambda path, precision: self._vocode(precision).save(path),
        }

    def contract(self) -> dict[str, Any]:
        parts, flow, hift = self.parts, self.parts.flow_config, self.parts.hift_config
        behind = MEL_AHEAD // flow.mel_per_token
        block, sampling = flow.block_tokens, parts.sampling
        silent = [token for token in SILENT_TOKENS if token < self.sounds]
        return {
            "format": 1,
            "name": NAME,
            "title": self.title,
            "licence": LICENCE,
            "languages": LANGUAGES,
            "rate_hz": hift.rate_hz,
            "samples_per_token": flow.mel_per_token * hift.hop_samples,
            "watermark": "none",
            "text": {"tokenizer": "tokenizer.json", "vocabulary": 0, "template": "{text}", "marks": list(MARKS)},
            "condition": {
                "file": "condition{precision}.onnx",
                "audio": "audio",
                "min_seconds": 1.0,
                "use_seconds": 20.0,
            },
            "prompt": {
                "file": "prompt{precision}.onnx",
                "voice": ["prompt_codes"],
                "embeds": "embeds",
                "ids": [
                    {"port": "text_ids", "template": TEXT},
                    {"port": "transcript_ids", "template": TRANSCRIPT},
                    {"port": "instruction_ids", "template": INSTRUCTIONS},
                ],
            },
            "embed": {"file": "embed{precision}.onnx", "ids": "ids", "embeds": "embeds"},
            "decode": decode_section(
                layers=self._stack().layers,
                heads=parts.kv_heads,
                head_size=self._stack().head_size,
                context=parts.positions,
                capacity=parts.capacity,
                hidden=False,
            ),
            "vocode": {
                "file": "vocode{precision}.onnx",
                "tokens": "codes",
                "carry": ["prompt_codes", "prompt_mel", "speaker"],
                "waveform": "waveform",
                "with_prompt": False,
                "n_before": "n_before",
                "is_last": "is_last",
                "state": [
                    {"input": f"state.{n}", "output": f"next.{n}", "fill": 0.0} for n in ("position", "mel", "hift")
                ],
            },
            "tokens": {
                "vocabulary": self.head.shape[0],
                "sounds": self.sounds,
                "start": -1,
                "stop": self.sounds,
                "stop_last": self.head.shape[0] - 1,
                # Of the makers' silent tokens only the first five in a row are spoken (cosyvoice/cli/model.py).
                "silence": silent[0] if silent else -1,
                **({"also_silence": silent[1:]} if silent[1:] else {}),
                "codebooks": 1,
            },
            # The makers fill up to top_p of the whole distribution, with top_k tokens at most: top_p comes first.
            "sampling": {
                "order": ["temperature", "top_p", "top_k"],
                "temperature": 1.0,
                "top_k": int(sampling["top_k"]),
                "top_p": float(sampling["top_p"]),
                "repetition_penalty": 1.0,
                "repetition_window": 0,
                "redraw": Inline(window=int(sampling["win_size"]), share=float(sampling["tau_r"]), excludes=True),
            },
            # 25 tokens a second. The makers allow 2 to 20 for a token of the text, which is about 1.5 characters in Chinese and
            # 4.5 in English: 13 and 4.4 for a character. Slow Chinese needs 7.
            "length": {
                "max_tokens": min(1000, parts.capacity * 5 // 8),
                "min_tokens": 2,
                "max_tokens_per_char": 10.0,
                "max_silence": 5,
                "end_silence": 250,
            },
            # The makers' chunks end with a block of the flow: 25, 75, 175, 275. The sound ends four tokens before.
            "chunks": {
                "first": block - behind,
                "growth": 2.4,
                "most": 4 * block,
                "look_ahead": flow.look_ahead + behind,
                "left_context": LEFT_CONTEXT_BLOCKS * block - behind,
                "cross_fade_ms": 0,
            },
        }

    def write_tokenizer(self, path: Path) -> None:
        self._tokenizer(path)

    def check(self, folder: Path) -> list[tuple[str, float, float]]:
        from .cosyvoice3_check import compare

        return compare(self, Path(folder))

    def golden(self, folder: Path) -> dict[str, Any]:
        from .cosyvoice3_check import golden

        return golden(self, Path(folder))

    @property
    def makers(self) -> Any:
        """The makers' objects with these weights."""
        if self._made is None:
            self._made = self._makers()
        return self._made

    def _condition(self, path: Path, precision: str) -> None:
        speaker_size = self.parts.flow["spk_embed_affine_layer.weight"].shape[1]
        save_model(condition.build(path, self.parts.speaker, self.parts.tokens, speaker_size), path)
        condition.verify(path, self.parts.speaker, self.parts.tokens)

    def _prompt(self, precision: str) -> Net:
        """See the module."""
        net = Net("prompt", precision)
        ids = {
            name: net.input(f"{name}_ids", TensorProto.INT64, [1, f"{name}_length"])
            for name in ("text", "transcript", "instruction")
        }
        codes = net.input("prompt_codes", TensorProto.INT64, [1, "prompt_tokens"])
        hidden = self.speech_table.shape[1]
        net.output("embeds", TensorProto.FLOAT, [1, "columns", hidden])
        is_end = net.op("Equal", [ids["text"], net.ints(self.parts.end_of_prompt)])
        end = net.op("ArgMax", [net.cast(is_end, TensorProto.INT32)], axis=1, keepdims=0)
        end = net.add(end, net.ints([1]))
        one = net.ints([1])
        is_instructed = net.op("Min", [net.size(ids["instruction"], 1), one])
        is_free = net.sub(one, is_instructed)
        has_transcript = net.mul(is_free, net.op("Min", [net.size(ids["transcript"], 1), one]))
        system = net.cut(ids["text"], 0, net.mul(is_free, end))
        transcript = net.cut(ids["transcript"], 0, net.mul(has_transcript, net.size(ids["transcript"], 1)))
        text = net.concat([ids["instruction"], system, transcript, net.cut(ids["text"], end)], 1)
        codes = net.cut(codes, 0, net.mul(has_transcript, net.size(codes, 1)))
        begin, task = (net.ints([[self.sounds + place]]) for place in (0, 2))
        table = self.speech_table
        columns = [
            net.lookup(table, begin),
            net.lookup(self.text_table, text),
            net.lookup(table, net.concat([task, codes], 1)),
        ]
        net.result(net.concat(columns, 1), "embeds")
        return net

    def _stack(self) -> StackConfig:
        llm, parts = self.parts.llm, self.parts
        prefix = "llm.model.model.layers."
        layers = 1 + max(int(name[len(prefix) :].split(".")[0]) for name in llm if name.startswith(prefix))
        head_size = llm[f"{prefix}0.self_attn.q_proj.weight"].shape[0] // parts.heads
        return StackConfig(
            layers=layers,
            hidden=self.speech_table.shape[1],
            heads=parts.heads,
            kv_heads=parts.kv_heads,
            head_size=head_size,
            intermediate=llm[f"{prefix}0.mlp.gate_proj.weight"].shape[0],
            norm_eps=parts.norm_eps,
            rope_theta=parts.rope_theta,
            positions=parts.positions,
            qkv_bias=True,
        )

    def _decode(self, path: Path, precision: str) -> None:
        llm, config = self.parts.llm, self._stack()
        weights = {"head": self.head, "norm": llm["llm.model.model.norm.weight"]}
        for i in range(config.layers):
            prefix, name = f"llm.model.model.layers.{i}.", f"layers.{i}."
            weights[name + "input_norm"] = llm[prefix + "input_layernorm.weight"]
            weights[name + "post_norm"] = llm[prefix + "post_attention_layernorm.weight"]
            for part in "qkv":
                weights[name + part] = llm[f"{prefix}self_attn.{part}_proj.weight"]
                weights[f"{name}{part}_bias"] = llm[f"{prefix}self_attn.{part}_proj.bias"]
            weights[name + "o"] = llm[prefix + "self_attn.o_proj.weight"]
            for part in ("gate", "up", "down"):
                weights[name + part] = llm[f"{prefix}mlp.{part}_proj.weight"]
        build_decode(config, weights, precision).save(path)

    def _vocode(self, precision: str, with_mel: bool = False) -> Net:
        if self._vocode_weights is None:
            self._vocode_weights = VocodeWeights(
                flow_weights(self.parts.flow, self.parts.flow_config.steps),
                hift_weights(self.parts.hift),
                self.parts.flow_noise,
                self.parts.source_noise,
            )
        return build(self.parts.flow_config, self.parts.hift_config, self._vocode_weights, precision, with_mel)


def open_checkpoint(checkpoint: Path) -> Family:
    """Reads a checkpoint's folder."""
    checkpoint = Path(checkpoint)
    if not checkpoint.is_dir():
        raise ExportError(f"{checkpoint} is no folder: name the folder of the downloaded checkpoint")
    if not (checkpoint / "cosyvoice3.yaml").is_file():
        for file, name in {"cosyvoice2.yaml": "CosyVoice2", "cosyvoice.yaml": "CosyVoice (the first)"}.items():
            if (checkpoint / file).is_file():
                raise ExportError(f"{checkpoint} is a checkpoint of {name}: {NAME} takes Fun-CosyVoice3-0.5B")
        raise ExportError(f"{checkpoint} is no checkpoint of CosyVoice3: it has no cosyvoice3.yaml")
    missing = [name for name in FILES if not (checkpoint / name).is_file()]
    if missing:
        raise ExportError(f"{checkpoint} lacks {', '.join(missing)}: download the whole checkpoint")
    settings = _read_settings(checkpoint / "cosyvoice3.yaml")
    qwen = read_json(checkpoint / "CosyVoice-BlankEN" / "config.json", "the language model's configuration")
    if qwen.get("model_type") != "qwen2":
        raise ExportError(f"the language model is {qwen.get('model_type')!r}, and {NAME} knows qwen2")
    if qwen.get("rope_scaling"):
        raise ExportError("the language model scales its positions (rope_scaling), which is not supported")
    files = [checkpoint / name for name in ("llm.pt", "flow.pt", "hift.pt")]
    # In memory: the weights, their tables, and what a graph holds of them while it is written.
    needed = (
        int(2.5 * sum(file.stat().st_size for file in files)) + 4 * (checkpoint / FILES[4]).stat().st_size + (1 << 30)
    )
    available = available_memory()
    if available is not None and available < needed:
        raise ExportError(
            f"too little memory: the export needs about {needed / 2**30:.1f} GiB, and {available / 2**30:.1f} GiB are available:"
            " close other programs, or export on another machine"
        )
    llm, flow, hift = (_read_weights(file) for file in files)
    try:
        size = llm["speech_embedding.weight"].shape[0] - SPECIAL_ROWS
        heads, kv_heads = int(qwen["num_attention_heads"]), int(qwen["num_key_value_heads"])
        hidden = llm["llm.model.model.layers.0.self_attn.q_proj.weight"].shape[0]
        if size != settings.speech_tokens or hidden != qwen["hidden_size"]:
            raise ExportError(
                f"llm.pt has {size} speech tokens and heads of {hidden} numbers together; cosyvoice3.yaml says"
                f" {settings.speech_tokens}, and CosyVoice-BlankEN/config.json {qwen['hidden_size']}: they are of different models"
            )
        torch.manual_seed(0)
        parts = Parts(
            llm=llm,
            flow=flow,
            hift=hift,
            speaker=checkpoint / "campplus.onnx",
            tokens=checkpoint / "speech_tokenizer_v3.onnx",
            heads=heads,
            kv_heads=kv_heads,
            rope_theta=float(qwen.get("rope_theta", 10000.0)),
            norm_eps=float(qwen.get("rms_norm_eps", 1e-6)),
            end_of_prompt=END_OF_PROMPT_ID,
            flow_config=settings.flow,
            hift_config=settings.hift,
            # What the makers draw with this seed. The noise of the source they draw anew in each process.
            flow_noise=torch.randn([1, settings.flow.mel, 50 * 300])[0].numpy(),
            source_noise=np.random.default_rng(0).random((30 * settings.hift.rate_hz, 9), np.float32),
            sampling=settings.sampling,
            positions=4096,
            capacity=2048,
        )
        _check_flow(parts)
        return Family(parts, lambda path: _write_tokenizer(checkpoint, path), lambda: _makers_of(parts))
    except KeyError as error:
        raise ExportError(f"the checkpoint lacks {error}: it is of another model than {TITLE}") from error


def random_family(size: str, seed: int) -> Family:
    """A model of random weights in the makers' classes, and small graphs in place of the makers' own."""
    import tempfile

    from . import cosyvoice3_makers as makers

    if size not in ("tiny", "true"):
        raise ExportError(f"size {size!r}: tiny or true")
    dimensions = makers.TINY if size == "tiny" else makers.TRUE
    made = makers.build(dimensions, seed)
    folder = tempfile.TemporaryDirectory(prefix="antiphon_export.")
    speaker, tokens = makers.write_stand_ins(Path(folder.name), dimensions, seed)
    is_tiny = size == "tiny"
    parts = Parts(
        llm=makers.weights_of(made.llm),
        flow=makers.weights_of(made.flow),
        hift=makers.weights_of(made.hift),
        speaker=speaker,
        tokens=tokens,
        heads=dimensions.heads,
        kv_heads=dimensions.kv_heads,
        rope_theta=1e6,
        norm_eps=1e-6,
        end_of_prompt=makers.TINY_TOKENS.index(END_OF_PROMPT) + 256 if is_tiny else END_OF_PROMPT_ID,
        flow_config=FlowConfig(heads=dimensions.dit_heads),
        hift_config=HiftConfig(resblock_kernels=dimensions.resblock_kernels, dilations=dimensions.dilations),
        flow_noise=made.flow.decoder.rand_noise.table[0].numpy().T,
        source_noise=made.hift.m_source.l_sin_gen.sine_waves.table[0].numpy(),
        sampling={"top_p": 0.8, "top_k": 25, "win_size": 10, "tau_r": 0.1},
        positions=640 if is_tiny else 4096,
        capacity=640 if is_tiny else 2048,
    )
    family = Family(parts, makers.write_tiny_tokenizer, lambda: made)
    # Lives as long as the family.
    family.folder = folder
    return family


@dataclass(frozen=True)
class Settings:
    """What cosyvoice3.yaml says and the weights do not."""

    speech_tokens: int
    sampling: Mapping[str, float]
    flow: FlowConfig
    hift: HiftConfig


def _read_settings(path: Path) -> Settings:
    """The makers' configuration, read as data: nothing in it is executed."""

    class Loader(yaml.SafeLoader):
        pass

    def plain(loader: Any, tag: str, node: Any) -> Any:
        if isinstance(node, yaml.MappingNode):
            return {"!": tag, **loader.construct_mapping(node, deep=True)}
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node, deep=True)
        return f"!{tag} {loader.construct_scalar(node)}"

    Loader.add_multi_constructor("!", plain)
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader)
        llm, flow, hift = values["llm"], values["flow"], values["hift"]
        for part, wanted in ((llm, "CosyVoice3LM"), (flow, "CausalMaskedDiffWithDiT"), (hift, "CausalHiFTGenerator")):
            if not str(part.get("!", "")).endswith(f".{wanted}"):
                raise ExportError(
                    f"{path}: {part.get('!')!r} stands where {wanted} is expected: it is of another model"
                )

        def number(value: Any) -> Any:
            """A number, or the one that a reference names."""
            if isinstance(value, str) and value.startswith("!ref <") and value.endswith(">"):
                return number(values[value[len("!ref <") : -1]])
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ExportError(f"{path}: {value!r} stands where a number is expected")
            return value

        estimator, parameters = flow["decoder"]["estimator"], flow["decoder"]["cfm_params"]["content"]
        if parameters.get("t_scheduler") != "cosine":
            raise ExportError(f"{path}: t_scheduler {parameters.get('t_scheduler')!r}; cosine is supported")
        sampling = llm["sampling"]
        if not str(sampling.get("!", "")).endswith(".ras_sampling"):
            raise ExportError(f"{path}: sampling {sampling.get('!')!r}; ras_sampling is supported")
        dilations = {
            tuple(entry) for key in ("resblock_dilation_sizes", "source_resblock_dilation_sizes") for entry in hift[key]
        }
        if len(dilations) != 1:
            raise ExportError(f"{path}: dilations that differ from block to block are not supported")
        if number(hift["conv_pre_look_right"]) != 4 or number(hift["nb_harmonics"]) != 8:
            raise ExportError(f"{path}: conv_pre_look_right 4 and nb_harmonics 8 are supported")
        if number(hift["sampling_rate"]) != condition.RATE_HZ:
            raise ExportError(f"{path}: a rate of {hift['sampling_rate']} Hz; {condition.RATE_HZ} is supported")
        return Settings(
            speech_tokens=int(number(llm["speech_token_size"])),
            sampling={name: number(sampling[name]) for name in ("top_p", "top_k", "win_size", "tau_r")},
            flow=FlowConfig(
                heads=int(number(estimator["heads"])),
                mel=int(number(flow["output_size"])),
                mel_per_token=int(number(flow["token_mel_ratio"])),
                look_ahead=int(number(flow["pre_lookahead_len"])),
                block_tokens=int(number(values["chunk_size"])),
                guidance=float(number(parameters["inference_cfg_rate"])),
            ),
            hift=HiftConfig(
                rate_hz=int(number(hift["sampling_rate"])),
                upsample=tuple(hift["upsample_rates"]),
                n_fft=int(number(hift["istft_params"]["n_fft"])),
                hop=int(number(hift["istft_params"]["hop_len"])),
                resblock_kernels=tuple(hift["resblock_kernel_sizes"]),
                dilations=dilations.pop(),
                sine_amplitude=float(number(hift["nsf_alpha"])),
                noise=float(number(hift["nsf_sigma"])),
                voiced_hz=float(number(hift["nsf_voiced_threshold"])),
                slope=float(number(hift["lrelu_slope"])),
                limit=float(number(hift["audio_limit"])),
            ),
        )
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise ExportError(f"{path} cannot be read: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ExportError(f"{path} lacks {error}: it is of another model than {TITLE}") from error


def _read_weights(path: Path) -> dict[str, np.ndarray]:
    """Tensors of a PyTorch file, as float32; nothing in it is executed."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        raise ExportError(f"{path} is no file of PyTorch weights: {error}; download it again") from error
    if not isinstance(state, dict):
        raise ExportError(f"{path} holds no dictionary of weights")
    # What a training run leaves beside the weights.
    tensors = {name: tensor for name, tensor in state.items() if isinstance(tensor, torch.Tensor)}
    # Counters of batch normalisation are no weights.
    tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith("num_batches_tracked")}
    check_tensor_types(tensors, path)
    return {name: tensor.float().numpy() for name, tensor in tensors.items()}


def _check_flow(parts: Parts) -> None:
    """Refuses a flow whose layers are not those of the graph."""
    flow, config = parts.flow, parts.flow_config
    size = flow["decoder.estimator.proj_out.weight"].shape[1]
    inner = flow["decoder.estimator.transformer_blocks.0.attn.to_q.weight"].shape[0]
    rotated = 2 * flow["decoder.estimator.rotary_embed.inv_freq"].shape[0]
    if inner % config.heads or inner // config.heads != rotated:
        raise ExportError(
            f"flow.pt has {inner} attention numbers and rotates {rotated}; with the {config.heads} heads of cosyvoice3.yaml it"
            " should rotate those of one head"
        )
    if flow["decoder.estimator.input_embed.proj.weight"].shape != (size, 4 * config.mel):
        raise ExportError(
            "flow.pt takes other inputs than noise, recording, tokens and speaker: it is of another model"
        )
    if flow["pre_lookahead_layer.conv1.weight"].shape[2] != config.look_ahead + 1:
        raise ExportError(f"flow.pt does not look {config.look_ahead} tokens ahead, as cosyvoice3.yaml says")
    if any(name.endswith("long_skip_connection.weight") for name in flow):
        raise ExportError("flow.pt has a skip connection around all layers, which is not supported")


def _makers_of(parts: Parts) -> Any:
    from . import cosyvoice3_makers as makers

    return makers.load(parts)


def _write_tokenizer(checkpoint: Path, path: Path) -> None:
    """tokenizer.json of the checkpoint's tokenizer and the special tokens that the makers' code adds."""
    from . import cosyvoice3_makers as makers

    tokenizer = makers.tokenizer(checkpoint / "CosyVoice-BlankEN")
    found = tokenizer.convert_tokens_to_ids(END_OF_PROMPT)
    if found != END_OF_PROMPT_ID:
        raise ExportError(
            f"the tokenizer gives {END_OF_PROMPT} the id {found} and the model expects {END_OF_PROMPT_ID}: the makers' code at"
            " --code is of another version than the checkpoint"
        )
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise ExportError("the checkpoint's tokenizer has no fast form: install the Python module tokenizers")
    tokenizer.backend_tokenizer.save(str(path))
