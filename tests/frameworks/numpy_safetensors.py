# SPDX-License-Identifier: MIT
"""Models made by NumPy and safetensors, read by wiamodel, converted, and read back by the framework."""
import os
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file, save_file

wiamodel = sys.argv[1]
rng = np.random.default_rng(3)
tensors = {
    "a.weight": rng.standard_normal((7, 5)).astype(np.float32),
    "b": rng.integers(-9, 9, (3, 2, 4)).astype(np.int64),
    "c/d": rng.standard_normal(11).astype(np.float16),
    "flag": np.array([True, False, True]),
    "empty": np.zeros((0, 3), np.float32),
    "scalar": np.array(2.5),
    "u8": np.arange(200, dtype=np.uint8),
}


def same(found, where):
    assert sorted(found) == sorted(tensors), (where, sorted(found))
    for name, want in tensors.items():
        got = found[name]
        assert got.dtype == want.dtype and got.shape == want.shape, (where, name, got.dtype, got.shape)
        assert np.array_equal(got, want), (where, name)


def shown(model, folder):
    """Every tensor as the tree shows it."""
    subprocess.run([wiamodel, "extract", model, "tensors", folder], check=True)
    top = os.path.join(folder, "tensors")
    out = {}
    for base, _, files in os.walk(top):
        for f in files:
            path = os.path.join(base, f)
            out[os.path.relpath(path, top)[:-len(".npy")]] = np.load(path, mmap_mode=None)
    return out


with tempfile.TemporaryDirectory() as tmp:
    st, npz = os.path.join(tmp, "m.safetensors"), os.path.join(tmp, "m.npz")
    save_file(tensors, st, metadata={"format": "np"})
    np.savez(npz, **tensors)
    packed = os.path.join(tmp, "p.npz")
    np.savez_compressed(packed, **tensors)
    for i, model in enumerate((st, npz, packed)):
        same(shown(model, os.path.join(tmp, f"x{i}")), model)
    back = os.path.join(tmp, "back.safetensors")
    subprocess.run([wiamodel, "convert", npz, back], check=True)
    same(load_file(back), "npz to safetensors")
    back = os.path.join(tmp, "back.npz")
    subprocess.run([wiamodel, "convert", "--lossy", st, back], check=True)
    with np.load(back, allow_pickle=False) as z:
        same({k: z[k] for k in z.files}, "safetensors to npz")
print("ok")
