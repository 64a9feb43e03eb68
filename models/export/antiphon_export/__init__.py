"""All that writes ONNX graphs for Antiphon; the hub never runs it. `python -m antiphon_export --help`: exports of speech
language models for the engine `speechlm`, whose form is LAYOUT.md. `antiphon_export.chatterbox` exports Chatterbox in the
published form, `antiphon_export.synthetic` writes models with random weights, and `rows` and `slot_rows` write the graphs by
which the hub moves caches. It reads checkpoints from the disk, downloads nothing and sends nothing."""

__version__ = "0.1.0"
