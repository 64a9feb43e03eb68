"""Writes the graphs that move rows of caches on a GPU: crates/engines/src/tts/speechlm/lm/rows_f32.onnx, rows_f16.onnx.

    python -m antiphon_export.rows

`moved` is the rows `rows_a` of `a` and behind them the rows `rows_b` of `b`, each [rows, heads, columns, size], padded with
zeros or cut by `pads_a` and `pads_b` (begins and ends, as ONNX's Pad has them; negative: cut). Needs the package onnx.
"""

import pathlib

from onnx import TensorProto, checker, helper, save

FOLDER = pathlib.Path(__file__).parents[3] / "crates/engines/src/tts/speechlm/lm"


def graph(kind):
    def sizes(name):
        return helper.make_tensor_value_info(name, kind, ["rows_of_" + name, "heads", "columns_of_" + name, "size"])

    nodes, inputs = [], []
    for source in "ab":
        rows, pads = "rows_" + source, "pads_" + source
        nodes.append(helper.make_node("Gather", [source, rows], ["chosen_" + source], axis=0))
        nodes.append(helper.make_node("Pad", ["chosen_" + source, pads], ["fitted_" + source]))
        inputs += [
            sizes(source),
            helper.make_tensor_value_info(rows, TensorProto.INT64, ["n_" + source]),
            helper.make_tensor_value_info(pads, TensorProto.INT64, [8]),
        ]
    nodes.append(helper.make_node("Concat", ["fitted_a", "fitted_b"], ["moved"], axis=0))
    return helper.make_graph(nodes, "rows", inputs, [sizes("moved")])


for suffix, kind in [("f32", TensorProto.FLOAT), ("f16", TensorProto.FLOAT16)]:
    model = helper.make_model(graph(kind), opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    checker.check_model(model)
    save(model, FOLDER / f"rows_{suffix}.onnx")
