"""PyTorch modules of Qwen3-TTS that are traced into `condition` and `vocode`. They hold the makers' modules and call
their layers; what is here is how a recording is padded and a sound is cut into chunks. `qwen3_tts` exports them;
nothing here reads a checkpoint.
"""

from __future__ import annotations

import librosa
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

# Mel spectrogram of the speaker encoder: arguments of the makers' `extract_speaker_embedding`.
MEL_RATE, MEL_FFT, MEL_HOP, MEL_BANDS, MEL_HIGHEST = 24000, 1024, 256, 128, 12000.0


class Condition(nn.Module):
    """A recording f32 [1, N] at 24 kHz, to the speaker's embedding [1, D] and the recording's frames of codes i64 [1,
    T, K]."""

    def __init__(self, speaker_encoder: nn.Module, codec: nn.Module) -> None:
        super().__init__()
        self.speaker_encoder = speaker_encoder
        self.encoder = Encoder(codec)
        # The mel filters are made of their corners when the graph is loaded: the matrix would be larger than a tiny
        # model.
        corners = librosa.mel_frequencies(MEL_BANDS + 2, fmin=0.0, fmax=MEL_HIGHEST)
        self.register_buffer("corners", torch.tensor(corners, dtype=torch.float32))
        self.register_buffer(
            "bins", torch.tensor(librosa.fft_frequencies(sr=MEL_RATE, n_fft=MEL_FFT), dtype=torch.float32)
        )
        self.register_buffer("window", torch.hann_window(MEL_FFT))

    def forward(self, audio: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.speaker_encoder(self.mel(audio).transpose(1, 2)), self.encoder(audio)

    def mel(self, audio: torch.Tensor) -> torch.Tensor:
        """The logarithmic mel spectrogram [1, bands, frames]."""
        margin = (MEL_FFT - MEL_HOP) // 2
        padded = F.pad(audio[:, None], (margin, margin), mode="reflect")[:, 0]
        spectrum = torch.stft(
            padded, MEL_FFT, MEL_HOP, MEL_FFT, window=self.window, center=False, onesided=True, return_complex=False
        )
        magnitude = torch.sqrt(spectrum.pow(2).sum(-1) + 1e-9)
        widths = self.corners[1:] - self.corners[:-1]
        rising = (self.bins[None] - self.corners[:-2, None]) / widths[:-1, None]
        falling = (self.corners[2:, None] - self.bins[None]) / widths[1:, None]
        area = 2.0 / (self.corners[2:] - self.corners[:-2])
        filters = torch.clamp(torch.minimum(rising, falling), min=0.0) * area[:, None]
        return torch.log(torch.clamp(torch.matmul(filters, magnitude), min=1e-5))


class Encoder(nn.Module):
    """The codec's encoder: sound f32 [1, N], to frames of codes i64 [1, ceil(N / samples of a frame), K]."""

    def __init__(self, codec: nn.Module) -> None:
        super().__init__()
        encoder = codec.encoder
        self.layers = encoder.encoder.layers
        self.transformer = encoder.encoder_transformer.layers
        self.downsample = encoder.downsample
        semantic = encoder.quantizer.semantic_residual_vector_quantizer
        acoustic = encoder.quantizer.acoustic_residual_vector_quantizer
        count = codec.encoder_valid_num_quantizers
        self.split = min(len(semantic.layers), count)
        self.semantic_projection = semantic.input_proj or nn.Identity()
        self.acoustic_projection = acoustic.input_proj or nn.Identity()
        layers = [*semantic.layers, *acoustic.layers][:count]
        self.books = nn.ParameterList(nn.Parameter(layer.codebook.embed.detach().clone(), False) for layer in layers)

    def forward(self, audio: torch.Tensor) -> torch.Tensor:
        hidden = audio[:, None]
        for layer in self.layers:
            hidden = self._layer(layer, hidden)
        hidden = hidden.transpose(1, 2)
        positions = torch.arange(hidden.shape[1], device=hidden.device)[None]
        future = positions[:, None, None, :] > positions[:, None, :, None]
        mask = torch.zeros_like(future, dtype=hidden.dtype).masked_fill(future, torch.finfo(hidden.dtype).min)
        for layer in self.transformer:
            hidden = layer(hidden, attention_mask=mask, position_ids=positions)[0]
        hidden = _strided(self.downsample, hidden.transpose(1, 2))
        semantic = self.semantic_projection(hidden).transpose(1, 2)
        acoustic = self.acoustic_projection(hidden).transpose(1, 2)
        codes = []
        for i, book in enumerate(self.books):
            rest = semantic if i < self.split else acoustic
            # The nearest one: |x - e|^2 = |x|^2 - 2 x.e + |e|^2, and |x|^2 is the same for all.
            code = ((book * book).sum(-1) - 2.0 * torch.matmul(rest, book.t())).argmin(-1)
            quantized = F.embedding(code, book)
            if i < self.split:
                semantic = semantic - quantized
            else:
                acoustic = acoustic - quantized
            codes.append(code)
        return torch.stack(codes, -1)

    def _layer(self, layer: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
        if hasattr(layer, "block"):
            inner = hidden
            for part in layer.block:
                inner = self._layer(part, inner)
            outer = hidden if isinstance(layer.shortcut, nn.Identity) else self._layer(layer.shortcut, hidden)
            return outer + inner
        return _strided(layer, hidden) if hasattr(layer, "conv") else layer(hidden)


def _strided(layer: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    """A causal convolution of Mimi. The makers pad the right side up to a whole stride, which depends on the length;
    padding by a stride less 1 always gives the same numbers, because what is too much fills no whole stride."""
    conv = layer.conv
    stride = conv.stride[0]
    reach = (conv.kernel_size[0] - 1) * conv.dilation[0] + 1
    return conv(F.pad(hidden, (reach - stride, stride - 1), mode=layer.pad_mode))


class Vocoder(nn.Module):
    """Frames of codes and a state, to their sound and the next state. Chunk after chunk the sound is that of the
    makers' decoder for all frames at once: each causal convolution keeps the columns that it looks back at, the
    transformer the keys and values of its sliding window.

    The state: `conv` [B, n], the convolutions' columns; `attention` [B, 2 * layers, heads, window - 1, size], keys
    before RoPE and values; `columns` [B, 1], how many of these there are. It begins as zeros.
    """

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder
        transformer = decoder.pre_transformer
        config = transformer.config
        self.window = config.sliding_window
        self.heads = config.num_key_value_heads
        self.head_size = transformer.layers[0].self_attn.head_dim
        quantizer = decoder.quantizer
        self.split = quantizer.n_q_semantic
        books = [*quantizer.rvq_first.vq.layers, *quantizer.rvq_rest.vq.layers]
        self.books = nn.ParameterList(nn.Parameter(_codebook(layer), False) for layer in books)
        self.conv_shapes = [tuple(shape) for shape in self._conv_shapes()]

    @property
    def samples_per_frame(self) -> int:
        return int(self.decoder.total_upsample)

    def empty_state(self, rows: int) -> dict[str, torch.Tensor]:
        layers = len(self.decoder.pre_transformer.layers)
        return {
            "conv": torch.zeros(rows, sum(c * n for c, n in self.conv_shapes)),
            "attention": torch.zeros(rows, 2 * layers, self.heads, self.window - 1, self.head_size),
            "columns": torch.zeros(rows, 1),
        }

    def forward(
        self, codes: torch.Tensor, conv: torch.Tensor, attention: torch.Tensor, columns: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        kept = iter(
            part.reshape(-1, *shape)
            for part, shape in zip(conv.split([c * n for c, n in self.conv_shapes], 1), self.conv_shapes)
        )
        stream = _Stream(kept)
        decoder = self.decoder
        hidden = stream.conv(decoder.pre_conv, self._dequantize(codes))
        hidden, attention = self._transform(hidden.transpose(1, 2), attention, columns)
        hidden = hidden.transpose(1, 2)
        for rising, block in decoder.upsample:
            # Its kernel is its stride: no column reaches another frame.
            hidden = rising.conv(hidden)
            hidden = hidden + self._convnext(block, stream, hidden)
        first, *blocks, last_activation, last = decoder.decoder
        hidden = stream.conv(first, hidden)
        for block in blocks:
            activation, rising, *units = block.block
            hidden = stream.transposed(rising, activation(hidden))
            for unit in units:
                inner = stream.conv(unit.conv1, unit.act1(hidden))
                hidden = hidden + unit.conv2.conv(unit.act2(inner))
        wave = stream.conv(last, last_activation(hidden)).clamp(-1.0, 1.0)
        columns = torch.clamp(columns + codes.shape[1], max=float(self.window - 1))
        return wave, torch.cat([part.flatten(1) for part in stream.left], 1), attention, columns

    def _dequantize(self, codes: torch.Tensor) -> torch.Tensor:
        quantizer = self.decoder.quantizer
        rows = [F.embedding(codes[:, :, i], book) for i, book in enumerate(self.books)]
        first = quantizer.rvq_first.output_proj(sum(rows[1 : self.split], rows[0]).transpose(1, 2))
        rest = rows[self.split :]
        return first + quantizer.rvq_rest.output_proj(sum(rest[1:], rest[0]).transpose(1, 2))

    def _convnext(self, block: nn.Module, stream: "_Stream", hidden: torch.Tensor) -> torch.Tensor:
        hidden = block.norm(stream.conv(block.dwconv, hidden).transpose(1, 2))
        return (block.gamma * block.pwconv2(block.act(block.pwconv1(hidden)))).transpose(1, 2)

    def _transform(
        self, hidden: torch.Tensor, attention: torch.Tensor, columns: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        transformer = self.decoder.pre_transformer
        before = self.window - 1
        hidden = transformer.input_proj(hidden)
        length = hidden.shape[1]
        # Positions are counted from the first column that is kept: RoPE depends on differences only.
        positions = torch.arange(before + length, device=hidden.device)[None]
        cos, sin = transformer.rotary_emb(hidden, positions)
        keys_at = positions[:, None, :]
        queries_at = positions[:, before:, None]
        seen = (keys_at <= queries_at) & (keys_at > queries_at - self.window)
        seen = seen & (keys_at >= before - columns[:, :, None])
        mask = torch.zeros_like(seen, dtype=hidden.dtype).masked_fill(~seen, torch.finfo(hidden.dtype).min)[:, None]
        left = []
        for i, layer in enumerate(transformer.layers):
            block = layer.self_attn
            normed = layer.input_layernorm(hidden)
            query, key, value = (
                projection(normed).unflatten(-1, (-1, self.head_size)).transpose(1, 2)
                for projection in (block.q_proj, block.k_proj, block.v_proj)
            )
            query, key = block.q_norm(query), block.k_norm(key)
            key = torch.cat([attention[:, 2 * i], key], 2)
            value = torch.cat([attention[:, 2 * i + 1], value], 2)
            left += [key[:, :, -before:], value[:, :, -before:]]
            query = _rotated(query, cos[:, before:], sin[:, before:])
            key = _rotated(key, cos, sin)
            groups = block.num_key_value_groups
            if groups > 1:
                key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
            odds = torch.softmax(torch.matmul(query, key.transpose(2, 3)) * block.scaling + mask, -1)
            attended = torch.matmul(odds, value).transpose(1, 2).flatten(2)
            hidden = hidden + layer.self_attn_layer_scale(block.o_proj(attended))
            hidden = hidden + layer.mlp_layer_scale(layer.mlp(layer.post_attention_layernorm(hidden)))
        return transformer.output_proj(transformer.norm(hidden)), torch.stack(left, 1)

    def _conv_shapes(self) -> list[tuple[int, int]]:
        """Channels and columns that each convolution keeps, in the order of `forward`."""
        decoder = self.decoder
        shapes = [_kept(decoder.pre_conv)]
        shapes += [_kept(block.dwconv) for _, block in decoder.upsample]
        first, *blocks, _, last = decoder.decoder
        shapes.append(_kept(first))
        for block in blocks:
            _, rising, *units = block.block
            shapes.append((rising.conv.in_channels, _overlap(rising)))
            shapes += [_kept(unit.conv1) for unit in units]
        return [*shapes, _kept(last)]


class _Stream:
    """Convolutions of a chunk: each takes the columns that it kept of the chunk before and leaves its own."""

    def __init__(self, kept) -> None:
        self.kept = kept
        self.left: list[torch.Tensor] = []

    def _with_kept(self, hidden: torch.Tensor) -> torch.Tensor:
        before = next(self.kept)
        joined = torch.cat([before, hidden], 2)
        self.left.append(joined[:, :, -before.shape[2] :])
        return joined

    def conv(self, layer: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
        return layer.conv(self._with_kept(hidden))

    def transposed(self, layer: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
        stride = layer.conv.stride[0]
        overlap = _overlap(layer)
        sound = layer.conv(self._with_kept(hidden))
        return sound[:, :, overlap * stride : sound.shape[2] - layer.right_pad]


def _kept(layer: nn.Module) -> tuple[int, int]:
    conv = layer.conv
    return conv.in_channels, (conv.kernel_size[0] - 1) * conv.dilation[0]


def _overlap(layer: nn.Module) -> int:
    """Columns before a column that reach its sound."""
    return -(-layer.right_pad // layer.conv.stride[0])


def _codebook(layer: nn.Module) -> torch.Tensor:
    book = layer._codebook
    embedding = book.embedding_sum / book.cluster_usage.clamp(min=book.epsilon)[:, None]
    return layer.project_out(embedding).detach().clone()


def _rotated(value: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = value.shape[-1] // 2
    turned = torch.cat([-value[..., half:], value[..., :half]], -1)
    return value * cos[:, None] + turned * sin[:, None]


def spoken(vocoder: Vocoder, codes: np.ndarray) -> np.ndarray:
    """The makers' sound of all frames [N, K] at once: [samples]."""
    with torch.no_grad():
        return vocoder.decoder(torch.as_tensor(codes).T[None])[0, 0].numpy()
