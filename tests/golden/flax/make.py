# SPDX-License-Identifier: MIT
"""usage: make.py DIR    writes Flax MessagePack files byte by byte: the malformed bad-*, and good-* of every kind of leaf"""
import os
import struct
import sys


def s(text):
    b = text.encode()
    return bytes([0xa0 | len(b)]) + b if len(b) < 32 else b"\xd9" + bytes([len(b)]) + b


def m(*entries):
    return bytes([0x80 | len(entries)]) + b"".join((k if isinstance(k, bytes) else s(k)) + v for k, v in entries)


def lst(*items):
    return bytes([0x90 | len(items)]) + b"".join(items)


def ext(kind, body):
    return b"\xc7" + bytes([len(body), kind]) + body


def binary(b):
    return b"\xc4" + bytes([len(b)]) + b


def array(shape, dtype, data, kind=1):
    return ext(kind, lst(lst(*[bytes([d]) for d in shape]), s(dtype), binary(data)))


def chunked(shape, chunks, order=("__msgpack_chunked_array__", "shape", "chunks")):
    parts = {"__msgpack_chunked_array__": b"\xc3", "shape": m(*[(str(i), bytes([d])) for i, d in enumerate(shape)]),
             "chunks": m(*chunks)}
    return m(*[(k, parts[k]) for k in order])


def write(name, data):
    with open(os.path.join(sys.argv[1], name), "wb") as f:
        f.write(data)


F = struct.pack("<4f", 1, 2, 3, 4)
f4 = array([4], "float32", F)
write("good-leaves.msgpack", m(
    ("params", m(("w", array([2, 2], "float32", F)), ("empty", array([0, 3], "float32", b"")), ("a/b", f4))),
    ("scalar", array([], "float64", struct.pack("<d", 2.5), 3)), ("big", array([2], ">f4", struct.pack(">2f", 1, 2))),
    ("bf16", array([2], "bfloat16", b"\x80\x3f\x00\xc0")), ("i4", array([3], "int4", b"\x01\xff\x07")),
    ("unknown", array([2], "float8_e3m4", b"\x01\x02")),
    ("none", b"\xc0"), ("yes", b"\xc3"), ("minus", b"\xd1\xff\x00"), ("large", b"\xcf" + b"\xff" * 8),
    ("float", b"\xcb" + struct.pack(">d", 0.1)), ("text", s("\u043a")), ("bytes", binary(b"\x00\xff"))))
write("good-lists.msgpack", m(
    ("list", lst(f4, lst(f4, b"\x05"), lst())), ("tuple", ext(4, lst(f4, b"\x07"))), ("empty", m()),
    ("complex", ext(2, lst(b"\xcb" + struct.pack(">d", 1), b"\xcb" + struct.pack(">d", -2)))), (b"\x07", f4)))
A, B = array([3], "float32", F[:12]), array([1], "float32", F[12:])
write("good-chunked.msgpack", m(
    ("x", chunked([2, 2], [("0", A), ("1", B)])),
    ("sorted", chunked([4], [("1", B), ("0", A)], ("chunks", "shape", "__msgpack_chunked_array__"))),
    ("shape", m(("shape", f4), ("chunks", f4), ("other", f4)))))
write("good-damaged.msgpack", m(("sound", f4), ("short", array([5], "float32", F))))
write("bad-truncated.msgpack", m(("w", f4))[:-3])
write("bad-trailing.msgpack", m(("w", f4)) + b"\x00")
write("bad-array.msgpack", m(("w", f4), ("x", ext(1, lst(lst(), s("float32"))))))
write("bad-body.msgpack", m(("w", f4), ("x", ext(1, lst(lst(), s("int8"), binary(b"\x01")) + b"\x00"))))
write("bad-negative.msgpack", m(("w", f4), ("x", ext(1, lst(lst(b"\xff"), s("int8"), binary(b""))))))
write("bad-overflow.msgpack", m(("w", f4), ("x", ext(1, lst(lst(*[b"\xce\xff\xff\xff\xff"] * 3), s("int8"), binary(b""))))))
write("bad-count.msgpack", m(("w", f4), ("x", b"\xdf\xff\xff\xff\xff")))
write("bad-nesting.msgpack", m(("w", f4), ("x", b"\x91" * 1000 + b"\x00")))
write("bad-chunk-missing.msgpack", m(("w", f4), ("x", chunked([4], [("0", A), ("2", B)]))))
write("bad-chunk-twice.msgpack", m(("w", f4), ("x", chunked([4], [("0", A), ("0", B)]))))
write("bad-chunk-dtypes.msgpack", m(("w", f4), ("x", chunked([4], [("0", A), ("1", array([1], "int32", F[:4]))]))))
write("bad-key.msgpack", m(("w", f4), (b"\xc0", f4)))
write("bad-byte.msgpack", m(("w", f4), ("x", b"\xc1")))
