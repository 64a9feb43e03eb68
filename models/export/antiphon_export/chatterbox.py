"""Exports a checkpoint of Chatterbox Turbo or Nano to the four graphs that Antiphon runs, and a tokenizer.json.

    python -m antiphon_export.chatterbox PACKAGE CHECKPOINT OUT [--gqa] [--fp16]

PACKAGE is the folder `chatterbox` of the unpacked PyPI package chatterbox-tts 0.1.7. CHECKPOINT is the makers' folder:
t3_turbo_v1.safetensors or t3_nano_v1.safetensors, s3gen_meanflow.safetensors, ve.safetensors and the tokenizer's files.
`--gqa` and `--fp16` are those of `synthetic.speech_lm` and concern the language model. The ports are the published ones; the
vocoder takes batches of rows of the same lengths.

    python -m antiphon_export.chatterbox PACKAGE --try FOLDER

writes a checkpoint with random weights to FOLDER, exports it and compares each graph with the makers' code.

What differs from the makers' program:
- the vocoder's noise is a table instead of random, so the same tokens give the same sound;
- the recording is resampled by a windowed sinc instead of soxr, its silence is not trimmed for the voice encoder, and
  its loudness is not set to -27 LUFS: the caller may do so.

Needs torch, transformers 5.2, safetensors, einops, omegaconf, scipy, librosa, diffusers 0.29, conformer, s3tokenizer,
torchaudio, onnx and onnxruntime; not part of CI. It was run with random weights only.
"""

import dataclasses
import json
import math
import pathlib
import sys
import types

import librosa
import numpy
import onnx
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize

from .synthetic import speech_lm

RATE, RATE_16 = 24_000, 16_000


def makers(folder):
    """The makers' modules, without the package's own __init__, which imports all of its dependencies."""
    package = types.ModuleType("chatterbox")
    package.__path__ = [str(folder)]
    sys.modules["chatterbox"] = package
    from chatterbox.models.s3gen import S3Gen
    from chatterbox.models.voice_encoder import VoiceEncoder

    return S3Gen, VoiceEncoder


def fourier(n):
    """The window and the cosines and sines of a real transform of n points: [n / 2 + 1, n]."""
    angle = 2 * math.pi * torch.arange(n // 2 + 1)[:, None] * torch.arange(n)[None] / n
    return torch.hann_window(n), torch.cos(angle), -torch.sin(angle)


class Spectrogram(nn.Module):
    """Power of a short-time transform with a Hann window: [batch, samples] -> [batch, n / 2 + 1, frames]."""

    def __init__(self, n, hop, pad):
        super().__init__()
        self.n, self.hop, self.pad = n, hop, pad
        window, cosines, sines = fourier(n)
        self.register_buffer("basis", torch.cat([cosines * window, sines * window])[:, None])

    def forward(self, x):
        x = F.pad(x[:, None], (self.pad, self.pad), mode="reflect")
        real, imaginary = F.conv1d(x, self.basis, stride=self.hop).chunk(2, dim=1)
        return real * real + imaginary * imaginary


class Vocoder(nn.Module):
    """S3Gen with meanflow: tokens -> mel frames -> sound behind the prompt."""

    def __init__(self, s3gen):
        super().__init__()
        self.flow, self.hift = s3gen.flow, s3gen.mel2wav
        for module in list(self.hift.modules()):
            for name in list(getattr(module, "parametrizations", {})):
                parametrize.remove_parametrizations(module, name)
        random = torch.Generator().manual_seed(5)
        # 2,048 frames are 41 s, prompt included; a longer utterance is an error of the graph.
        self.register_buffer("noise", torch.randn(1, 80, 2048, generator=random))
        self.register_buffer("hiss", torch.randn(1, 9, RATE, generator=random))
        window, cosines, sines = fourier(16)
        weight = torch.full((9, 1), 2 / 16)
        weight[0] = weight[8] = 1 / 16
        self.register_buffer("analysis", torch.cat([cosines * window, sines * window])[:, None])
        self.register_buffer("synthesis", torch.cat([cosines * weight * window, sines * weight * window])[:, None])
        self.register_buffer("envelope", (window * window)[None, None])
        self.register_buffer("fade", s3gen.trim_fade)
        self.register_buffer("harmonics", torch.arange(1, 10, dtype=torch.float32)[None, :, None])

    def source(self, pitch):
        """Pitch in Hz, [batch, frames] -> the excitation [batch, 1, samples], as the makers' SineGen has it."""
        pitch = F.interpolate(pitch[:, None], scale_factor=480.0, mode="nearest")
        cycles = torch.cumsum((pitch * self.harmonics / RATE).double(), -1) % 1
        voiced = (pitch > 10).float()
        n = pitch.shape[-1]
        hiss = self.hiss.repeat(1, 1, n // RATE + 1)[:, :, :n]
        waves = (
            0.1 * torch.sin(2 * math.pi * cycles.float()) * voiced + (voiced * 0.003 + (1 - voiced) * 0.1 / 3) * hiss
        )
        return torch.tanh(self.hift.m_source.l_linear(waves.transpose(1, 2))).transpose(1, 2)

    def mel(self, tokens, speaker, prompt):
        f = self.flow
        speaker = f.spk_embed_affine_layer(F.normalize(speaker, dim=1))
        lengths = torch.full_like(tokens[:, 0], tokens.shape[1])
        h, _ = f.encoder(f.input_embedding(tokens), lengths)
        mu = f.encoder_proj(h).transpose(1, 2)
        condition = torch.cat([prompt.transpose(1, 2), torch.zeros_like(mu[:, :, prompt.shape[1] :])], dim=2)
        mask = torch.ones_like(mu[:, :1])
        x = self.noise[:, :, : mu.shape[2]] + torch.zeros_like(mu)
        for start, end in ((0.0, 0.5), (0.5, 1.0)):
            t, r = torch.full((1,), start), torch.full((1,), end)
            x = x + (end - start) * f.decoder.estimator(x, mask=mask, mu=mu, t=t, spks=speaker, cond=condition, r=r)
        return x[:, :, prompt.shape[1] :]

    def forward(self, speech_tokens, speaker_embeddings, speaker_features):
        h = self.hift
        x = self.mel(speech_tokens, speaker_embeddings, speaker_features)
        s = F.conv1d(F.pad(self.source(h.f0_predictor(x)), (8, 8), mode="reflect"), self.analysis, stride=4)
        x = h.conv_pre(x)
        for stage in range(3):
            x = h.ups[stage](F.leaky_relu(x, h.lrelu_slope))
            if stage == 2:
                x = h.reflection_pad(x)
            x = x + h.source_resblocks[stage](h.source_downs[stage](s))
            x = sum(h.resblocks[3 * stage + each](x) for each in range(3)) / 3
        x = h.conv_post(F.leaky_relu(x))
        magnitude, phase = torch.clip(torch.exp(x[:, :9]), max=1e2), torch.sin(x[:, 9:])
        both = torch.cat([magnitude * torch.cos(phase), magnitude * torch.sin(phase)], dim=1)
        y = F.conv_transpose1d(both, self.synthesis, stride=4)
        y = y / F.conv_transpose1d(torch.ones_like(magnitude[:1, :1]), self.envelope, stride=4).clamp(min=1e-8)
        y = torch.clamp(y[:, 0, 8:-8], -h.audio_limit, h.audio_limit)
        n = self.fade.shape[0]
        return torch.cat([y[:, :n] * self.fade, y[:, n:]], dim=1)


class Resample(nn.Module):
    """24 to 16 kHz: two phases of a windowed sinc for every three samples."""

    def __init__(self, width=24):
        super().__init__()
        self.width = width
        t = torch.arange(-width, width + 3, dtype=torch.float64)[None] - torch.tensor([[0.0], [1.5]])
        cut = 2 / 3 * 0.97
        inside = (t.abs() < width).double()
        window = torch.cos(t / width * math.pi / 2) ** 2 * inside
        self.register_buffer("kernel", (cut * torch.sinc(cut * t) * window).float()[:, None])

    def forward(self, x):
        n = (2 * x.shape[1]) // 3
        y = F.conv1d(F.pad(x[:, None], (self.width, self.width + 2)), self.kernel, stride=3)
        return y.transpose(1, 2).reshape(1, -1)[:, :n]


class Condition(nn.Module):
    """A recording -> what the language model and the vocoder need of a voice. As tts_turbo.prepare_conditionals."""

    def __init__(self, t3, s3gen, voice):
        super().__init__()
        from torchaudio.compliance import kaldi

        self.speech, self.project = t3["speech_emb.weight"], t3["cond_enc.spkr_enc.weight"]
        self.bias = t3["cond_enc.spkr_enc.bias"]
        self.tokenizer, self.speaker, self.voice = s3gen.tokenizer, s3gen.speaker_encoder, voice
        self.resample = Resample()
        # Mel frames at 24 kHz for the vocoder, at 16 kHz for the tokenizer and for the voice encoder.
        self.frames_24, self.frames_16 = Spectrogram(1920, 480, 720), Spectrogram(400, 160, 200)
        mel = lambda rate, n, bins, top: torch.from_numpy(
            librosa.filters.mel(sr=rate, n_fft=n, n_mels=bins, fmin=0, fmax=top)
        )
        self.register_buffer("mel_24", mel(RATE, 1920, 80, 8000))
        self.register_buffer("mel_voice", mel(RATE_16, 400, 40, 8000))
        rotation = self.tokenizer.encoder.freqs_cis
        self.register_buffer("rotation", torch.view_as_real(rotation).contiguous())
        # Kaldi's filter bank: frames of 400 samples each 160, without their mean, emphasized, with Povey's window.
        self.register_buffer("frame", torch.eye(400)[:, None])
        self.register_buffer("povey", torch.hann_window(400, periodic=False) ** 0.85)
        angle = 2 * math.pi * torch.arange(257)[:, None] * torch.arange(400)[None] / 512
        self.register_buffer("kaldi", torch.cat([torch.cos(angle), torch.sin(angle)]).T.contiguous())
        banks, _ = kaldi.get_mel_banks(80, 512, 16000.0, 20.0, 0.0, 100.0, -500.0, 1.0)
        self.register_buffer("banks", F.pad(banks, (0, 1)))

    def tokens(self, audio):
        """16 kHz, a multiple of 640 samples -> [1, samples / 640]."""
        t = self.tokenizer
        log = torch.clamp(t._mel_filters @ self.frames_16(audio)[..., :-1], min=1e-10).log10()
        log = (torch.maximum(log, log.max() - 8.0) + 4.0) / 4.0
        x = F.gelu(t.encoder.conv2(F.gelu(t.encoder.conv1(log)))).permute(0, 2, 1)
        none = torch.zeros_like(x[:, None, None, :, 0])
        for block in t.encoder.blocks:
            x = block(x, none, torch.ones_like(x[:, :, :1]), self.rotation[: x.shape[1]])
        h = (t.quantizer._codebook.project_down(x).tanh() * 0.9990000128746033).round() + 1
        return (h * (3 ** torch.arange(8)).float()).sum(-1).long()

    def x_vector(self, audio):
        """16 kHz -> CAMPPlus' embedding [1, 192]."""
        x = F.conv1d(audio[:, None], self.frame, stride=160).transpose(1, 2)
        x = x - x.mean(dim=2, keepdim=True)
        x = (x - 0.97 * torch.cat([x[:, :, :1], x[:, :, :-1]], dim=2)) * self.povey
        real, imaginary = (x @ self.kaldi).chunk(2, dim=2)
        x = torch.log(torch.clamp((real * real + imaginary * imaginary) @ self.banks.T, min=1.1920928955078125e-07))
        return self.speaker(x - x.mean(dim=1, keepdim=True))

    def identity(self, audio):
        """16 kHz -> the voice encoder's embedding [1, 256]: the mean over windows of 160 frames each 77."""
        mel = (self.mel_voice @ self.frames_16(audio)).transpose(1, 2)[0]
        n = (mel.shape[0] - 83 + 32) // 77
        mel = F.pad(mel, (0, 0, 0, 160))
        places = (torch.arange(n) * 77)[:, None] + torch.arange(160)[None]
        _, (hidden, _) = self.voice.lstm(mel[places])
        each = F.relu(self.voice.proj(hidden[-1]))
        mean = (each / torch.linalg.norm(each, dim=1, keepdim=True)).mean(dim=0, keepdim=True)
        return mean / torch.linalg.norm(mean, dim=1, keepdim=True)

    def forward(self, audio_values):
        whole = audio_values[:, : (audio_values.shape[1] // 960) * 960]
        prompt = whole[:, : 10 * RATE]
        low = self.resample(whole)
        speech = F.embedding(self.tokens(low[:, : 15 * RATE_16]), self.speech)
        speaker = F.linear(self.identity(low), self.project, self.bias)[:, None]
        low = low[:, : 10 * RATE_16]
        mel = self.mel_24 @ torch.sqrt(self.frames_24(prompt) + 1e-9)
        mel = torch.log(torch.clamp(mel, min=1e-5)).transpose(1, 2)
        return torch.cat([speaker, speech], dim=1), self.tokens(low), self.x_vector(low), mel


def without_complex_numbers():
    """The tokenizer's rotation, with its complex numbers as pairs, as torch.onnx has none; returns the makers' own."""
    from s3tokenizer import model_v2

    own = model_v2.apply_rotary_emb

    def apply(q, k, rotation):
        cos, sin = rotation[None, :, None, :, 0], rotation[None, :, None, :, 1]
        turn = lambda x: torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)
        return q * cos + turn(q) * sin, k * cos + turn(k) * sin

    model_v2.apply_rotary_emb = lambda xq, xk, freqs_cis: apply(xq, xk, freqs_cis)
    return own


def export(module, example, path, inputs, outputs, axes):
    with torch.no_grad():
        torch.onnx.export(
            module,
            example,
            path,
            dynamo=False,
            opset_version=17,
            input_names=inputs,
            output_names=outputs,
            dynamic_axes=axes,
        )
    model = onnx.load(path)
    data = path.with_name(path.name + "_data")
    data.unlink(missing_ok=True)
    onnx.save(model, path, save_as_external_data=True, location=data.name, size_threshold=1024)
    print(f"{path}: {(path.stat().st_size + data.stat().st_size) / 1e6:.0f} MB", flush=True)


class Checkpoint:
    """The weights of `T3` by name, for the writers of `synthetic.speech_lm`."""

    def __init__(self, state):
        self.state = state

    def take(self, name, shape):
        weight = self.state[name].float().numpy()
        assert weight.shape == tuple(shape), f"{name}: {weight.shape} instead of {tuple(shape)}"
        return weight


def convert(package, checkpoint, out, gqa=False, half=False):
    from safetensors.torch import load_file
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer

    S3Gen, VoiceEncoder = makers(package)
    own = without_complex_numbers()
    out.mkdir(parents=True, exist_ok=True)
    name = "nano" if (checkpoint / "t3_nano_v1.safetensors").exists() else "turbo"
    state = load_file(checkpoint / f"t3_{name}_v1.safetensors")
    s3gen = S3Gen(meanflow=True).eval()
    s3gen.load_state_dict(load_file(checkpoint / "s3gen_meanflow.safetensors"), strict=True)
    voice = VoiceEncoder().eval()
    voice.load_state_dict(load_file(checkpoint / "ve.safetensors"))

    tokenizer = AutoTokenizer.from_pretrained(checkpoint).backend_tokenizer
    family = speech_lm.FAMILIES[f"chatterbox-{name}"]
    end = "<|endoftext|>"
    family = dataclasses.replace(family, text=state["text_emb.weight"].shape[0], end=tokenizer.token_to_id(end))
    # The text's ids, and START twice, as the published tokenizer has it.
    tokenizer.post_processor = TemplateProcessing(single=f"$A {end} {end}", special_tokens=[(end, family.end)])
    tokenizer.save(str(out / "tokenizer.json"))

    weights = Checkpoint(state)
    speech_lm.embed_tokens(out / "embed_tokens.onnx", family, weights, external=True)
    speech_lm.language_model(out / "language_model.onnx", family, weights, gqa=gqa, half=half, external=True)
    condition, vocoder = Condition(state, s3gen, voice).eval(), Vocoder(s3gen).eval()
    names = ["audio_features", "audio_tokens", "speaker_embeddings", "speaker_features"]
    axes = {"audio_values": {1: "samples"}, names[0]: {1: "prompt"}, names[1]: {1: "tokens"}, names[3]: {1: "frames"}}
    export(condition, (torch.randn(1, 8 * RATE) * 0.1,), out / "speech_encoder.onnx", ["audio_values"], names, axes)
    names = ["speech_tokens", "speaker_embeddings", "speaker_features"]
    example = (torch.randint(0, 6561, (2, 80)), torch.randn(2, 192), torch.randn(2, 100, 80))
    axes = {names[0]: {0: "batch", 1: "tokens"}, names[1]: {0: "batch"}, names[2]: {0: "batch", 1: "frames"}}
    axes["waveform"] = {0: "batch", 1: "samples"}
    export(vocoder, example, out / "conditional_decoder.onnx", names, ["waveform"], axes)
    return s3gen, voice, condition, vocoder, own


def random_checkpoint(package, folder):
    from safetensors.torch import save_file

    S3Gen, VoiceEncoder = makers(package)
    torch.manual_seed(3)
    folder.mkdir(parents=True, exist_ok=True)
    family = speech_lm.FAMILIES["chatterbox-nano"]
    speech_lm.tokenizer(folder / "tokenizer.json", family)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    weights, h = speech_lm.Weights(family), family.hidden
    shapes = {
        "text_emb.weight": (family.text, h),
        "speech_emb.weight": (family.speech, h),
        "tfmr.ln_f.weight": (h,),
        "tfmr.ln_f.bias": (h,),
        "tfmr.wpe.weight": (family.positions, h),
        "speech_head.weight": (family.speech, h),
        "speech_head.bias": (family.speech,),
        "cond_enc.spkr_enc.weight": (h, 256),
        "cond_enc.spkr_enc.bias": (h,),
    }
    for layer in range(family.layers):
        for part, shape in (
            ("ln_1", (h,)),
            ("ln_2", (h,)),
            ("attn.c_attn", (h, 3 * h)),
            ("attn.c_proj", (h, h)),
            ("mlp.c_fc", (h, family.inner)),
            ("mlp.c_proj", (family.inner, h)),
        ):
            shapes[f"tfmr.h.{layer}.{part}.weight"] = shape
            shapes[f"tfmr.h.{layer}.{part}.bias"] = shape[-1:]
    save_file(
        {name: torch.from_numpy(weights.take(name, shape)) for name, shape in shapes.items()},
        folder / "t3_nano_v1.safetensors",
    )
    s3gen = S3Gen(meanflow=True)
    save_file(
        {name: each.contiguous().clone() for name, each in s3gen.state_dict().items()},
        folder / "s3gen_meanflow.safetensors",
    )
    save_file(dict(VoiceEncoder().state_dict()), folder / "ve.safetensors")


def compare(made, out):
    """Each exported graph against the makers' functions. The noise of their vocoder is replaced by the table."""
    import onnxruntime
    from chatterbox.models.s3gen import hifigan
    from chatterbox.models.voice_encoder import melspec
    from s3tokenizer import model_v2

    s3gen, voice, condition, vocoder, own = made
    session = lambda name: onnxruntime.InferenceSession(str(out / name), providers=["CPUExecutionProvider"])
    encoder, decoder = session("speech_encoder.onnx"), session("conditional_decoder.onnx")
    random = numpy.random.default_rng(1)
    for seconds in (6.02, 13):
        n = int(seconds * RATE)
        audio = numpy.cumsum(random.standard_normal(n)).astype(numpy.float32)
        audio = (audio - numpy.convolve(audio, numpy.ones(400) / 400, "same"))[None].astype(numpy.float32)
        audio *= 0.3 / abs(audio).max()
        features, tokens, vector, mel = encoder.run(None, {"audio_values": audio})
        with torch.no_grad():
            whole = torch.from_numpy(audio)[:, : n // 960 * 960]
            low = condition.resample(whole)
            theirs = [s3gen.mel_extractor(whole[:, : 10 * RATE]).transpose(1, 2)]
            theirs.append(s3gen.speaker_encoder.inference(low[:, : 10 * RATE_16]))
            theirs.append(
                torch.from_numpy(voice.embeds_from_mels([melspec.melspectrogram(low[0].numpy(), voice.hp).T], rate=1.3))
            )
            mine = condition.identity(low)
        log = s3gen.tokenizer.log_mel_spectrogram(low[:, : 10 * RATE_16])
        log_of = torch.clamp(
            s3gen.tokenizer._mel_filters @ condition.frames_16(low[:, : 10 * RATE_16])[..., :-1], min=1e-10
        ).log10()
        log_of = (torch.maximum(log_of, log_of.max() - 8.0) + 4.0) / 4.0
        with torch.no_grad():
            again = condition(torch.from_numpy(audio))[0].numpy()
            ours, model_v2.apply_rotary_emb = model_v2.apply_rotary_emb, own
            codes, _ = s3gen.tokenizer([low[0, : 10 * RATE_16]])
            model_v2.apply_rotary_emb = ours
        resampled = librosa.resample(whole[0].numpy(), orig_sr=RATE, target_sr=RATE_16)
        level = lambda x: 10 * math.log10(float((x**2).mean()))
        print(
            f"{seconds} s: features {features.shape}, {tokens.shape[1]} tokens, {mel.shape[1]} frames; "
            f"largest differences: features {abs(features - again).max():.1e}, "
            f"mel {abs(mel - theirs[0].numpy()).max():.1e}, x-vector {abs(vector - theirs[1].numpy()).max():.1e} of "
            f"{theirs[1].abs().max():.1e}, voice encoder {float((mine - theirs[2]).abs().max()):.1e}, tokenizer's mel "
            f"{float((log - log_of).abs().max()):.1e}; "
            f"tokens equal {(tokens == codes.numpy()).mean():.3f}; resampling "
            f" {level(low[0].numpy()[200:-200] - resampled[200:-200]) - level(resampled):.0f} dB from librosa's"
        )
    prompt, total = 50, 80
    rows = (torch.randint(0, 6561, (2, total)), torch.randn(2, 192), torch.randn(2, 2 * prompt, 80))
    names = ["speech_tokens", "speaker_embeddings", "speaker_features"]
    both = decoder.run(None, {name: each.numpy() for name, each in zip(names, rows)})[0]

    class Zero:
        def __init__(self, **_):
            pass

        def sample(self, sample_shape):
            return torch.zeros(sample_shape)

    hifigan.Uniform = Zero
    for row in range(2):
        tokens, speaker, features = (each[row : row + 1] for each in rows)
        table = {80: vocoder.noise, 9: vocoder.hiss.repeat(1, 1, 9)}
        torch.randn_like = lambda x, **_: (
            table[x.shape[1]][:, :, : x.shape[-1]].clone() if x.shape[1] in table else torch.zeros_like(x)
        )
        with torch.inference_mode():
            mel, _ = s3gen.flow.inference(
                token=tokens[:, prompt:],
                token_len=torch.tensor([total - prompt]),
                prompt_token=tokens[:, :prompt],
                prompt_token_len=torch.tensor([prompt]),
                prompt_feat=features,
                prompt_feat_len=None,
                embedding=speaker,
                finalize=True,
                n_timesteps=2,
                meanflow=True,
            )
            sound, _ = s3gen.mel2wav.inference(speech_feat=mel)
            sound[:, : len(s3gen.trim_fade)] *= s3gen.trim_fade
        difference = abs(sound.numpy()[0] - both[row]).max()
        print(
            f"vocoder, row {row}: {both.shape[1]} samples, difference {difference:.1e} of {sound.abs().max():.2f}"
        )


def main():
    arguments = [each for each in sys.argv[1:] if not each.startswith("--")]
    if "--try" in sys.argv and len(arguments) == 2:
        package, folder = map(pathlib.Path, arguments)
        random_checkpoint(package, folder / "checkpoint")
        compare(convert(package, folder / "checkpoint", folder / "out"), folder / "out")
    elif len(arguments) == 3:
        convert(*map(pathlib.Path, arguments), gqa="--gqa" in sys.argv, half="--fp16" in sys.argv)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
