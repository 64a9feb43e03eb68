"""The makers' classes of OpenAudio S1-mini (the package `fish_speech`), for checks and fixtures: models with random
weights, and what they compute.

The family module uses it for `check` and `fixture` only; an export of a checkpoint does not need the makers' code. The
module never writes a file of an export. It runs with the makers' code of 2025 (S1) and of 2026 (S2): both have these
classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ExportError

IM_END = "<|im_end|>"


@dataclass
class Sizes:
    """Dimensions of a random model."""

    model: dict
    codec: dict
    quantizer: dict
    quantizer_layers: tuple[int, int]
    """Layers of the transformers before the quantizers and behind them."""
    quantizer_transformer: dict
    encoder_layers: int
    encoder_network: int
    head_size: int
    """Of the codec's heads."""
    window: int
    first_special: int
    """The id of the first special token: those below are pieces of text."""
    vocabulary: int


TINY = Sizes(
    model=dict(
        n_layer=2,
        n_head=2,
        n_local_heads=1,
        head_dim=16,
        dim=32,
        intermediate_size=40,
        rope_base=1000000,
        norm_eps=1e-6,
        max_seq_len=640,
        tie_word_embeddings=False,
        attention_qk_norm=True,
        codebook_size=48,
        num_codebooks=10,
        n_fast_layer=2,
        fast_dim=32,
        fast_n_head=2,
        fast_n_local_heads=1,
        fast_head_dim=16,
        fast_intermediate_size=40,
        fast_attention_qk_norm=False,
        use_gradient_checkpointing=False,
    ),
    codec=dict(encoder_dim=2, encoder_rates=[8, 8, 4, 2], latent_dim=16, decoder_dim=16, decoder_rates=[8, 8, 4, 2]),
    quantizer=dict(
        input_dim=16,
        n_codebooks=9,
        codebook_size=24,
        codebook_dim=8,
        semantic_codebook_size=48,
        downsample_factor=[2, 2],
    ),
    quantizer_layers=(1, 2),
    quantizer_transformer=dict(n_head=2, dim=16, intermediate_size=24),
    encoder_layers=1,
    encoder_network=1,
    head_size=8,
    window=8,
    first_special=300,
    vocabulary=364,
)
TRUE = Sizes(
    model=dict(
        n_layer=28,
        n_head=16,
        n_local_heads=8,
        head_dim=128,
        dim=1024,
        intermediate_size=3072,
        rope_base=1000000,
        norm_eps=1e-6,
        max_seq_len=8192,
        tie_word_embeddings=False,
        attention_qk_norm=True,
        codebook_size=4096,
        num_codebooks=10,
        n_fast_layer=4,
        fast_dim=1024,
        fast_n_head=16,
        fast_n_local_heads=8,
        fast_head_dim=64,
        fast_intermediate_size=3072,
        fast_attention_qk_norm=False,
        use_gradient_checkpointing=False,
    ),
    codec=dict(encoder_dim=64, encoder_rates=[2, 4, 8, 8], decoder_dim=1536, decoder_rates=[8, 8, 4, 2]),
    quantizer=dict(
        input_dim=1024,
        n_codebooks=9,
        codebook_size=1024,
        codebook_dim=8,
        semantic_codebook_size=4096,
        downsample_factor=[2, 2],
    ),
    quantizer_layers=(8, 8),
    quantizer_transformer=dict(n_head=16, dim=1024, intermediate_size=3072),
    encoder_layers=4,
    encoder_network=3,
    head_size=64,
    window=128,
    first_special=151643,
    vocabulary=155776,
)


# Pieces of a small vocabulary: each is two that are there before it.
PIECES = (
    "th he in er an re on at en nd ed or is ou it ar es st to te ng al the ing and |t |a |s |w |b |i |o |c |th |the "
    "|in |an |and |is |it 12 ?! ll 'll"
)
# Special tokens before those of speech, in the order of S1-mini.
SPECIAL = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|pad|>",
    "<|im_start|>",
    IM_END,
    "<|phoneme_start|>",
    "<|phoneme_end|>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<|text|>",
    "<|voice|>",
    "<|interleave|>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<|audio|>",
)


def random_vocabulary(sizes: Sizes) -> tuple[dict[bytes, int], dict[str, int]]:
    """Ranks of pieces and ids of special tokens, of the structure of a checkpoint's."""
    pieces = [bytes([byte]) for byte in range(256)] + [piece.replace("|", " ").encode() for piece in PIECES.split()]
    speech = [f"<|semantic:{i}|>" for i in range(sizes.quantizer["semantic_codebook_size"])]
    special = {token: sizes.first_special + i for i, token in enumerate([*SPECIAL, *speech])}
    return {piece: rank for rank, piece in enumerate(pieces)}, special


class Tokenizer:
    """What the makers' code asks of its tokenizer, on tiktoken. Their class of 2025 reads these files so; that of 2026
    reads those of S2 only."""

    def __init__(self, ranks: dict[bytes, int], special: dict[str, int], pattern: str) -> None:
        import tiktoken

        self.encoding = tiktoken.Encoding("s1-mini", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
        self.special = special
        ids = {}
        while (token := f"<|semantic:{len(ids)}|>") in special:
            ids[len(ids)] = special[token]
        self.semantic_id_to_token_id = ids
        self.semantic_begin_id, self.semantic_end_id = ids[0], ids[len(ids) - 1]

    def encode(self, text: str, **_: Any) -> list[int]:
        return self.encoding.encode(text, allowed_special="all")

    def get_token_id(self, token: str) -> int:
        return self.special[token]


@dataclass
class Reference:
    """The makers' classes with the weights of a random family."""

    model: Any
    codec: Any
    tokenizer: Tokenizer


def makers() -> Any:
    """The makers' modules."""
    try:
        from fish_speech import content_sequence
        from fish_speech.models.dac import modded_dac, rvq
        from fish_speech.models.text2semantic import llama
    except ImportError as error:
        raise ExportError(
            f"checks and fixtures of s1-mini need the makers' code, with what it imports: {error}. "
            "Name a checkout of fishaudio/fish-speech with --code FOLDER, and install its requirements"
        ) from error

    class Modules:
        pass

    modules = Modules()
    modules.content_sequence, modules.modded_dac, modules.rvq, modules.llama = content_sequence, modded_dac, rvq, llama
    return modules


def model_of(config: dict, tokenizer: Tokenizer) -> Any:
    """The makers' language model, with its own initial weights."""
    import dataclasses
    import inspect

    llama = makers().llama
    known = {field.name for field in dataclasses.fields(llama.DualARModelArgs)}
    arguments = llama.DualARModelArgs(**{name: value for name, value in config.items() if name in known})
    arguments.semantic_begin_id, arguments.semantic_end_id = tokenizer.semantic_begin_id, tokenizer.semantic_end_id
    extra = {"tokenizer": tokenizer} if "tokenizer" in inspect.signature(llama.DualARTransformer).parameters else {}
    model = llama.DualARTransformer(arguments, **extra)
    model.tokenizer = tokenizer
    return model.eval().float()


def codec_of(sizes: Sizes) -> Any:
    """The makers' codec, with its own initial weights."""
    modules = makers()
    dac, rvq = modules.modded_dac, modules.rvq
    positions = sizes.model["max_seq_len"]

    def transformer(layers: int) -> Any:
        arguments = dac.ModelArgs(
            block_size=positions, n_layer=layers, head_dim=sizes.head_size, **sizes.quantizer_transformer
        )
        return dac.WindowLimitedTransformer(
            config=arguments, input_dim=sizes.quantizer["input_dim"], window_size=sizes.window, causal=True
        )

    before, behind = sizes.quantizer_layers

    def general(**arguments: Any) -> Any:
        # The makers' encoder has heads of 64 numbers and a network of 3 times its width: a tiny one has less.
        arguments["n_head"] = arguments["dim"] // sizes.head_size
        arguments["intermediate_size"] = arguments["dim"] * sizes.encoder_network
        return dac.ModelArgs(block_size=positions, head_dim=sizes.head_size, **arguments)

    with _small_masks():
        quantizer = rvq.DownsampleResidualVectorQuantize(
            pre_module=transformer(before), post_module=transformer(behind), **sizes.quantizer
        )
        codec = dac.DAC(
            quantizer=quantizer,
            sample_rate=44100,
            causal=True,
            encoder_transformer_layers=[0, 0, 0, sizes.encoder_layers],
            decoder_transformer_layers=[0, 0, 0, 0],
            transformer_general_config=general,
            **sizes.codec,
        )
    return codec.eval().float()


def randomized(module: Any, seed: int) -> Any:
    """Gives a model random weights of about the scale that keeps a signal's power: the initial ones of the makers are
    so small, in scales of layers above all, that whole parts of a graph could be wrong unnoticed."""
    import torch

    generator = torch.Generator().manual_seed(seed)

    def normal(shape: Any) -> Any:
        return torch.randn(shape, generator=generator)

    def uniform(shape: Any, low: float, high: float) -> Any:
        return low + (high - low) * torch.rand(shape, generator=generator)

    with torch.no_grad():
        parameters = dict(module.named_parameters())
        for name, parameter in parameters.items():
            last = name.rsplit(".", 1)[-1]
            if last == "gamma":
                parameter.copy_(uniform(parameter.shape, 0.3, 0.7))
            elif last == "alpha":
                parameter.copy_(uniform(parameter.shape, 0.5, 1.5))
            elif last == "bias":
                parameter.copy_(normal(parameter.shape) * 0.1)
            elif last in ("original0", "weight_g"):
                continue
            elif last == "weight" and parameter.ndim == 1:
                parameter.copy_(uniform(parameter.shape, 0.8, 1.2))
            elif "embedding" in name or "codebook" in name:
                parameter.copy_(normal(parameter.shape))
            else:
                inputs = parameter[0].numel() if parameter.ndim > 1 else parameter.numel()
                parameter.copy_(normal(parameter.shape) / inputs**0.5)
        for name, parameter in parameters.items():
            last = name.rsplit(".", 1)[-1]
            if last in ("original0", "weight_g"):
                other = name.replace("original0", "original1").replace("weight_g", "weight_v")
                axes = [axis for axis in range(parameter.ndim) if parameter.shape[axis] == 1]
                length = parameters[other].pow(2).sum(axes, keepdim=True).sqrt()
                parameter.copy_(length * uniform(parameter.shape, 0.8, 1.2))
    return module.eval()


def audible(codec: Any, seed: int) -> Any:
    """Scales the last convolution of a codec with random weights so that its sound is neither clipped nor silent."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    sizes = [codec.quantizer.semantic_quantizer.codebook_size]
    sizes += [codec.quantizer.quantizer.codebook_size] * codec.quantizer.quantizer.n_codebooks
    codes = torch.stack([torch.randint(0, size, (1, 8), generator=generator) for size in sizes], 1)
    last = codec.decoder.model[-2].conv
    with torch.no_grad():
        for _ in range(3):
            power = (
                torch.atanh(codec.decoder(codec.quantizer.decode(codes)).clamp(-0.9999, 0.9999)).pow(2).mean().sqrt()
            )
            last.parametrizations.weight.original0.mul_(0.3 / power)
            last.bias.mul_(0.3 / power)
    return codec


def prompt(tokenizer: Tokenizer, text: str, transcript: str, codes: np.ndarray | None, codebooks: int) -> Any:
    """The makers' prompt [1 + K, L]: the reference, where there is one with a transcript, and the text, interleaved.
    `codes` are [frames, K]."""
    import torch

    content = makers().content_sequence
    sequence = content.ContentSequence(modality="interleave")
    if transcript and codes is not None:
        voice = content.VQPart(codes=torch.from_numpy(np.ascontiguousarray(codes.T)))
        sequence.append([content.TextPart(text=transcript), voice], add_end=True, speaker=0)
    sequence.append([content.TextPart(text=text)], add_end=False, speaker=0)
    return sequence.encode_for_inference(tokenizer, num_codebooks=codebooks)[0]


class Greedy:
    """The makers' model, decoding the most likely codes step by step."""

    def __init__(self, model: Any, tokenizer: Tokenizer, residual_size: int) -> None:
        self.model = model
        self.begin, self.end = tokenizer.semantic_begin_id, tokenizer.semantic_end_id
        self.stop = tokenizer.get_token_id(IM_END)
        self.residual_size = residual_size

    def embeds(self, values: Any) -> np.ndarray:
        """Embeddings [L, H] of a prompt [1 + K, L], as they come to the first layer."""
        import torch

        values = torch.as_tensor(values)
        caught: list = []
        hook = self.model.layers[0].register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0].clone()))
        try:
            with torch.no_grad():
                self._reset(values.shape[1] + 8)
                self.model.forward_generate(values[None], torch.arange(values.shape[1]))
        finally:
            hook.remove()
        return caught[0][0].numpy()

    def run(self, values: Any, frames: int) -> tuple[np.ndarray, np.ndarray]:
        """The logits of the prefill, cut as in the graph, and `frames` frames [frames, K]."""
        import torch

        model, config = self.model, self.model.config
        found = []
        first_logits = None
        with torch.no_grad():
            self._reset(values.shape[1] + frames + 8)
            columns, position = values[None], torch.arange(values.shape[1])
            for _ in range(frames):
                result = model.forward_generate(columns, position)
                logits = result.logits[0, -1]
                logits = torch.cat([logits[self.begin : self.end + 1], logits[self.stop : self.stop + 1]])
                first_logits = logits.numpy().copy() if first_logits is None else first_logits
                first = int(logits.argmax())
                main = self.begin + first if first <= self.end - self.begin else self.stop
                model.forward_generate_fast(result.hidden_states, torch.tensor([0]))
                code = torch.tensor([max(0, min(main - self.begin, config.codebook_size - 1))])
                codes = [code]
                for i in range(1, config.num_codebooks):
                    inner = model.forward_generate_fast(model.fast_embeddings(code), torch.tensor([i]))
                    code = inner[0, -1, : self.residual_size].argmax()[None]
                    codes.append(code)
                column = torch.cat([torch.tensor([main]), *codes])
                found.append([first] + [int(code) for code in codes[1:]])
                columns = column.view(1, -1, 1)
                position = position[-1:] + 1
        return first_logits, np.array(found, np.int64)

    def _reset(self, columns: int) -> None:
        import torch

        self.model.max_seq_len = self.model.max_batch_size = -1
        self.model.setup_caches(max_batch_size=1, max_seq_len=columns, dtype=torch.float32)


def decoded(codec: Any, codes: np.ndarray) -> np.ndarray:
    """The makers' sound [B, 1, samples] of codes [B, N, K]."""
    import torch

    indices = torch.from_numpy(np.ascontiguousarray(codes.transpose(0, 2, 1)))
    with torch.no_grad():
        latent = codec.quantizer.decode(indices)
        return codec.decoder(latent).numpy()


def encoded(codec: Any, audio: np.ndarray) -> np.ndarray:
    """The makers' codes [1, frames, K] of a recording [1, N]."""
    import torch

    with torch.no_grad():
        codes, _ = codec.encode(torch.from_numpy(audio)[None], torch.tensor([audio.shape[1]]))
    return codes.numpy().transpose(0, 2, 1)


def state_of(module: Any) -> dict[str, np.ndarray]:
    return {name: value.detach().float().numpy() for name, value in module.state_dict().items()}


def _small_masks() -> Any:
    """A context in which the makers' transformers get no mask of 1 GiB each, which the windowed ones never read."""
    import torch
    from torch.overrides import TorchFunctionMode

    class SmallMasks(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if function is torch.ones and args == (32768, 32768):
                args = (1, 1)
            return function(*args, **(kwargs or {}))

    return SmallMasks()
