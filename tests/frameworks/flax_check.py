# SPDX-License-Identifier: MIT
"""Trees written by flax.serialization: read, edited through a mount, converted, and restored by flax."""
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager

import flax.serialization as fs
import ml_dtypes
import numpy as np
from flax.core import freeze

wiamodel = os.path.abspath(sys.argv[1])
rng = np.random.default_rng(4)


def tree():
    return {
        "params": freeze({"Dense_0": {"kernel": rng.standard_normal((4, 8)).astype(np.float32), "bias": np.zeros(8, np.float32)},
                          "Embed": {"embedding": rng.standard_normal((5, 3)).astype(ml_dtypes.bfloat16)}}),
        "stats": {"mean": rng.standard_normal(6).astype(np.float16), "count": np.int64(7), "empty": np.zeros((0, 3))},
        "list": [np.arange(3), {"a": np.array(2.5)}], "f8": np.array([1, -2, .5], ml_dtypes.float8_e4m3fn),
        "i4": np.array([-8, 7, 0], ml_dtypes.int4), "z": np.array([1 + 2j, -3j], np.complex64),
        "step": 12, "name": "run", "none": None, "flag": True, "lr": 1e-3,
    }


def leaves(t, prefix=""):
    """{path: array} and {path: other leaf} of a state dict."""
    arrays, others = {}, {}
    for k, v in t.items():
        if isinstance(v, dict) and v:
            a, o = leaves(v, prefix + k + "/")
            arrays.update(a)
            others.update(o)
        elif isinstance(v, (np.ndarray, np.generic)):
            arrays[prefix + k] = np.asarray(v)
        else:
            others[prefix + k] = v
    return arrays, others


def same(path, want):
    with open(path, "rb") as f:
        got = fs.msgpack_restore(f.read())
    a, o = leaves(got)
    b, p = want
    assert sorted(a) == sorted(b), (sorted(a), sorted(b))
    for k in a:
        assert a[k].dtype == b[k].dtype and a[k].shape == b[k].shape, (k, a[k].dtype, a[k].shape)
        assert a[k].tobytes() == b[k].tobytes(), k
    assert o == p, (o, p)
    return got


@contextmanager
def mounted(model):
    folder = tempfile.mkdtemp()
    subprocess.run([wiamodel, "mount", model, folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run([wiamodel, "umount", folder], check=True)
        os.rmdir(folder)


with tempfile.TemporaryDirectory() as tmp:
    path = os.path.join(tmp, "flax_model.msgpack")
    with open(path, "wb") as out:
        out.write(fs.to_bytes(tree()))
    with open(path, "rb") as f:
        before = f.read()
    arrays, others = leaves(fs.msgpack_restore(before))

    # every array as the tree shows it; other leaves in metadata.json
    with mounted(path) as m:
        for k, v in arrays.items():
            shown = np.load(f"{m}/tensors/{k}.npy")
            assert shown.shape == v.shape and np.array_equal(shown, v.astype(shown.dtype)), k
        with open(m + "/metadata.json") as f:
            values = json.load(f)["values"]
        assert values == {k: v for k, v in others.items()}, values
    with open(path, "rb") as f:
        assert f.read() == before

    # values, shape, names, adding in a new folder, removing
    new = rng.standard_normal((4, 8)).astype(np.float32)
    with mounted(path) as m:
        np.save(m + "/tensors/params/Dense_0/kernel.npy", new)
        np.save(m + "/tensors/stats/mean.npy", np.arange(20, dtype=np.float16).reshape(4, 5))
        os.rename(m + "/tensors/params/Dense_0/bias.npy", m + "/tensors/params/Dense_0/offset.npy")
        os.makedirs(m + "/tensors/new/deep", exist_ok=True)
        for k in "ab":
            np.save(f"{m}/tensors/new/deep/{k}.npy", np.full(2, ord(k), np.int16))
        os.remove(m + "/tensors/z.npy")
    arrays["params/Dense_0/kernel"] = new
    arrays["stats/mean"] = np.arange(20, dtype=np.float16).reshape(4, 5)
    arrays["params/Dense_0/offset"] = arrays.pop("params/Dense_0/bias")
    arrays["new/deep/a"], arrays["new/deep/b"] = np.full(2, 97, np.int16), np.full(2, 98, np.int16)
    del arrays["z"]
    got = same(path, (arrays, others))
    assert fs.from_state_dict({"a": None}, {"a": got["new"]})

    # to another format and back; what has no place there is told
    st, back = os.path.join(tmp, "m.safetensors"), os.path.join(tmp, "back.msgpack")
    subprocess.run([wiamodel, "convert", "--lossy", path, st], check=True)
    subprocess.run([wiamodel, "convert", "--lossy", st, back], check=True)
    with open(back, "rb") as f:
        again, _ = leaves(fs.msgpack_restore(f.read()))
    assert sorted(again) == sorted(arrays)
    for k in again:
        assert np.array_equal(again[k].astype(np.complex128), arrays[k].astype(np.complex128)), k

    # beyond 2^30 bytes flax cuts arrays into pieces
    if os.environ.get("WIAMODEL_LARGE"):
        large = np.arange(2**28 + 5, dtype=np.int32)
        with open(path, "wb") as out:
            out.write(fs.to_bytes({"x": large, "y": np.ones(2)}))
        with mounted(path) as m:
            assert np.array_equal(np.load(m + "/tensors/x.npy", mmap_mode="r"), large)
            large[-1] = -1
            np.save(m + "/tensors/x.npy", large)
        with open(path, "rb") as f:
            assert np.array_equal(fs.msgpack_restore(f.read())["x"], large)
print("ok")
