# SPDX-License-Identifier: MIT
"""Small models written byte by byte, with nothing but the standard library: what the mount tests mount."""
import json
import struct
import zipfile
import zlib


def floats(count, first=0.0):
    return struct.pack("<%df" % count, *(first + i for i in range(count)))


def safetensors(path, tensors, metadata=None):
    """tensors: {name: (dtype, shape, bytes)}"""
    header, offset = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def npy(descr, shape, data):
    text = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, tuple(shape))
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data


def zip_archive(path, members, deflate=False):
    """members: [(name, content)], names as bytes of any kind, which zipfile would not write"""
    body, directory = b"", b""
    for name, content in members:
        packed = content
        if deflate:
            z = zlib.compressobj(6, zlib.DEFLATED, -15)
            packed = z.compress(content) + z.flush()
        common = struct.pack("<HHHHHIIIHH", 20, 0x800, 8 if deflate else 0, 0, 0x21, zlib.crc32(content), len(packed),
                             len(content), len(name), 0)
        directory += b"PK\x01\x02" + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + name
        body += b"PK\x03\x04" + common + name + packed
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(body), 0)
    with open(path, "wb") as f:
        f.write(body + directory + end)


def npz(path, arrays, deflate=False):
    """arrays: [(name as bytes, descr, shape, data)]"""
    zip_archive(path, [(name + b".npy", npy(descr, shape, data)) for name, descr, shape, data in arrays], deflate)


# Protocol buffers: field(number, value) with an int (varint), a float (32 bits), str or bytes.

def varint(n):
    n &= (1 << 64) - 1
    out = b""
    while n > 0x7f:
        out += bytes([n & 0x7f | 0x80])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


FLOAT = 1


def tensor(name, dims, data=None, dtype=FLOAT, external=None):
    """external: {"location": ..., "offset": ..., "length": ...} instead of data"""
    out = b"".join(field(1, d) for d in dims) + field(2, dtype) + field(8, name)
    if external is None:
        return out + field(9, data)
    for key, value in external.items():
        out += field(13, field(1, key) + field(2, str(value)))
    return out + field(14, 1)


def value_info(name, dims, dtype=FLOAT):
    shape = b"".join(field(1, field(1, d) if isinstance(d, int) else field(2, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, dtype) + field(2, shape)))


def attribute(name, value):
    if isinstance(value, bytes):  # a message of type tensor
        return field(1, name) + field(5, value) + field(20, 4)
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, 2)
    if isinstance(value, float):
        return field(1, name) + field(2, value) + field(20, 1)
    return field(1, name) + field(4, value) + field(20, 3)


def node(kind, inputs, outputs, name="", **attributes):
    out = b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs)
    out += field(3, name) + field(4, kind)
    return out + b"".join(field(5, attribute(k, v)) for k, v in attributes.items())


def graph(nodes, tensors, inputs, outputs, name="main"):
    return (b"".join(field(1, n) for n in nodes) + field(2, name) + b"".join(field(5, t) for t in tensors) +
            b"".join(field(11, i) for i in inputs) + b"".join(field(12, o) for o in outputs))


def onnx(path, main, properties=None, **fields):
    """main: a graph"""
    out = field(1, 9) + field(2, fields.get("producer", "by hand")) + field(7, main) + field(8, field(1, "") + field(2, 17))
    for key, value in (properties or {}).items():
        out += field(14, field(1, key) + field(2, value))
    with open(path, "wb") as f:
        f.write(out)


def small_onnx(path, weight=1.0, alpha=0.5, properties=None, before=(), **fields):
    """Two layers: Gemm, LeakyRelu, Gemm."""
    onnx(path, graph(
        [node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h"], "fc1"),
         node("LeakyRelu", ["h"], ["a"], "act", alpha=alpha),
         node("Gemm", ["a", "fc2.weight"], ["y"], "fc2", transB=1)],
        [*before,
         tensor("fc1.weight", [4, 8], floats(31) + struct.pack("<f", weight)),
         tensor("fc1.bias", [8], floats(8)),
         tensor("fc2.weight", [2, 8], floats(16))],
        [value_info("x", ["batch", 4])], [value_info("y", ["batch", 2])]), properties, **fields)
