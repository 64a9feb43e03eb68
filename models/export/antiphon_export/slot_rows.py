"""Writes the graphs that move caches of streams on a GPU: crates/engines/src/stt/transducer/{gather,scatter}_{f32,f16}.onnx.

    python -m antiphon_export.slot_rows

`gather`: `picked` is the rows `rows` ([n]) of `slots`. `scatter`: `next` is `slots` with `updates` as its rows `rows` ([n, 1]);
bound to the same memory as `slots` it writes nothing else. All caches are [slots, layers, a, b]. Needs the package onnx.
"""

import pathlib

from onnx import TensorProto, checker, helper, save

FOLDER = pathlib.Path(__file__).parents[3] / "crates/engines/src/stt/transducer"


def caches(name, kind, rows):
    return helper.make_tensor_value_info(name, kind, [rows, "layers", "a", "b"])


def write(name, nodes, inputs, outputs):
    graph = helper.make_graph(nodes, name, inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    checker.check_model(model)
    save(model, FOLDER / f"{name}.onnx")


for suffix, kind in [("f32", TensorProto.FLOAT), ("f16", TensorProto.FLOAT16)]:
    rows = helper.make_tensor_value_info("rows", TensorProto.INT64, ["n"])
    gather = helper.make_node("Gather", ["slots", "rows"], ["picked"], axis=0)
    write(f"gather_{suffix}", [gather], [caches("slots", kind, "slots"), rows], [caches("picked", kind, "n")])
    rows = helper.make_tensor_value_info("rows", TensorProto.INT64, ["n", 1])
    scatter = helper.make_node("ScatterND", ["slots", "rows", "updates"], ["next"])
    inputs = [caches("slots", kind, "slots"), rows, caches("updates", kind, "n")]
    write(f"scatter_{suffix}", [scatter], inputs, [caches("next", kind, "slots")])
