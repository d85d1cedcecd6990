# SPDX-License-Identifier: MIT
"""Models of the onnx package and of silero-vad, compared tensor by tensor; edited through a mount and run again."""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

import onnx_models

onnxruntime.set_default_logger_severity(3)

wiamodel = os.path.abspath(sys.argv[1])
mount_wiamodel = os.path.join(os.path.dirname(wiamodel), "mount.wiamodel")
BITS = {T.INT4: 4, T.UINT4: 4, T.FLOAT4E2M1: 4, T.INT2: 2, T.UINT2: 2, T.FLOAT6E2M3: 6, T.FLOAT6E3M2: 6}


# ---- what the framework says ----

def op_name(n):
    return n.name or (n.output[0] if n.output else n.op_type)


def of_nodes(nodes, prefix, out):
    for n in nodes:
        name = prefix + op_name(n)
        constant = n.op_type == "Constant" and n.output
        for a in n.attribute:
            at = prefix + n.output[0] if constant else f"{name}.{a.name}"
            if a.HasField("t"):
                out.append((at, a.t))
            if a.HasField("sparse_tensor"):
                out += [(at + ".values", a.sparse_tensor.values), (at + ".indices", a.sparse_tensor.indices)]
            for k, t in enumerate(a.tensors):
                out.append((f"{name}.{a.name}.{k}", t))
            if a.HasField("g"):
                of_graph(a.g, f"{name}/{a.name}/", out)
            for k, g in enumerate(a.graphs):
                of_graph(g, f"{name}/{a.name}.{k}/", out)


def of_graph(g, prefix, out):
    out += [(prefix + t.name, t) for t in g.initializer]
    for s in g.sparse_initializer:
        out += [(prefix + s.values.name + ".values", s.values), (prefix + s.values.name + ".indices", s.indices)]
    of_nodes(g.node, prefix, out)


def tensors_of(m):
    out = []
    of_graph(m.graph, "", out)
    for f in m.functions:
        label = (f.domain + "." if f.domain else "") + f.name + (":" + f.overload if f.overload else "")
        of_nodes(f.node, f"functions/{label}/", out)
    return out


def pack(values, width):
    joined = 0
    for i, v in enumerate(values):
        joined |= int(v) << (width * i)
    return joined.to_bytes((width * len(values) + 7) // 8, "little")


def content(t, folder):
    """The elements as raw/ shows them."""
    if t.data_type == T.STRING:
        return b"".join(len(s).to_bytes(4, "little") + s for s in t.string_data)
    a = nh.to_array(t, folder)
    if t.data_type in BITS:
        width = BITS[t.data_type]
        return pack(a.view(np.uint8).ravel() & ((1 << width) - 1), width)
    return a.tobytes()


# ---- what wiamodel says ----

def shown(model):
    with tempfile.TemporaryDirectory() as tmp:
        for part in ("info", "raw"):
            subprocess.run([wiamodel, "extract", model, part, os.path.join(tmp, part)], check=True)
        found = {}
        for base, _, files in os.walk(os.path.join(tmp, "info")):
            for f in files:
                path = os.path.join(base, f)
                with open(path) as i:
                    info = json.load(i)
                raw = os.path.join(tmp, "raw", "raw", os.path.relpath(path, os.path.join(tmp, "info", "info"))[:-5])
                with open(raw, "rb") as r:
                    found.setdefault(info["name"], []).append((info["shape"], r.read()))
        return found


def same_tensors(model):
    """Every tensor of the model, against numpy_helper. Their number."""
    want = tensors_of(onnx.load(model, load_external_data=False))
    if not want:
        subprocess.run([wiamodel, "ls", model], check=True, stdout=subprocess.DEVNULL)
        return 0
    found = shown(model)
    assert sum(len(v) for v in found.values()) == len(want), model
    for name, t in want:
        assert (list(t.dims), content(t, os.path.dirname(model))) in found.get(name, []), (model, name)
    return len(want)


@contextmanager
def mounted(model, *options):
    folder = tempfile.mkdtemp()
    subprocess.run([mount_wiamodel, model, folder, *options], check=True)
    try:
        yield folder
    finally:
        subprocess.run([wiamodel, "umount", folder], check=True)
        os.rmdir(folder)


# ---- the checks ----

def reading(tmp):
    package = os.path.dirname(onnx.__file__)
    models = sorted(glob.glob(package + "/backend/test/data/**/*.onnx", recursive=True))
    assert len(models) >= 140, len(models)
    here = os.path.join(tmp, "made")
    onnx_models.write_all(here)
    models += sorted(glob.glob(here + "/**/*.onnx", recursive=True))
    silero = sorted(glob.glob(os.path.join(os.path.dirname(package), "silero_vad/data/*.onnx")))
    assert silero, "silero-vad holds no ONNX model"
    total = sum(same_tensors(m) for m in models + silero)
    print(f"{len(models) + len(silero)} models, {total} tensors equal")
    for m in models + silero:  # nothing edited: nothing changes
        out = os.path.join(tmp, "same.onnx")
        subprocess.run([wiamodel, "convert", "--force", "--to", "onnx", m, out], check=True)
        if not os.path.exists(out + ".data"):
            with open(m, "rb") as a, open(out, "rb") as b:
                assert a.read() == b.read(), m
        else:
            os.remove(out + ".data")


def classifier(external=None):
    rng = np.random.default_rng(1)
    w1, w2 = rng.standard_normal((4, 8)).astype(np.float32), rng.standard_normal((8, 3)).astype(np.float32)
    inits = [nh.from_array(w1, "w1"), nh.from_array(w2, "w2"), nh.from_array(np.zeros(3, np.float32), "bias"),
             nh.from_array(np.ones(2, np.int64), "unused")]
    then = h.make_graph([h.make_node("Add", ["l", "bias"], ["t"])], "then", [], [h.make_tensor_value_info("t", T.FLOAT, None)])
    other = h.make_graph([h.make_node("Constant", [], ["k"], value=nh.from_array(np.float32([5]), "k")),
                          h.make_node("Mul", ["l", "k"], ["e"])], "else", [], [h.make_tensor_value_info("e", T.FLOAT, None)])
    nodes = [h.make_node("MatMul", ["x", "w1"], ["a"], "first"), h.make_node("Relu", ["a"], ["r"]),
             h.make_node("MatMul", ["r", "w2"], ["l"], "second"),
             h.make_node("If", ["flag"], ["y"], "if", then_branch=then, else_branch=other)]
    g = h.make_graph(nodes, "classifier", [h.make_tensor_value_info("x", T.FLOAT, ["n", 4]),
                                           h.make_tensor_value_info("flag", T.BOOL, [])],
                     [h.make_tensor_value_info("y", T.FLOAT, ["n", 3])], inits)
    g.value_info.append(h.make_tensor_value_info("a", T.FLOAT, ["n", 8]))
    m = onnx_models.model(g)
    h.set_model_props(m, {"note": "kept", "model_author": "first author"})
    return m


def run(path, flag=True):
    s = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    return s.run(None, {"x": x, "flag": np.array(flag)})[0]


def expected(w1, w2, bias, k=5, flag=True):
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    left = np.maximum(x @ w1, 0) @ w2
    return left + bias if flag else left * k


def refused(what, path, data):
    """Writing fails, with EINVAL at the latest when closing, and the reason is told."""
    try:
        with open(path, "wb") as f:
            f.write(data)
    except OSError:
        return
    raise AssertionError(what)


def editing(tmp):
    path = os.path.join(tmp, "edit.onnx")
    onnx.save(classifier(), path)
    before = onnx.load(path)
    w1, w2 = nh.to_array(before.graph.initializer[0]), nh.to_array(before.graph.initializer[1])
    bias = np.float32([1, 2, 3])
    with mounted(path) as m:
        np.save(m + "/tensors/bias.npy", bias)
        wide = np.load(m + "/tensors/w1.npy", mmap_mode="r+")
        wide[0, 0] = 7
        wide.flush()
        del wide
    w1 = w1.copy()
    w1[0, 0] = 7
    onnx.checker.check_model(path, full_check=True)
    assert np.allclose(run(path), expected(w1, w2, bias)), "values"
    same_tensors(path)

    # shapes: 8 hidden units become 5; value_info that is stale goes
    w1, w2 = w1[:, :5].copy(), w2[:5].copy()
    with mounted(path) as m:
        np.save(m + "/tensors/w1.npy", w1)
        np.save(m + "/tensors/w2.npy", np.asfortranarray(w2))
    onnx.checker.check_model(path, full_check=True)
    assert np.allclose(run(path), expected(w1, w2, bias)), "shapes"

    # names, also of what a subgraph reads and of a Constant; adding; removing; refusals
    with mounted(path) as m:
        os.rename(m + "/tensors/bias.npy", m + "/tensors/offset.npy")
        os.rename(m + "/tensors/w1.npy", m + "/tensors/layer.weight.npy")
        os.rename(m + "/tensors/if/else_branch/k.npy", m + "/tensors/if/else_branch/scale.npy")
        np.save(m + "/tensors/more.npy", np.arange(6, dtype=np.int32).reshape(2, 3))
        os.remove(m + "/tensors/unused.npy")
        try:
            os.remove(m + "/tensors/w2.npy")
            raise AssertionError("a used tensor was removed")
        except OSError:
            pass
        refused("no .npy", m + "/tensors/w2.npy", b"\x93NUMPY")
        with open(m + "/metadata.json") as f:
            meta = json.load(f)
        meta["model"].update(version="4.5.6", description="edited", author="second author", producer="me", name="new name")
        meta["properties"]["more"] = "\u043a"
        with open(m + "/metadata.json", "w") as f:
            json.dump(meta, f)
    after = onnx.load(path)
    onnx.checker.check_model(path, full_check=True)
    assert np.allclose(run(path), expected(w1, w2, bias)), "names"
    assert np.allclose(run(path, False), expected(w1, w2, bias, flag=False)), "names in a subgraph"
    assert [t.name for t in after.graph.initializer] == ["layer.weight", "w2", "offset", "more"]
    assert after.model_version == 4 and after.doc_string == "edited" and after.producer_name == "me"
    assert after.graph.name == "new name" and after.graph.node[0].input[1] == "layer.weight"
    props = {p.key: p.value for p in after.metadata_props}
    assert props == {"note": "kept", "more": "\u043a", "model_author": "second author", "wiamodel.version": "4.5.6"}, props
    same_tensors(path)


def external(tmp):
    folder = os.path.join(tmp, "external")
    onnx_models.write_external(folder)
    path = os.path.join(folder, "model.onnx")
    size = os.path.getsize(path + ".data")
    a = np.arange(128, dtype=np.float32).reshape(16, 8)[::-1].copy()
    for step in range(3):
        with mounted(path) as m:
            np.save(m + "/tensors/a.npy", a + step)
    onnx.checker.check_model(path, full_check=True)
    data = [f for f in os.listdir(folder) if ".data" in f]
    assert len(data) == 1 and os.path.getsize(os.path.join(folder, data[0])) <= size, data
    assert np.array_equal(nh.to_array(onnx.load(path).graph.initializer[0]), a + 2)
    s = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert np.array_equal(s.run(None, {})[0], a + 2)
    same_tensors(path)


def conversions(tmp):
    path, st, back = (os.path.join(tmp, f) for f in ("c.onnx", "c.safetensors", "back.onnx"))
    onnx.save(classifier(), path)
    subprocess.run([wiamodel, "convert", "--lossy", path, st], check=True)
    subprocess.run([wiamodel, "convert", st, back], check=True)
    onnx.checker.check_model(back, full_check=True)
    onnxruntime.InferenceSession(back, providers=["CPUExecutionProvider"]).run(None, {})
    names = {t.name: nh.to_array(t) for t in onnx.load(back).graph.initializer}
    for t in onnx.load(path).graph.initializer:
        assert np.array_equal(names[t.name], nh.to_array(t)), t.name


with tempfile.TemporaryDirectory() as top:
    reading(top)
    editing(top)
    external(top)
    conversions(top)
print("ok")
