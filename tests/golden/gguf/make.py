# SPDX-License-Identifier: MIT
"""usage: make.py DIR    writes GGUF files byte by byte: the malformed bad-*, and good-* of other versions"""
import os
import struct
import sys


def s(b):
    b = b if isinstance(b, bytes) else b.encode()
    return struct.pack("<Q", len(b)) + b


def key(name, kind, value):
    return s(name) + struct.pack("<I", kind) + value


def info(name, dims, kind, offset):
    return s(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, offset)


def gguf(keys=(), infos=(), data=b"", counts=None, version=3):
    head = b"GGUF" + struct.pack("<IQQ", version, *(counts or (len(infos), len(keys)))) + b"".join(keys) + b"".join(infos)
    return head + bytes(-len(head) % 32) + data if data else head


def write(name, data):
    with open(os.path.join(sys.argv[1], name), "wb") as f:
        f.write(data)


ARCH = key("general.architecture", 8, s("llama"))
W = info("w", [2, 3], 0, 0)
DATA = struct.pack("<6f", *range(6)) + bytes(8)
sound = gguf([ARCH], [W], DATA)
V1 = (b"GGUF" + struct.pack("<III", 1, 1, 1) + struct.pack("<I", 1) + b"k" + struct.pack("<II", 4, 7) +
      struct.pack("<I", 1) + b"w" + struct.pack("<IIIQ", 1, 2, 0, 0))
write("good-v1.gguf", V1 + bytes(-len(V1) % 32) + struct.pack("<2f", 1, 2))
write("good-kinds.gguf", gguf([ARCH] + [key(f"k.{i}", i, v) for i, v in (
    (0, b"\xff"), (1, b"\xff"), (2, b"\xff\xff"), (3, b"\xff\xff"), (4, b"\xff" * 4), (5, b"\xff" * 4),
    (6, struct.pack("<f", 1e-5)), (7, b"\x02"), (10, b"\xff" * 8), (11, b"\xff" * 8), (12, struct.pack("<d", .1)))] + [
    key("bytes", 8, s(b"\xff\x00")), key("empty", 9, struct.pack("<IQ", 8, 0)),
    key("floats", 9, struct.pack("<IQ2f", 6, 2, .1, float("inf")))], [W], DATA))
write("good-unknown-type.gguf", gguf([ARCH], [W, info("x", [32], 99, 32)], DATA + bytes(32)))
write("good-short.gguf", gguf([ARCH], [W, info("x", [1000], 0, 32)], DATA))
write("bad-truncated.gguf", sound[:70])
write("bad-version.gguf", gguf([ARCH], [W], DATA, version=9))
write("bad-key-count.gguf", gguf([ARCH], counts=(0, 1 << 63)))
write("bad-tensor-count.gguf", gguf([ARCH], counts=(1 << 63, 1)))
write("bad-string.gguf", gguf([struct.pack("<Q", 1 << 40) + bytes(16)]))
write("bad-value-type.gguf", gguf([key("k", 77, bytes(8))]))
write("bad-array.gguf", gguf([key("k", 9, struct.pack("<IQ", 4, 1 << 62))]))
write("bad-nested.gguf", gguf([key("k", 9, struct.pack("<IQ", 9, 1) + struct.pack("<IQ", 9, 1) * 50)]))
write("bad-alignment.gguf", gguf([key("general.alignment", 4, struct.pack("<I", 24))], [W], DATA))
write("bad-key-twice.gguf", gguf([ARCH, ARCH], [W], DATA))
write("bad-tensor-twice.gguf", gguf([ARCH], [W, info("w", [2], 0, 32)], DATA + bytes(32)))
write("bad-overlap.gguf", gguf([ARCH], [info("w", [20], 0, 0), info("x", [2], 0, 32)], DATA + bytes(96)))
write("bad-unaligned.gguf", gguf([ARCH], [info("w", [2], 0, 4)], DATA))
write("bad-dims.gguf", gguf([ARCH], [info("w", [1 << 40, 1 << 40], 0, 0)], DATA))
write("bad-block.gguf", gguf([ARCH], [info("w", [33], 2, 0)], DATA))
write("bad-part-00002-of-00003.gguf", sound)
