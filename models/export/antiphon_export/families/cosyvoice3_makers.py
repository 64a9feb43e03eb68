"""The makers' own classes of CosyVoice3, for comparisons: imported from their code, which `--code` names, and filled with a
checkpoint or with random weights; their tokenizer, for exports; and small stand-ins for what only a checkpoint has.

Nothing of the makers' code is copied here. What their modules import and inference does not use (training, downloads, text
normalisation) is replaced by empty modules where it is not installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
import types
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable

import numpy as np

from ..errors import ExportError


@dataclass(frozen=True)
class Dimensions:
    """Sizes of the parts of a model with random weights."""

    text_tokens: int
    speech_tokens: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    look_ahead_channels: int
    dit_size: int
    dit_layers: int
    dit_heads: int
    dit_head_size: int
    hift_channels: int
    resblock_kernels: tuple[int, ...]
    source_kernels: tuple[int, ...]
    dilations: tuple[int, ...]
    pitch_channels: int
    speaker: int
    source_noise_frames: int
    """Mel frames after which the noise of the source repeats."""
    flow_noise_frames: int


TINY = Dimensions(
    text_tokens=272,
    speech_tokens=60,
    hidden=32,
    layers=2,
    heads=2,
    kv_heads=1,
    intermediate=48,
    look_ahead_channels=12,
    dit_size=32,
    dit_layers=2,
    dit_heads=2,
    dit_head_size=16,
    hift_channels=8,
    resblock_kernels=(3, 5),
    source_kernels=(3, 3, 5),
    dilations=(1, 3),
    pitch_channels=8,
    speaker=24,
    source_noise_frames=8,
    flow_noise_frames=90,
)
TRUE = Dimensions(
    text_tokens=151936,
    speech_tokens=6561,
    hidden=896,
    layers=24,
    heads=14,
    kv_heads=2,
    intermediate=4864,
    look_ahead_channels=1024,
    dit_size=1024,
    dit_layers=22,
    dit_heads=16,
    dit_head_size=64,
    hift_channels=512,
    resblock_kernels=(3, 7, 11),
    source_kernels=(7, 7, 11),
    dilations=(1, 3, 5),
    pitch_channels=512,
    speaker=192,
    source_noise_frames=1500,
    flow_noise_frames=15000,
)


@dataclass
class Makers:
    """The makers' objects: `model` is their CosyVoice3Model with `llm`, `flow` and `hift`."""

    model: Any
    mel_spectrogram: Callable
    frontend: Any

    @property
    def llm(self) -> Any:
        return self.model.llm

    @property
    def flow(self) -> Any:
        return self.model.flow

    @property
    def hift(self) -> Any:
        return self.model.hift


def import_makers() -> types.SimpleNamespace:
    """The makers' classes. Their code must be importable: see `--code`."""
    spec = importlib.util.find_spec("cosyvoice")
    if spec is None or not spec.submodule_search_locations:
        raise ExportError(
            "the makers' code is not found: name the folder of a clone of FunAudioLLM/CosyVoice with --code (an export of a"
            " checkpoint needs none, comparisons do)"
        )
    root = Path(list(spec.submodule_search_locations)[0]).parent
    matcha = root / "third_party" / "Matcha-TTS"
    if not (matcha / "matcha" / "utils" / "audio.py").is_file():
        raise ExportError(f"{matcha} is empty: clone the makers' code with its submodules (git clone --recursive)")
    _provide_matcha(matcha / "matcha")
    level = logging.getLogger().level
    try:
        found = types.SimpleNamespace(
            **{
                name: getattr(importlib.import_module(module), name)
                for name, module in {
                    "CosyVoice3LM": "cosyvoice.llm.llm",
                    "Qwen2Encoder": "cosyvoice.llm.llm",
                    "CausalMaskedDiffWithDiT": "cosyvoice.flow.flow",
                    "CausalConditionalCFM": "cosyvoice.flow.flow_matching",
                    "DiT": "cosyvoice.flow.DiT.dit",
                    "PreLookaheadLayer": "cosyvoice.transformer.upsample_encoder",
                    "CausalHiFTGenerator": "cosyvoice.hifigan.generator",
                    "CausalConvRNNF0Predictor": "cosyvoice.hifigan.f0_predictor",
                    "CosyVoice3Model": "cosyvoice.cli.model",
                    "CosyVoiceFrontEnd": "cosyvoice.cli.frontend",
                    "mel_spectrogram": "matcha.utils.audio",
                }.items()
            }
        )
    except ImportError as error:
        raise ExportError(f"the makers' code at {root} needs the Python module {error.name!r}: install it") from error
    finally:
        # Their modules set the level of all logging.
        logging.getLogger().setLevel(level)
    return found


def _provide_matcha(folder: Path) -> None:
    """Makes `matcha.utils.audio` and the base class of the flow importable without what the rest of Matcha-TTS needs."""
    if "matcha" in sys.modules:
        return
    for name in ("matcha", "matcha.utils", "matcha.models", "matcha.models.components"):
        module = types.ModuleType(name)
        module.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = module
    decoder = types.ModuleType("matcha.models.components.decoder")
    decoder.Decoder = None
    sys.modules[decoder.__name__] = decoder
    logger = types.ModuleType("matcha.utils.pylogger")
    logger.get_pylogger = logging.getLogger
    sys.modules[logger.__name__] = logger


def build(dimensions: Dimensions, seed: int | None) -> Makers:
    """The makers' model of these dimensions. With a seed: random weights that give lively sound; else as their constructors
    leave it."""
    import torch
    from omegaconf import DictConfig
    from transformers import Qwen2Config, Qwen2ForCausalLM

    d = dimensions
    code = import_makers()
    if seed is not None:
        torch.manual_seed(seed)
    encoder = code.Qwen2Encoder.__new__(code.Qwen2Encoder)
    torch.nn.Module.__init__(encoder)
    encoder.model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=d.text_tokens,
            hidden_size=d.hidden,
            num_hidden_layers=d.layers,
            num_attention_heads=d.heads,
            num_key_value_heads=d.kv_heads,
            intermediate_size=d.intermediate,
            rope_theta=1e6,
            max_position_embeddings=32768,
            tie_word_embeddings=True,
        )
    )
    llm = code.CosyVoice3LM(
        llm_input_size=d.hidden,
        llm_output_size=d.hidden,
        speech_token_size=d.speech_tokens,
        llm=encoder,
        sampling=lambda scores, decoded, sampling: int(scores.argmax()),
    )
    estimator = code.DiT(
        dim=d.dit_size,
        depth=d.dit_layers,
        heads=d.dit_heads,
        dim_head=d.dit_head_size,
        ff_mult=2,
        mel_dim=80,
        mu_dim=80,
        spk_dim=80,
        out_channels=80,
        static_chunk_size=50,
        num_decoding_left_chunks=-1,
    )
    state = torch.get_rng_state()
    decoder = code.CausalConditionalCFM(
        in_channels=240,
        n_spks=1,
        spk_emb_dim=80,
        cfm_params=DictConfig(
            {
                "sigma_min": 1e-6,
                "solver": "euler",
                "t_scheduler": "cosine",
                "training_cfg_rate": 0.2,
                "inference_cfg_rate": 0.7,
                "reg_loss_type": "l1",
            }
        ),
        estimator=estimator,
    )
    torch.set_rng_state(state)
    flow = code.CausalMaskedDiffWithDiT(
        input_size=80,
        output_size=80,
        spk_embed_dim=d.speaker,
        output_type="mel",
        vocab_size=d.speech_tokens,
        input_frame_rate=25,
        token_mel_ratio=2,
        pre_lookahead_len=3,
        pre_lookahead_layer=code.PreLookaheadLayer(in_channels=80, channels=d.look_ahead_channels, pre_lookahead_len=3),
        decoder=decoder,
    )
    hift = code.CausalHiFTGenerator(
        in_channels=80,
        base_channels=d.hift_channels,
        nb_harmonics=8,
        sampling_rate=24000,
        upsample_rates=[8, 5, 3],
        upsample_kernel_sizes=[16, 11, 7],
        istft_params={"n_fft": 16, "hop_len": 4},
        resblock_kernel_sizes=list(d.resblock_kernels),
        resblock_dilation_sizes=[list(d.dilations)] * len(d.resblock_kernels),
        source_resblock_kernel_sizes=list(d.source_kernels),
        source_resblock_dilation_sizes=[list(d.dilations)] * len(d.source_kernels),
        audio_limit=0.99,
        conv_pre_look_right=4,
        f0_predictor=code.CausalConvRNNF0Predictor(num_class=1, in_channels=80, cond_channels=d.pitch_channels),
    )
    if seed is not None:
        with torch.no_grad():
            _enliven(llm, flow, hift)
    # Both tables are noise and no weights; ours repeat sooner.
    generator = hift.m_source.l_sin_gen
    n = d.source_noise_frames * 480
    table = generator.sine_waves[:, :n].clone()
    generator.sine_waves = Repeated(table)
    hift.m_source.uv = torch.zeros(1, 1, 1).expand(1, 300 * 24000, 1)
    decoder.rand_noise = Repeated(
        decoder.rand_noise[:, :, : d.flow_noise_frames].transpose(1, 2).clone(), is_last_axis=True
    )
    for module in (llm, flow, hift):
        module.eval()
    model = code.CosyVoice3Model(llm, flow, hift)
    model.device = torch.device("cpu")
    feat = partial(
        code.mel_spectrogram,
        n_fft=1920,
        num_mels=80,
        sampling_rate=24000,
        hop_size=480,
        win_size=1920,
        fmin=0,
        fmax=None,
        center=False,
    )
    return Makers(model, feat, code.CosyVoiceFrontEnd)


class Repeated:
    """A table of noise [1, time, ...] that goes on from its beginning when it is cut beyond its end. Takes the place of the
    makers' long tables."""

    def __init__(self, table: Any, is_last_axis: bool = False) -> None:
        self.table = table
        self.is_last_axis = is_last_axis

    def __getitem__(self, key: Any) -> Any:
        end = key[-1].stop if self.is_last_axis else key[1].stop
        times = -(-end // self.table.shape[1])
        cut = self.table.repeat(1, times, 1)[:, :end]
        return cut.transpose(1, 2) if self.is_last_axis else cut


def _enliven(llm: Any, flow: Any, hift: Any) -> None:
    """Random weights whose outputs differ from id to id and from frame to frame."""
    import torch

    for name, parameter in llm.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter, 0.7, 1.3)
        elif parameter.dim() > 1:
            torch.nn.init.normal_(parameter, 0.0, 1.0 if "embed" in name else 1.5 * parameter.shape[-1] ** -0.5)
        else:
            torch.nn.init.normal_(parameter, 0.0, 0.3)
    # One number of all columns is the same and stays so, against which the head weighs the ids that end the speech: they are
    # possible and seldom.
    llm.llm.model.model.embed_tokens.weight[:, 0] = 4.0
    llm.speech_embedding.weight[:, 0] = 4.0
    for layer in llm.llm.model.model.layers:
        layer.self_attn.o_proj.weight[0] = 0.0
        layer.mlp.down_proj.weight[0] = 0.0
    llm.llm_decoder.weight[:, 0] = 0.0
    llm.llm_decoder.weight[llm.speech_token_size :] *= 0.3
    llm.llm_decoder.weight[llm.speech_token_size :, 0] = -2.0
    for module in hift.modules():
        if isinstance(module, torch.nn.Conv1d):
            fan_in = module.weight[0].numel()
            weight = torch.randn_like(module.weight) * 0.7 * fan_in**-0.5
            module.weight = weight if torch.nn.utils.parametrize.is_parametrized(module) else torch.nn.Parameter(weight)
            torch.nn.init.normal_(module.bias, 0.0, 0.1)
        elif module.__class__.__name__ == "Snake":
            torch.nn.init.uniform_(module.alpha, 0.4, 1.6)
    classifier = hift.f0_predictor.classifier
    # A pitch that moves, and is too low to be voiced now and then; sound that is seldom clipped.
    torch.nn.init.normal_(classifier.weight, 0.0, 25.0 * classifier.in_features**-0.5)
    torch.nn.init.constant_(classifier.bias, 18.0)
    torch.nn.init.normal_(hift.m_source.l_linear.weight, 0.0, 2.0)
    hift.conv_post.weight = hift.conv_post.weight * 0.8
    hift.conv_post.bias[: hift.conv_post.bias.shape[0] // 2] -= 1.0


def load(parts: Any) -> Makers:
    """The makers' model with the weights of a checkpoint."""
    import torch

    llm, flow, hift = parts.llm, parts.flow, parts.hift
    prefix = "llm.model.model.layers."
    hift = {name.removeprefix("generator."): value for name, value in hift.items()}
    layers = 1 + max(int(name[len(prefix) :].split(".")[0]) for name in llm if name.startswith(prefix))
    blocks = [name for name in flow if name.endswith("attn.to_q.weight")]
    size = flow["decoder.estimator.proj_out.weight"].shape[1]
    made = build(
        Dimensions(
            text_tokens=llm["llm.model.model.embed_tokens.weight"].shape[0],
            speech_tokens=flow["input_embedding.weight"].shape[0],
            hidden=llm["speech_embedding.weight"].shape[1],
            layers=layers,
            heads=parts.heads,
            kv_heads=parts.kv_heads,
            intermediate=llm[f"{prefix}0.mlp.gate_proj.weight"].shape[0],
            look_ahead_channels=flow["pre_lookahead_layer.conv1.weight"].shape[0],
            dit_size=size,
            dit_layers=len(blocks),
            dit_heads=parts.flow_config.heads,
            dit_head_size=flow[blocks[0]].shape[0] // parts.flow_config.heads,
            hift_channels=hift["conv_pre.bias"].shape[0],
            resblock_kernels=parts.hift_config.resblock_kernels,
            source_kernels=tuple(
                hift[f"source_resblocks.{i}.convs1.0.parametrizations.weight.original1"].shape[2] for i in range(3)
            ),
            dilations=parts.hift_config.dilations,
            pitch_channels=hift["f0_predictor.condnet.0.bias"].shape[0],
            speaker=flow["spk_embed_affine_layer.weight"].shape[1],
            source_noise_frames=parts.source_noise.shape[0] // parts.hift_config.hop_samples,
            flow_noise_frames=parts.flow_noise.shape[1],
        ),
        seed=None,
    )
    for module, state, name in ((made.llm, llm, "llm"), (made.flow, flow, "flow"), (made.hift, hift, "hift")):
        try:
            module.load_state_dict({key: torch.from_numpy(value) for key, value in state.items()}, strict=True)
        except RuntimeError as error:
            raise ExportError(f"{name}.pt does not fit the makers' classes at --code: {error}") from error
        module.eval()
    made.hift.m_source.l_sin_gen.sine_waves = Repeated(torch.from_numpy(parts.source_noise)[None])
    return made


def tokenizer(folder: Path) -> Any:
    """The makers' tokenizer: that in `folder`, with the special tokens that their code adds."""
    if importlib.util.find_spec("cosyvoice") is None:
        raise ExportError(
            "the tokenizer's special tokens are listed in the makers' code only: name the folder of a clone of"
            " FunAudioLLM/CosyVoice with --code"
        )
    # For tokenizers of other models, which stand in the same module.
    absent = [name for name in ("whisper", "tiktoken") if importlib.util.find_spec(name) is None]
    provided = [*absent, *(f"{name}.tokenizer" for name in absent)]
    for name in provided:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].Tokenizer = None
    try:
        module = importlib.import_module("cosyvoice.tokenizer.tokenizer")
    except ImportError as error:
        raise ExportError(f"the makers' tokenizer needs the Python module {error.name!r}: install it") from error
    finally:
        for name in provided:
            del sys.modules[name]
    try:
        return module.CosyVoice3Tokenizer(str(folder)).tokenizer
    except (OSError, ValueError, TypeError) as error:
        raise ExportError(
            f"the tokenizer in {folder} cannot be read: {error}; download the whole checkpoint"
        ) from error


# Special tokens of tiny models, behind the 256 bytes.
TINY_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|endofprompt|>", "[breath]", "[laughter]"]


def write_tiny_tokenizer(path: Path) -> None:
    """A tokenizer of single bytes and `TINY_TOKENS`."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in TINY_TOKENS])
    made.save(str(path))


def write_stand_ins(folder: Path, dimensions: Dimensions, seed: int) -> tuple[Path, Path]:
    """Small random graphs with the ports of the makers' campplus.onnx and speech_tokenizer_v3.onnx, of older operator sets."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(seed)
    d, width = dimensions, 6

    def numbers(name: str, *shape: int) -> Any:
        return numpy_helper.from_array((rng.standard_normal(shape) * shape[0] ** -0.5).astype(np.float32), name)

    def write(path: Path, opset: int, nodes: list, inputs: list, output: Any, constants: list) -> Path:
        graph = helper.make_graph(nodes, path.stem, inputs, [output], constants)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7), str(path))
        return path

    speaker = write(
        folder / "campplus.onnx",
        13,
        [
            helper.make_node("MatMul", ["input", "inner"], ["a"], name="one"),
            helper.make_node("Tanh", ["a"], ["b"], name="two"),
            helper.make_node("ReduceMean", ["b"], ["c"], name="three", axes=[1], keepdims=0),
            helper.make_node("MatMul", ["c", "outer"], ["output"], name="four"),
        ],
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["B", "T", 80])],
        helper.make_tensor_value_info("output", TensorProto.FLOAT, ["B", d.speaker]),
        [numbers("inner", 80, width), numbers("outer", width, d.speaker)],
    )
    kernel = numpy_helper.from_array((rng.standard_normal((width, 128, 4)) * 0.2).astype(np.float32), "kernel")
    zero, four = (
        numpy_helper.from_array(np.array([value], np.int64), name) for name, value in (("zero", 0), ("four", 4))
    )
    tokens = write(
        folder / "speech_tokenizer_v3.onnx",
        17,
        [
            helper.make_node("Conv", ["feats", "kernel"], ["a"], name="one", strides=[4]),
            helper.make_node("Sin", ["a"], ["b"], name="two"),
            helper.make_node("Transpose", ["b"], ["c"], name="three", perm=[0, 2, 1]),
            helper.make_node("MatMul", ["c", "outer"], ["d"], name="four_"),
            helper.make_node("ArgMax", ["d"], ["e"], name="five", axis=2, keepdims=0),
            helper.make_node("Cast", ["feats_length"], ["f"], name="six", to=TensorProto.INT64),
            helper.make_node("Div", ["f", "four"], ["g"], name="seven"),
            helper.make_node("Slice", ["e", "zero", "g", "one_axis"], ["h"], name="eight"),
            helper.make_node("Cast", ["h"], ["indices"], name="nine", to=TensorProto.INT32),
        ],
        [
            helper.make_tensor_value_info("feats", TensorProto.FLOAT, [1, 128, "T"]),
            helper.make_tensor_value_info("feats_length", TensorProto.INT32, [1]),
        ],
        helper.make_tensor_value_info("indices", TensorProto.INT32, [1, "n"]),
        [
            kernel,
            numbers("outer", width, d.speech_tokens),
            zero,
            four,
            numpy_helper.from_array(np.array([1]), "one_axis"),
        ],
    )
    return speaker, tokens


def weights_of(module: Any) -> dict[str, np.ndarray]:
    """A module's weights as a checkpoint of the makers has them."""
    return {name: value.detach().float().cpu().numpy() for name, value in module.state_dict().items()}
