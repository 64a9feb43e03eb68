"""Writes a tiny FastConformer-RNNT of NeMo's own classes, with random weights, and what NeMo's own code makes of a sentence
with it: the fixture tests/fixtures/transducer/nemo.

    python -m antiphon_export.synthetic.fastconformer_golden OUT [--keep-checkpoint FILE.nemo]

The architecture is that of the published models: eightfold depthwise subsampling, causal convolutions with layer norm, attention
of a limited context, an LSTM predictor, 80 mel bands. OUT gets

    encoder.onnx, decoder_joint.onnx, tokens.txt   our export (antiphon_export.fastconformer), read back from a .nemo file
    encoder_nemo.onnx, decoder.onnx, joiner.onnx   NeMo's own export with the metadata of sherpa-onnx's oldest script
    encoder_normalized.onnx                        our export of the same weights where features are normalized
    golden.json, golden.f32                        tokens, encoder outputs and caches of NeMo's streaming loop

golden.json has the place and shape of each array in golden.f32. The loop is NeMo's: CacheAwareStreamingAudioBuffer with
pad_and_drop_preencoded, and conformer_stream_step with greedy search. Needs nemo_toolkit[asr] and what our export needs.
"""

import argparse
import json
import pathlib
import tempfile

import numpy
import sentencepiece
import soundfile
import torch
from omegaconf import OmegaConf

from .. import fastconformer
from ..files import folder_at_once

SENTENCE = pathlib.Path(__file__).parents[4] / "tests/fixtures/speech/bambatse_02_haggard_0323.flac"
CHUNK_MS = 160
N_CHUNKS = 200
# Caches are kept at every third chunk: the attention's holds three of them, the convolutions' four.
CACHES_EVERY = 3
N_STREAMS = 8
SEED = 3
WIDTH, LAYERS, HEADS, LEFT, HIDDEN, PIECES = 16, 2, 2, 6, 12, 48
WORDS = (
    "the old woman lifted her hand and said that nobody would come to the mountain before morning while the river below them"
    " carried broken branches and the children slept beside a small fire"
)


def tokenizer(folder):
    options = dict(vocab_size=PIECES, model_type="bpe", bos_id=-1, eos_id=-1, pad_id=-1, character_coverage=1.0)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(WORDS.split()), model_prefix=str(folder / "tokenizer"), **options
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    lines = (pieces.id_to_piece(i) + "\n" for i in range(1, pieces.get_piece_size()))
    (folder / "vocab.txt").write_text("".join(lines), encoding="utf-8")


def configuration(folder, normalize):
    return OmegaConf.create(
        {
            "sample_rate": 16000,
            "log_prediction": False,
            "compute_eval_loss": False,
            "model_defaults": {"enc_hidden": WIDTH, "pred_hidden": HIDDEN, "joint_hidden": HIDDEN},
            "tokenizer": {"dir": str(folder), "type": "bpe"},
            "preprocessor": {
                "_target_": "nemo.collections.asr.modules.AudioToMelSpectrogramPreprocessor",
                "sample_rate": 16000,
                "normalize": normalize,
                "window_size": 0.025,
                "window_stride": 0.01,
                "window": "hann",
                "features": 80,
                "n_fft": 512,
                "frame_splicing": 1,
                "dither": 0.00001,
                "pad_to": 0,
            },
            "encoder": {
                "_target_": "nemo.collections.asr.modules.ConformerEncoder",
                "feat_in": 80,
                "feat_out": -1,
                "n_layers": LAYERS,
                "d_model": WIDTH,
                "subsampling": "dw_striding",
                "subsampling_factor": 8,
                "subsampling_conv_channels": 4,
                "causal_downsampling": True,
                "ff_expansion_factor": 4,
                "self_attention_model": "rel_pos",
                "n_heads": HEADS,
                "att_context_size": [[LEFT, 1], [LEFT, 0]],
                "att_context_style": "chunked_limited",
                "xscaling": True,
                "pos_emb_max_len": 64,
                "conv_kernel_size": 9,
                "conv_norm_type": "layer_norm",
                "conv_context_size": "causal",
                "dropout": 0.1,
                "dropout_pre_encoder": 0.1,
                "dropout_emb": 0.0,
                "dropout_att": 0.1,
            },
            "decoder": {
                "_target_": "nemo.collections.asr.modules.RNNTDecoder",
                "normalization_mode": None,
                "random_state_sampling": False,
                "blank_as_pad": True,
                "prednet": {"pred_hidden": HIDDEN, "pred_rnn_layers": 2, "t_max": None, "dropout": 0.2},
            },
            "joint": {
                "_target_": "nemo.collections.asr.modules.RNNTJoint",
                "log_softmax": None,
                "preserve_memory": False,
                "fuse_loss_wer": False,
                "jointnet": {"joint_hidden": HIDDEN, "activation": "relu", "dropout": 0.2},
            },
            "decoding": {"strategy": "greedy_batch", "greedy": {"max_symbols": 10}},
            "loss": {"loss_name": "pytorch"},
            "optim": None,
        }
    )


@torch.no_grad()
def randomize(model):
    """Weights that make many different tokens, each with a reason: no bias and no norm is left at its usual value."""
    generator = torch.Generator().manual_seed(SEED)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.startswith("decoder.prediction.dec_rnn"):
            parameter.copy_(noise)
        elif name.startswith("decoder.prediction.embed"):
            parameter.copy_(2 * noise)
        elif name.startswith("joint.joint_net"):
            parameter.copy_(noise)
        elif name.startswith("joint."):
            parameter.copy_(noise)
        elif parameter.dim() == 1 or "pos_bias" in name:
            parameter.add_(0.1 * noise)
        else:
            parameter.copy_(noise / parameter[0].numel() ** 0.5)
    # The predictor gives zeros for the blank.
    model.decoder.prediction["embed"].weight[-1] = 0


@torch.no_grad()
def greedy(model, frames):
    """Tokens of encoder frames ([frames, width]), by the modules alone: for the search of a bias, not for the golden tokens."""
    blank = model.decoder.vocab_size
    found, state, last = [], None, torch.tensor([[blank]])
    said, state = model.decoder.predict(last, state=state, add_sos=False)
    for frame in frames:
        for _ in range(10):
            token = int(model.joint.joint(frame[None, None], said).flatten().argmax())
            if token == blank:
                break
            found.append(token)
            said, state = model.decoder.predict(torch.tensor([[token]]), state=state, add_sos=False)
    return found


@torch.no_grad()
def settle(model, frames):
    """Centres what the joiner hears, as training does, and moves the blank's bias until a third of the frames have a token."""
    heard = model.joint.enc
    projected = frames @ heard.weight.T
    heard.weight.mul_(1.5 / projected.std())
    heard.bias.copy_(-(frames @ heard.weight.T).mean(0))
    bias = model.joint.joint_net[-1].bias
    low, high = -10.0, 20.0
    for _ in range(14):
        bias[-1] = (low + high) / 2
        if len(greedy(model, frames)) > len(frames) / 3:
            low = float(bias[-1])
        else:
            high = float(bias[-1])


def speech(number, n_samples):
    """The samples of a stream: as `speech` of the tests in Rust. The last one is zero, so that silence may follow."""
    pcm, rate = soundfile.read(SENTENCE, dtype="int16")
    assert rate == 16_000
    first = number * 4_001 % len(pcm)
    pcm = numpy.resize(numpy.roll(pcm, -first), n_samples).copy()
    pcm[-1] = 0
    return pcm


def mel(model, pcm, n_frames):
    """NeMo's features, [1, bands, frames], of the samples and the silence behind them."""
    from nemo.collections.asr.parts.utils.streaming_utils import CacheAwareStreamingAudioBuffer

    online = model.cfg.preprocessor.normalize == "per_feature"
    buffer = CacheAwareStreamingAudioBuffer(model, online_normalization=online, pad_and_drop_preencoded=True)
    silence = numpy.zeros(16_000, numpy.float32)
    audio = numpy.concatenate([pcm.astype(numpy.float32) / 32_768, silence])
    features, _ = buffer.preprocess_audio(audio)
    return buffer, features[:, :, :n_frames]


@torch.no_grad()
def listen(model, pcm, n_chunks=None, keep=False):
    """NeMo's streaming loop: tokens with the number of their chunk; with `keep` outputs and caches too."""
    shift, _ = fastconformer.streaming_frames(model.encoder)
    n_chunks = n_chunks or -(-((len(pcm) - 200) // 160 + 1) // shift)
    buffer, features = mel(model, pcm, n_chunks * shift)
    buffer.append_processed_signal(features, stream_id=-1)
    channel, time, length = model.encoder.get_initial_cache_state(batch_size=1)
    hypotheses, tokens = None, []
    outputs, channels, times, lengths = [], [], [], []
    for number, (chunk, chunk_length) in enumerate(buffer):
        before = dict(
            processed_signal=chunk,
            processed_signal_length=chunk_length,
            cache_last_channel=channel,
            cache_last_time=time,
            cache_last_channel_len=length,
            keep_all_outputs=False,
            drop_extra_pre_encoded=model.encoder.streaming_cfg.drop_extra_pre_encoded,
        )
        if keep:
            outputs.append(model.encoder.cache_aware_stream_step(**before)[0][0].T.numpy())
        _, _, channel, time, length, hypotheses = model.conformer_stream_step(
            **before, previous_hypotheses=hypotheses, return_transcription=True
        )
        said = [int(token) for token in hypotheses[0].y_sequence]
        tokens += [[token, number] for token in said[len(tokens) :]]
        if keep and number % CACHES_EVERY == CACHES_EVERY - 1:
            channels.append(channel[:, 0].numpy().copy())
            times.append(time[:, 0].numpy().copy())
            lengths.append(int(length[0]))
    assert number + 1 == n_chunks, (number, n_chunks)
    found = {"tokens": tokens}
    if keep:
        found |= {"outputs": outputs, "channels": channels, "times": times, "lengths": lengths}
    return found


def write_arrays(path, arrays):
    """All arrays in one file of little-endian 32-bit floats; the place and the shape of each."""
    places, flat = {}, []
    first = 0
    for name, values in arrays.items():
        values = numpy.asarray(values, numpy.float32)
        places[name] = {"first": first, "shape": list(values.shape)}
        first += values.size
        flat.append(values.ravel())
    numpy.concatenate(flat).astype("<f4").tofile(path)
    return places


def nemo_export(model, folder):
    """NeMo's own export, and the metadata of sherpa-onnx's script for the models of 114 M weights."""
    entries = fastconformer.metadata(model, CHUNK_MS)
    for absent in ("chunk_size_ms", "feat_dim"):
        del entries[absent]
    entries |= {"normalize_type": "None", "model_type": "EncDecHybridRNNTCTCBPEModel", "comment": "NeMo's own export"}
    model.set_export_config({"cache_support": True})
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        for part, name in [(model.encoder, "encoder_nemo"), (model.decoder, "decoder"), (model.joint, "joiner")]:
            part.export(str(temporary / f"{name}.onnx"))
            (folder / f"{name}.onnx").write_bytes((temporary / f"{name}.onnx").read_bytes())
    fastconformer.write_metadata(folder / "encoder_nemo.onnx", entries)


def main():
    from nemo.collections.asr.models import EncDecRNNTBPEModel

    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--keep-checkpoint", type=pathlib.Path)
    given = parser.parse_args()
    torch.manual_seed(SEED)
    with tempfile.TemporaryDirectory() as temporary, folder_at_once(given.out) as out:
        temporary = pathlib.Path(temporary)
        tokenizer(temporary)
        models = {}
        for name, normalize in [("plain", "NA"), ("normalized", "per_feature")]:
            models[name] = EncDecRNNTBPEModel(cfg=configuration(temporary, normalize)).eval()
            randomize(models[name])
            models[name].encoder.set_default_att_context_size([LEFT, CHUNK_MS // 80 - 1])
        # The same weights: some begin with random ones.
        models["normalized"].encoder.load_state_dict(models["plain"].encoder.state_dict())
        models["normalized"].decoder.load_state_dict(models["plain"].decoder.state_dict())
        tried = [numpy.concatenate(listen(model, speech(0, 60_000), keep=True)["outputs"]) for model in models.values()]
        settle(models["plain"], torch.from_numpy(numpy.concatenate(tried)))
        checkpoint = given.keep_checkpoint or temporary / "tiny.nemo"
        models["plain"].save_to(str(checkpoint))
        golden, arrays = {}, {}
        long = speech(0, N_CHUNKS * 2_560)
        for name, model in models.items():
            model.joint.load_state_dict(models["plain"].joint.state_dict())
            found = listen(model, long, N_CHUNKS, keep=True)
            golden[name] = {"tokens": found["tokens"], "lengths": found["lengths"]}
            for key in ("outputs", "channels", "times"):
                arrays[f"{name}_{key}"] = found[key]
        golden["streams"] = [listen(models["plain"], speech(i, 9_000 + 2_900 * i))["tokens"] for i in range(N_STREAMS)]
        golden["arrays"] = write_arrays(out / "golden.f32", arrays)
        (out / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n", encoding="utf-8")
        restored = EncDecRNNTBPEModel.restore_from(str(checkpoint), map_location="cpu")
        report = fastconformer.export_folder(restored, out, CHUNK_MS)
        (out / "encoder_normalized.onnx").write_bytes((out / "encoder.onnx").read_bytes())
        entries = fastconformer.metadata(models["normalized"], CHUNK_MS)
        fastconformer.write_metadata(out / "encoder_normalized.onnx", entries)
        nemo_export(models["plain"], out)
    sizes = {path.name: path.stat().st_size for path in sorted(given.out.iterdir())}
    counts = {name: len(golden[name]["tokens"]) for name in models} | {
        "streams": [len(tokens) for tokens in golden["streams"]],
        "kinds": len({token for token, _ in golden["plain"]["tokens"]}),
    }
    print(json.dumps({"worst_difference": report, "tokens": counts, "bytes": sizes}, indent=1))


if __name__ == "__main__":
    main()
