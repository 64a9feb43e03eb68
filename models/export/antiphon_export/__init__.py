"""Exports speech language models as the ONNX graphs that Antiphon's engine `speechlm` runs. `python -m antiphon_export
--help` says how; LAYOUT.md says what is written. It reads checkpoints from the disk, downloads nothing and sends
nothing."""

__version__ = "0.1.0"
