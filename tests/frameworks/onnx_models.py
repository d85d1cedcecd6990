# SPDX-License-Identifier: MIT
"""ONNX models that hold every way to keep a number, made with the onnx package.

usage: onnx_models.py DIR    writes them all; tests/golden/onnx/good-* come from here
"""
import os
import sys

import ml_dtypes  # noqa: F401  (registers the types that numpy lacks)
import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh


def model(graph, opset=21, ir=10, functions=(), **kw):
    m = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)] + kw.pop("opsets", []), functions=functions, **kw)
    m.ir_version = ir
    m.producer_name = "maker"
    m.producer_version = ""
    return m


def ramp(*shape, dtype=np.float32, start=0):
    return (np.arange(np.prod(shape, dtype=int)) + start).reshape(shape).astype(dtype)


ODD = {T.INT4: 5, T.UINT4: 7, T.INT2: 5, T.UINT2: 6, T.FLOAT4E2M1: 3}


def bits_of(t, n):
    """n element patterns of data_type t, as unsigned integers."""
    width = {T.INT4: 4, T.UINT4: 4, T.FLOAT4E2M1: 4, T.INT2: 2, T.UINT2: 2, T.FLOAT6E2M3: 6, T.FLOAT6E3M2: 6}.get(t, 8)
    return [(3 * i + 1) % (1 << width) for i in range(n)], width


def packed(values, width):
    out, k = [], 8 // width
    for i in range(0, len(values), k):
        out.append(sum(v << (width * j) for j, v in enumerate(values[i:i + k])))
    return out


def sub_byte(name, t, field):
    n = ODD.get(t, 4)
    values, width = bits_of(t, n)
    p = T(name=name, data_type=t, dims=[n])
    if width in (4, 2):
        numbers = packed(values, width)
        raw = bytes(numbers)
    elif width == 6:
        numbers = values
        joined = sum(v << (6 * i) for i, v in enumerate(values))
        raw = joined.to_bytes((6 * n + 7) // 8, "little")
    else:
        numbers, raw = values, bytes(values)
    if field:
        p.int32_data.extend(numbers)
    else:
        p.raw_data = raw
    return p


def every_type():
    """raw_data and typed field of every data_type of IR 14."""
    plain = {
        T.FLOAT: np.float32, T.UINT8: np.uint8, T.INT8: np.int8, T.UINT16: np.uint16, T.INT16: np.int16,
        T.INT32: np.int32, T.INT64: np.int64, T.BOOL: np.bool_, T.FLOAT16: np.float16, T.DOUBLE: np.float64,
        T.UINT32: np.uint32, T.UINT64: np.uint64, T.COMPLEX64: np.complex64, T.COMPLEX128: np.complex128,
    }
    out = []
    for t, dtype in plain.items():
        label = T.DataType.Name(t).lower()
        a = ramp(2, 3, dtype=np.int64, start=-2 if np.dtype(dtype).kind in "ifc" else 0).astype(dtype)
        if np.dtype(dtype).kind == "c":
            a = a + np.array(1j, dtype) * ramp(2, 3, dtype=dtype)
        out.append(nh.from_array(a, f"raw_{label}"))
        values = a.ravel()
        if t == T.FLOAT16:
            values = values.view(np.uint16)
            p = T(name=f"field_{label}", data_type=t, dims=a.shape)
            p.int32_data.extend(int(v) for v in values)
        else:
            p = h.make_tensor(f"field_{label}", t, a.shape, values.tolist())
        out.append(p)
    p = T(name="field_bfloat16", data_type=T.BFLOAT16, dims=[3])
    p.int32_data.extend([0x3f80, 0xbf00, 0x7fc0])
    out.append(p)
    out.append(T(name="raw_bfloat16", data_type=T.BFLOAT16, dims=[2], raw_data=b"\x80\x3f\x00\xbf"))
    for t in range(T.FLOAT8E4M3FN, T.FLOAT6E3M2 + 1):
        label = T.DataType.Name(t).lower()
        out += [sub_byte(f"raw_{label}", t, False), sub_byte(f"field_{label}", t, True)]
    out.append(h.make_tensor("strings", T.STRING, [2, 2], [b"a", b"", "\u043a".encode(), b"\xff\x00"]))
    out.append(T(name="empty", data_type=T.FLOAT, dims=[0, 3]))
    out.append(nh.from_array(np.array(2.5), "scalar"))
    y = h.make_tensor_value_info("y", T.FLOAT, [2, 3])
    return model(h.make_graph([h.make_node("Identity", ["raw_float"], ["y"])], "types", [], [y], out), ir=14, opset=25)


def graphs():
    """Subgraphs three deep that repeat names, a function with a tensor in it, unnamed and equally named nodes."""
    def branch(value, inner=None):
        nodes = [h.make_node("Constant", [], ["c"], value=nh.from_array(np.float32([value]), "ignored"))]
        if inner:
            nodes.append(h.make_node("If", ["flag"], ["deep"], "inner", then_branch=inner, else_branch=branch(9)))
        nodes.append(h.make_node("Add", ["c", "w"], ["r"], "" if inner else "add"))
        out = h.make_tensor_value_info("r", T.FLOAT, [1])
        return h.make_graph(nodes, "branch", [], [out], [nh.from_array(np.float32([value + .5]), "w")])

    custom = h.make_function("org.example", "Scale", ["x"], ["y"], [
        h.make_node("Constant", [], ["k"], value=nh.from_array(np.float32([3]), "k")),
        h.make_node("Mul", ["x", "k"], ["y"])], [h.make_opsetid("", 21)], attributes=["alpha"])
    custom.node[1].attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="alpha")
    nodes = [
        h.make_node("If", ["flag"], ["a"], then_branch=branch(1, branch(2)), else_branch=branch(3)),
        h.make_node("Scale", ["a"], ["b"], "same", domain="org.example", alpha=2.0),
        h.make_node("Clip", ["b", "", "max"], ["c"], "same", doc_string="skips min"),
        h.make_node("Custom", ["c"], ["y", "", "z"], "every/kind", domain="org.example", f=1.5, i=-7, s="text", b=b"\xff",
                    fs=[1.0, float("nan"), float("inf")], ints=[2**62, -1], ss=["a", "b"], t=nh.from_array(ramp(2, 2), "t"),
                    ts=[nh.from_array(ramp(1), "t0"), nh.from_array(ramp(2), "t1")],
                    tp=h.make_tensor_type_proto(T.FLOAT, [1, "N"])),
    ]
    empty = onnx.AttributeProto(name="none", type=onnx.AttributeProto.INTS)
    nodes[-1].attribute.append(empty)
    nodes[-1].metadata_props.add(key="layer", value="3")
    ins = [h.make_tensor_value_info("flag", T.BOOL, [])]
    outs = [h.make_tensor_value_info("y", T.FLOAT, ["batch", None, 3]), h.make_tensor_value_info("z", T.FLOAT, None)]
    g = h.make_graph(nodes, "main", ins, outs, [nh.from_array(np.float32(6), "max")], doc_string="the graph")
    g.value_info.append(h.make_tensor_value_info("b", T.FLOAT, [1]))
    return model(g, functions=[custom], opsets=[h.make_opsetid("org.example", 1)])


def values():
    """Inputs of every type, symbolic shapes, denotations; metadata; quantisation annotations; sparse initializers."""
    seq = h.make_sequence_type_proto(h.make_tensor_type_proto(T.FLOAT, ["n"]))
    ins = [
        h.make_tensor_value_info("x", T.FLOAT, ["batch", 3, None, 0], "an image", ["DATA_BATCH", "", "", ""]),
        h.make_value_info("s", seq), h.make_value_info("m", h.make_map_type_proto(T.INT64, seq)),
        h.make_value_info("o", h.make_optional_type_proto(seq)),
        h.make_value_info("p", h.make_sparse_tensor_type_proto(T.DOUBLE, [3, 4])),
        h.make_tensor_value_info("w", T.UINT8, [2]),
    ]
    out = h.make_tensor_value_info("y", T.FLOAT, [])
    w = nh.from_array(np.uint8([3, 200]), "w")
    w.doc_string = "weights"
    w.metadata_props.add(key="origin", value="step 5")
    g = h.make_graph([h.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["y"])], "values", ins, [out],
                     [w, nh.from_array(np.float32(.5), "w_scale"), nh.from_array(np.uint8(128), "w_zero")])
    for name in ("w", "y"):
        a = g.quantization_annotation.add(tensor_name=name)
        a.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w_scale")
        a.quant_parameter_tensor_names.add(key="ZERO_POINT_TENSOR", value="w_zero")
    g.sparse_initializer.append(h.make_sparse_tensor(nh.from_array(np.float32([1, 2]), "sp"),
                                                     nh.from_array(np.int64([1, 7]), "ignored"), [3, 3]))
    m = model(g)
    m.model_version = 3
    m.doc_string = "two\nlines"
    m.domain = "org.example"
    h.set_model_props(m, {"model_author": "A. Uthor", "model_license": "MIT", "wiamodel.version": "3.1.4",
                          "wiamodel.created_at": "2026-01-02", "note": "\u043a"})
    return m


def write_external(folder):
    """Two data files, one below a folder, and a tensor that stays inside."""
    os.makedirs(os.path.join(folder, "parts"), exist_ok=True)
    a, b = ramp(16, 8), ramp(5, start=100)
    with open(os.path.join(folder, "model.onnx.data"), "wb") as f:
        f.write(bytes(64) + a.tobytes())
    with open(os.path.join(folder, "parts", "b.bin"), "wb") as f:
        f.write(b.tobytes())

    def external(name, array, location, **more):
        t = nh.from_array(array, name)
        t.ClearField("raw_data")
        t.data_location = T.EXTERNAL
        for k, v in dict(location=location, **more).items():
            t.external_data.add(key=k, value=str(v))
        return t

    y = h.make_tensor_value_info("y", T.FLOAT, [16, 8])
    nodes = [h.make_node("Identity", ["a"], ["y"])]
    g = h.make_graph(nodes, "external", [], [y], [external("a", a, "model.onnx.data", offset=64, length=a.nbytes),
                                                  external("b", b, "parts/b.bin"), nh.from_array(ramp(2), "c")])
    onnx.save(model(g), os.path.join(folder, "model.onnx"))


def write_all(folder):
    os.makedirs(os.path.join(folder, "good-external"), exist_ok=True)
    for name, m in (("types", every_type()), ("graphs", graphs()), ("values", values())):
        onnx.save(m, os.path.join(folder, f"good-{name}.onnx"))
    write_external(os.path.join(folder, "good-external"))


if __name__ == "__main__":
    write_all(sys.argv[1])
