# SPDX-License-Identifier: MIT
"""usage: make.py DIR    writes the malformed ONNX models bad-* and the odd but readable ones, byte by byte.

The other good-* are written by tests/frameworks/onnx_models.py.
"""
import os
import struct
import sys


def varint(v):
    out = b""
    v &= (1 << 64) - 1
    while v >= 128:
        out, v = out + bytes([v & 127 | 128]), v >> 7
    return out + bytes([v])


def num(field, v):
    return varint(field << 3) + varint(v)


def blob(field, b):
    return varint(field << 3 | 2) + varint(len(b)) + b


def entry(k, v):
    return blob(1, k) + blob(2, v)


def tensor(name, dims, data_type=1, *fields):
    return b"".join(num(1, d) for d in dims) + num(2, data_type) + blob(8, name) + b"".join(fields)


def external(location, **more):
    out = blob(13, entry(b"location", location))
    for k, v in more.items():
        out += blob(13, entry(k.encode(), v))
    return out + num(14, 1)


def model(*graph):
    node = blob(1, blob(2, b"y") + blob(4, b"Constant"))
    return num(1, 10) + blob(7, node + blob(2, b"g") + b"".join(graph)) + blob(8, num(2, 21))


def init(*args):
    return blob(5, tensor(*args))


RAW2 = blob(9, bytes(8))
top = sys.argv[1]


def write(name, data):
    path = os.path.join(top, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def folder(name, data):
    write(f"{name}/model.onnx", data)
    write(f"{name}/.model", b"model.onnx\n")


whole = model(init(b"w", [2], 1, RAW2))
write("bad-truncated.onnx", whole[:-20])
write("bad-no-graph.onnx", num(1, 10) + blob(2, b"maker") + blob(8, num(2, 21)))
deep = b""
for _ in range(40):
    deep = blob(1, blob(4, b"If") + blob(5, blob(1, b"then_branch") + blob(6, deep)))
write("bad-nested.onnx", model(deep))
write("bad-overflow.onnx", model(init(b"w", [1 << 40, 1 << 40], 1, RAW2)))
write("bad-negative.onnx", model(init(b"w", [-2], 1, RAW2)))
write("bad-rank.onnx", model(init(b"w", [1] * 65, 1, RAW2)))
write("bad-varint.onnx", num(1, 10) + blob(7, blob(5, b"\x08" + b"\xff" * 11)) + blob(8, b""))
write("bad-group.onnx", num(1, 10) + blob(7, b"\x0b\x0c") + blob(8, b""))
write("bad-wire-type.onnx", num(1, 10) + blob(7, num(1, 5) + blob(2, b"g")) + blob(8, b""))
write("bad-text.onnx", b'ir_version: 10\nproducer_name: "maker"\ngraph {\n  name: "g"\n}\n')
write("bad-json.onnx", b'{\n  "ir_version": "10",\n  "graph": {}\n}\n')
write("bad-language.onnx", b'<\n   ir_version: 10,\n   opset_import: ["" : 21]\n>\ng () => (float y) {\n}\n')
folder("bad-external-missing", model(init(b"w", [2], 1, external(b"gone.bin"))))
folder("bad-external-none", model(init(b"w", [2], 1, num(14, 1))))
folder("bad-external-parent", model(init(b"w", [2], 1, external(b"../good-external/model.onnx.data"))))
folder("bad-external-absolute", model(init(b"w", [2], 1, external(b"/etc/passwd"))))
folder("bad-external-memory", model(init(b"w", [2], 1, external(b"*/_ORT_MEM_ADDR_/*", offset=b"4096"))))
folder("bad-external-symlink", model(init(b"w", [2], 1, external(b"link.bin"))))
link = os.path.join(top, "bad-external-symlink/link.bin")
if not os.path.islink(link):
    os.symlink("../good-external/model.onnx.data", link)

# one tensor each is damaged, the rest is not
write("good-damaged.onnx", model(
    init(b"sound", [2], 1, RAW2),
    init(b"short", [3], 1, RAW2),
    init(b"long", [1], 1, RAW2),
    init(b"none", [2], 1),
    init(b"unknown", [2], 99, RAW2),
    init(b"two-fields", [2], 1, RAW2, blob(4, bytes(8))),
    init(b"wrong-field", [2], 1, blob(7, b"\x01\x02")),
    init(b"few-numbers", [3], 7, blob(7, b"\x01\x02")),
    init(b"many-numbers", [1], 7, blob(7, b"\x01\x02")),
    init(b"segment", [2], 1, blob(3, num(1, 0) + num(2, 2)), RAW2),
    init(b"string-count", [2], 8, blob(6, b"one"))))
folder("good-external-damaged", model(
    init(b"sound", [2], 1, external(b"data.bin", offset=b"8", length=b"8")),
    init(b"to-the-end", [2], 1, external(b"data.bin", offset=b"0008")),
    init(b"zero-length", [2], 1, external(b"./data.bin", length=b"0")),
    init(b"past", [2], 1, external(b"data.bin", offset=b"12")),
    init(b"sign", [2], 1, external(b"data.bin", offset=b"+8")),
    init(b"wrong-length", [2], 1, external(b"data.bin", length=b"4"))))
write("good-external-damaged/data.bin", bytes(range(16)))
# what other writers may do: unpacked and split numbers, padded lengths, fields twice, unknown fields, no trailing order
floats = struct.pack("<4f", 1, 2, 3, 4)
unpacked = b"".join(varint(4 << 3 | 5) + floats[i:i + 4] for i in range(0, 16, 4))
padded = model(
    init(b"unpacked", [4], 1, unpacked),
    init(b"split", [4], 1, blob(4, floats[:8]), blob(4, floats[8:])),
    init(b"mixed", [4], 1, blob(4, floats[:8]), unpacked[10:]),
    init(b"negative", [3], 6, blob(5, varint(-1) + b"\x05" + varint(-128))),
    blob(5, blob(9, bytes(4)) + blob(9, bytes(8)) + tensor(b"payload-first", [2])),
    blob(5, blob(1, b"\x02\x03") + num(2, 3) + blob(8, b"packed-dims") + blob(9, bytes(6))),
    blob(99, b"unknown"))
write("good-odd.onnx", padded + blob(7, init(b"merged", [1], 3, blob(9, b"\x07"))) + blob(14, entry(b"k", b"v1")) +
      blob(14, entry(b"k", b"v2")))
