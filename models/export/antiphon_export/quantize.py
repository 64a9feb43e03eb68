"""The precision int8 of `decode` and `frame`: matrices as 8-bit integers with a scale for each column and block of
`BLOCK_SIZE` rows (com.microsoft.MatMulNBits); activations are rounded inside the product, each row and block by
itself, so that rows do not change each other; caches and embeddings stay float32.

Measured against the alternative, `quantize_dynamic` with a scale for each column, which rounds the activations of all rows together:
README.md has the figures. The report and the command line use it.
"""

from __future__ import annotations

from pathlib import Path

BLOCK_SIZE = 32
# Activations are rounded to 8 bits inside the product, block by block: without it the product is computed in float32,
# slower.
ACCURACY_LEVEL = 4
# Matrices with fewer numbers are left alone: they cost no time.
SMALLEST_MATRIX = 1 << 10


def quantize_weights(source: Path, target: Path) -> None:
    """Writes the graph `source` with quantized matrices to `target`."""
    import logging

    import onnx
    from onnxruntime.quantization import matmul_nbits_quantizer
    from onnxruntime.quantization.quant_utils import QuantFormat

    from .files import save_model

    model = onnx.load(str(source))
    small = {
        tensor.name
        for tensor in model.graph.initializer
        if len(tensor.dims) == 2 and tensor.dims[0] * tensor.dims[1] < SMALLEST_MATRIX
    }
    excluded = [node.name for node in model.graph.node if node.op_type == "MatMul" and small & set(node.input)]
    config = matmul_nbits_quantizer.DefaultWeightOnlyQuantConfig(
        block_size=BLOCK_SIZE,
        is_symmetric=True,
        accuracy_level=ACCURACY_LEVEL,
        quant_format=QuantFormat.QOperator,
        op_types_to_quantize=("MatMul",),
        bits=8,
    )
    # It writes two lines about every node.
    logging.getLogger(matmul_nbits_quantizer.__name__).setLevel(logging.WARNING)
    quantizer = matmul_nbits_quantizer.MatMulNBitsQuantizer(model, nodes_to_exclude=excluded, algo_config=config)
    quantizer.process()
    save_model(quantizer.model.model, target)
