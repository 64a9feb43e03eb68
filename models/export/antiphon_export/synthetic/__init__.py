"""Models with random weights, of the published ports and sizes: the fixtures of Antiphon's tests, and what its benchmarks
measure. What they cost is realistic, and what they say means nothing. `speech_lm`, `transducer` and `true_size` write
them, `speech_lm_golden`, `transducer_golden` and `fastconformer_golden` write what the makers' code gives with the same
weights, and `torch_run` runs them beside ONNX Runtime. Each is a program: `python -m antiphon_export.synthetic.true_size FOLDER`."""
