# SPDX-License-Identifier: MIT
"""GGUF files of the gguf package: read, edited through a mount, converted, and read by GGUFReader again."""
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager

import numpy as np
from gguf import GGMLQuantizationType as Q
from gguf import GGUFReader, GGUFWriter
from gguf.quants import dequantize, quantize

wiamodel = os.path.abspath(sys.argv[1])
rng = np.random.default_rng(5)
QUANTIZED = [Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.BF16, Q.TQ1_0, Q.TQ2_0, Q.MXFP4]
# blocks of any bytes are blocks of these, and what they decode to is compared
DECODED = QUANTIZED + [Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.IQ4_NL, Q.IQ4_XS]


def write(path):
    w = GGUFWriter(path, "llama")
    w.add_name("test")
    w.add_author("somebody")
    w.add_block_count(2)
    w.add_rope_freq_base(10000.0)
    w.add_uint64("big", 2**63 + 1)
    w.add_bool("flag", True)
    w.add_array("numbers", [1, -2, 3])
    w.add_token_list(["<s>", "a", "\u00e9"])
    w.add_chat_template("{{ messages }}")
    w.add_tensor("plain.f32", rng.standard_normal((3, 64)).astype(np.float32))
    w.add_tensor("plain.f16", rng.standard_normal(64).astype(np.float16))
    w.add_tensor("plain.i32", np.arange(5, dtype=np.int32))
    for q in QUANTIZED:
        w.add_tensor(q.name.lower(), quantize(rng.standard_normal((2, 256)).astype(np.float32), q), raw_dtype=q)
    for q in DECODED[len(QUANTIZED):]:
        size = quantize_size(q, 512)
        w.add_tensor(q.name.lower(), rng.integers(0, 256, (2, size // 2), dtype=np.uint8), raw_dtype=q)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def quantize_size(q, n):
    from gguf.constants import GGML_QUANT_SIZES
    block, size = GGML_QUANT_SIZES[q]
    return n // block * size


def state(path):
    """Keys with types, in order, and tensors with types and bytes."""
    r = GGUFReader(path)
    keys = {k: ([int(t) for t in f.types], f.contents()) for k, f in r.fields.items() if not k.startswith("GGUF.")}
    return keys, {t.name: (t.tensor_type, tuple(int(d) for d in t.shape), t.data.tobytes()) for t in r.tensors}


@contextmanager
def mounted(model):
    folder = tempfile.mkdtemp()
    subprocess.run([wiamodel, "mount", model, folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run([wiamodel, "umount", folder], check=True)
        os.rmdir(folder)


def edit(path, change):
    with mounted(path) as m:
        with open(m + "/metadata.json") as f:
            meta = json.load(f)
        change(meta)
        with open(m + "/metadata.json", "w") as f:
            json.dump(meta, f)


with tempfile.TemporaryDirectory() as tmp:
    path = os.path.join(tmp, "m.gguf")
    write(path)
    keys, tensors = state(path)
    with mounted(path) as m:
        for t in GGUFReader(path).tensors:
            with open(f"{m}/raw/{t.name}", "rb") as f:
                assert f.read() == t.data.tobytes(), t.name
            shown = np.load(f"{m}/tensors/{t.name}.npy")
            want = dequantize(t.data, t.tensor_type) if t.tensor_type in DECODED else t.data
            assert shown.dtype == want.dtype and shown.shape == want.shape, (t.name, shown.shape, want.shape)
            assert shown.tobytes() == want.tobytes(), t.name  # bit for bit, NaN too

    # a longer template moves the data section and changes nothing else
    for more in (1, 31, 32, 33, 10 << 20):
        text = "x" * more

        def longer(meta):
            meta["properties"]["tokenizer.chat_template"] = text
        edit(path, longer)
        keys["tokenizer.chat_template"] = (keys["tokenizer.chat_template"][0], text)
        assert state(path) == (keys, tensors), more

    # keys: types stay; new ones and removed ones
    def several(meta):
        meta["properties"]["llama.rope.freq_base"] = 500000
        meta["properties"]["llama.block_count"] = 3
        meta["properties"]["numbers"] = [4, 5]
        meta["properties"]["new"] = "text"
        del meta["properties"]["flag"]
        meta["model"]["author"] = "somebody else"
    edit(path, several)
    for k, v in (("llama.rope.freq_base", 500000.0), ("llama.block_count", 3), ("numbers", [4, 5]),
                 ("general.author", "somebody else")):
        keys[k] = (keys[k][0], v)
    del keys["flag"]
    keys["new"] = ([8], "text")
    assert state(path) == (keys, tensors), (state(path)[0], keys)
    with mounted(path) as m:
        with open(m + "/metadata.json") as f:
            meta = json.load(f)
        meta["properties"]["llama.block_count"] = -1
        try:
            with open(m + "/metadata.json", "w") as f:
                json.dump(meta, f)
            raise AssertionError("-1 went into a u32")
        except OSError:
            pass

    # tensors: values, blocks, names, shape, adding, removing
    new = rng.standard_normal((3, 64)).astype(np.float32)
    with mounted(path) as m:
        np.save(m + "/tensors/plain.f32.npy", new)
        with open(m + "/raw/q4_0", "r+b") as f:
            f.write(bytes(18))
        os.rename(m + "/tensors/plain.i32.npy", m + "/tensors/renamed.npy")
    kind, shape, data = tensors["q4_0"]
    tensors["q4_0"] = (kind, shape, bytes(18) + data[18:])
    kind, shape, data = tensors["plain.f32"]
    tensors["plain.f32"] = (kind, shape, new.tobytes())
    tensors["renamed"] = tensors.pop("plain.i32")
    assert state(path) == (keys, tensors)
    with mounted(path) as m:
        np.save(m + "/tensors/added.npy", np.arange(7, dtype=np.int16))
        np.save(m + "/tensors/plain.f16.npy", np.arange(40, dtype=np.float16).reshape(2, 20))
        os.remove(m + "/tensors/renamed.npy")
    tensors["added"] = (Q.I16, (7,), np.arange(7, dtype=np.int16).tobytes())
    tensors["plain.f16"] = (Q.F16, (20, 2), np.arange(40, dtype=np.float16).tobytes())
    del tensors["renamed"]
    assert state(path) == (keys, tensors)

    # to safetensors as real values, and back
    st, back = os.path.join(tmp, "m.safetensors"), os.path.join(tmp, "back.gguf")
    subprocess.run([wiamodel, "convert", "--lossy", "--real", path, st], check=True, stderr=subprocess.DEVNULL)
    subprocess.run([wiamodel, "convert", "--lossy", st, back], check=True)
    again = {t.name: t.data for t in GGUFReader(back).tensors}
    for t in GGUFReader(path).tensors:
        want = dequantize(t.data, t.tensor_type) if t.tensor_type in DECODED else t.data
        assert np.array_equal(again[t.name], want, equal_nan=True) or t.tensor_type == Q.BF16, t.name
print("ok")
