"""Exports a cache-aware FastConformer-RNNT of NVIDIA's NeMo as the graphs that the recognizer `transducer` runs.

    python -m antiphon_export.fastconformer CHECKPOINT.nemo OUT [--chunk-ms 80] [--int8]

OUT gets encoder.onnx, decoder_joint.onnx and tokens.txt. Each graph takes any number of rows. The encoder computes one chunk
of `--chunk-ms`, which must be one of those that the model was trained for; the first one by default. decoder_joint is the
predictor and the joiner in one graph: for each row a token and the state before it give the logits of one encoder frame and
the state behind it. Both graphs are compared with NeMo's own modules before OUT appears, in batches of one and of three.
`--int8` quantizes the weights as sherpa-onnx does (dynamically, unsigned, all default operators), for processors.

Needs nemo_toolkit[asr], torch, onnx, onnxruntime and numpy. Models whose encoder takes a prompt are refused: their makers'
own export has it.
"""

import argparse
import json
import pathlib

import numpy
import onnx
import onnxruntime
import torch

from .errors import ExportError
from .files import folder_at_once

SUBSAMPLING = 8
FRAME_MS = 10
OPSET = 17
TOLERANCE = 1e-4


def streaming_frames(encoder):
    """Mel frames of a chunk and of what precedes it in its window."""
    config = encoder.streaming_cfg

    def later(size):
        return size[1] if isinstance(size, (list, tuple)) else size

    return int(later(config.chunk_size)), int(later(config.pre_encode_cache_size))


def set_chunk(encoder, chunk_ms):
    """Chooses the chunk among those that the model was trained for."""
    trained = [list(context) for context in encoder.att_context_size_all]
    if chunk_ms is None:
        chosen = trained[0]
    else:
        chosen = next((context for context in trained if (context[1] + 1) * SUBSAMPLING * FRAME_MS == chunk_ms), None)
    if chosen is None:
        known = ", ".join(str((context[1] + 1) * SUBSAMPLING * FRAME_MS) for context in trained)
        raise ExportError(f"the model has no chunk of {chunk_ms} ms: it was trained for {known}")
    encoder.set_default_att_context_size(chosen)
    return (chosen[1] + 1) * SUBSAMPLING * FRAME_MS


def metadata(model, chunk_ms):
    """What the encoder's file says of the model: sherpa-onnx's keys."""
    encoder = model.encoder
    shift, lead = streaming_frames(encoder)
    layers, width = len(encoder.layers), encoder.d_model
    normalize = model.cfg.preprocessor.normalize
    return {
        "vocab_size": model.decoder.vocab_size,
        "window_size": shift + lead,
        "chunk_shift": shift,
        "chunk_size_ms": chunk_ms,
        "normalize_type": "" if normalize in (None, "NA", "None") else normalize,
        "cache_last_channel_dim1": layers,
        "cache_last_channel_dim2": encoder.streaming_cfg.last_channel_cache_size,
        "cache_last_channel_dim3": width,
        "cache_last_time_dim1": layers,
        "cache_last_time_dim2": width,
        "cache_last_time_dim3": encoder.conv_context_size[0],
        "pred_rnn_layers": model.decoder.pred_rnn_layers,
        "pred_hidden": model.decoder.pred_hidden,
        "subsampling_factor": SUBSAMPLING,
        "feat_dim": model.cfg.preprocessor.features,
        "model_type": type(model).__name__,
        "version": 1,
        "model_author": "NeMo",
        "comment": "exported by antiphon-export",
    }


def write_metadata(path, entries):
    model = onnx.load(path)
    del model.metadata_props[:]
    for key, value in entries.items():
        model.metadata_props.add(key=key, value=str(value))
    save(model, path)


def save(model, path):
    """In one file below 1 GB, with its weights beside it from there on."""
    if model.ByteSize() < 1 << 30:
        onnx.save(model, path)
        return
    data = path.with_suffix(".data")
    data.unlink(missing_ok=True)
    onnx.save(model, path, save_as_external_data=True, all_tensors_to_one_file=True, location=data.name)


def write_tokens(model, path):
    """A piece and its number a line, the blank last."""
    pieces = [*model.joint.vocabulary, "<blk>"]
    path.write_text("".join(f"{piece} {i}\n" for i, piece in enumerate(pieces)), encoding="utf-8")


class StreamingEncoder(torch.nn.Module):
    """One chunk of the encoder, caches with the batch first."""

    INPUTS = ("audio_signal", "length", "cache_last_channel", "cache_last_time", "cache_last_channel_len")
    OUTPUTS = (
        "outputs",
        "encoded_lengths",
        "cache_last_channel_next",
        "cache_last_time_next",
        "cache_last_channel_next_len",
    )

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, audio_signal, length, cache_last_channel, cache_last_time, cache_last_channel_len):
        return self.encoder.forward_for_export(
            audio_signal=audio_signal,
            length=length,
            cache_last_channel=cache_last_channel,
            cache_last_time=cache_last_time,
            cache_last_channel_len=cache_last_channel_len,
        )

    def rows(self, n, entries, generator):
        """Random inputs of `n` rows, each with caches of another length."""
        layers, left, width = (entries[f"cache_last_channel_dim{i}"] for i in (1, 2, 3))
        kernel = entries["cache_last_time_dim3"]
        return (
            torch.randn(n, entries["feat_dim"], entries["window_size"], generator=generator),
            torch.full((n,), entries["window_size"], dtype=torch.int64),
            torch.randn(n, layers, left, width, generator=generator),
            torch.randn(n, layers, width, kernel, generator=generator),
            torch.arange(n, dtype=torch.int64) * left // max(n - 1, 1),
        )


class DecoderJoint(torch.nn.Module):
    """One step of the predictor and the joiner: a token, the state before it and an encoder frame."""

    INPUTS = ("encoder_outputs", "targets", "target_length", "input_states_1", "input_states_2")
    OUTPUTS = ("outputs", "prednet_lengths", "output_states_1", "output_states_2")

    def __init__(self, decoder, joint):
        super().__init__()
        self.decoder = decoder
        self.joint = joint

    def forward(self, encoder_outputs, targets, target_length, input_states_1, input_states_2):
        states = [input_states_1, input_states_2]
        predicted, states = self.decoder.predict(targets, state=states, add_sos=False)
        logits = self.joint.joint(encoder_outputs.transpose(1, 2), predicted)
        return logits, target_length + 0, states[0], states[1]

    def rows(self, n, entries, generator):
        width, layers, hidden = (entries[key] for key in ("cache_last_channel_dim3", "pred_rnn_layers", "pred_hidden"))
        return (
            torch.randn(n, width, 1, generator=generator),
            torch.randint(0, entries["vocab_size"], (n, 1), generator=generator, dtype=torch.int32),
            torch.ones(n, dtype=torch.int32),
            torch.randn(layers, n, hidden, generator=generator),
            torch.randn(layers, n, hidden, generator=generator),
        )


def batch_axes(module):
    """The axis of the batch of each port; all others are fixed."""
    layered = ("input_states", "output_states")
    ports = module.INPUTS + module.OUTPUTS
    return {port: {1 if port.startswith(layered) else 0: "batch"} for port in ports}


def export(module, entries, path):
    """Writes a graph and returns the worst difference from NeMo's module, in batches of one and of three."""
    module.eval()
    generator = torch.Generator().manual_seed(1)
    inputs = module.rows(2, entries, generator)
    names = {"input_names": list(module.INPUTS), "output_names": list(module.OUTPUTS)}
    torch.onnx.export(
        module, inputs, str(path), opset_version=OPSET, dynamic_axes=batch_axes(module), dynamo=False, **names
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    worst = 0.0
    for n in (1, 3):
        inputs = module.rows(n, entries, generator)
        expected = module(*inputs)
        given = {name: value.numpy() for name, value in zip(module.INPUTS, inputs)}
        found = session.run(None, given)
        for name, expected, found in zip(module.OUTPUTS, expected, found):
            expected = expected.numpy()
            if expected.shape != found.shape:
                raise ExportError(f"{path.name}: {name} has the shape {found.shape}, NeMo's is {expected.shape}")
            worst = max(worst, float(numpy.abs(expected.astype(numpy.float64) - found).max()))
    if worst > TOLERANCE:
        raise ExportError(f"{path.name} differs from NeMo's module by {worst:g}, at most {TOLERANCE:g} is allowed")
    return worst


@torch.no_grad()
def export_folder(model, folder, chunk_ms=None, int8=False):
    """Writes all files of a model into a folder and returns what was compared."""
    if hasattr(model, "prompt_kernel"):
        raise ExportError("the encoder takes a prompt: use the export that the model's makers or sherpa-onnx publish")
    model = model.eval().cpu()
    entries = metadata(model, set_chunk(model.encoder, chunk_ms))
    report = {}
    parts = {"encoder": StreamingEncoder(model.encoder), "decoder_joint": DecoderJoint(model.decoder, model.joint)}
    for name, module in parts.items():
        path = folder / f"{name}.onnx"
        report[name] = export(module, entries, path)
        if name == "encoder":
            write_metadata(path, entries)
        if int8:
            quantize(path, folder / f"{name}.int8.onnx")
    write_tokens(model, folder / "tokens.txt")
    return report


def quantize(source, target):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(model_input=str(source), model_output=str(target), weight_type=QuantType.QUInt8)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--chunk-ms", type=int)
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--force", action="store_true", help="replace OUT")
    given = parser.parse_args()
    try:
        if not given.checkpoint.is_file():
            raise ExportError(f"there is no {given.checkpoint}: name the .nemo file")
        with folder_at_once(given.out, given.force) as folder:
            from nemo.collections.asr.models import ASRModel

            model = ASRModel.restore_from(str(given.checkpoint), map_location="cpu")
            report = export_folder(model, folder, given.chunk_ms, given.int8)
    except ExportError as error:
        parser.exit(1, f"error: {error}\n")
    print(json.dumps({"worst_difference": report}))


if __name__ == "__main__":
    main()
