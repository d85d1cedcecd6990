#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the hand-made models beside it (good-views, good-byteorder, good-inert, bad-*); the others were saved by torch 2.13.0."""
import os
import struct
import zipfile

here = os.path.dirname(os.path.abspath(__file__))


def u(s):
    b = s.encode()
    return b"X" + struct.pack("<I", len(b)) + b


def i(n):
    return b"J" + struct.pack("<i", n)


def ints(*n):
    return b"(" + b"".join(i(x) for x in n) + b"t"


def tensor(key, numel, offset, size, stride, kind="FloatStorage", facts=b""):
    return (b"ctorch._utils\n_rebuild_tensor_v2\n((" + u("storage") + b"ctorch\n" + kind.encode() + b"\n" + u(key) + u("cpu") +
            i(numel) + b"tQ" + i(offset) + ints(*size) + ints(*stride) + b"\x89ccollections\nOrderedDict\n)R" + facts + b"tR")


def table(**items):
    return b"}(" + b"".join(u(k) + v for k, v in items.items()) + b"u"


def save(name, pickle, order=None, **data):
    with zipfile.ZipFile(os.path.join(here, name + ".pt"), "w", zipfile.ZIP_DEFLATED if len(pickle) > 9999 else zipfile.ZIP_STORED) as z:
        members = [("data.pkl", b"\x80\x02" + pickle)] + [("data/" + k[1:], v) for k, v in data.items()]
        if order:
            members.append(("byteorder", order))
        for member, content in members + [("version", b"3\n")]:
            z.writestr(zipfile.ZipInfo("m/" + member), content, z.compression)


floats = struct.pack("<6f", *range(6))
save("good-views", table(
    whole=tensor("0", 6, 0, (2, 3), (3, 1)), transposed=tensor("0", 6, 0, (3, 2), (1, 3)),
    row=tensor("0", 6, 3, (3,), (1,)), tied=tensor("0", 6, 0, (2, 3), (3, 1)), spread=tensor("0", 6, 1, (4, 2), (0, 1)),
    scalar=tensor("0", 6, 5, (), ()), outside=tensor("0", 6, 4, (3,), (1,)), far=tensor("0", 6, 0, (2, 2), (2**31 - 1, 1)),
    lost=tensor("9", 6, 0, (6,), (1,)), short=tensor("0", 7, 0, (6,), (1,)), odd=tensor("0", 6, 0, (6,), (1,), "OddStorage"),
    negative=tensor("0", 6, 0, (-1,), (1,))) + b".", d0=floats)
save("good-lazy", table(
    conj=tensor("0", 6, 0, (3,), (1,), "ComplexFloatStorage", table(conj=b"\x88")),
    neg=tensor("0", 6, 0, (3,), (1,), "ComplexFloatStorage", table(neg=b"I01\n")),
    plain=tensor("0", 6, 0, (3,), (1,), "ComplexFloatStorage", table(conj=b"\x89"))) + b".", d0=floats * 2)
save("good-byteorder", table(w=tensor("0", 6, 0, (6,), (1,))) + b".", b"big", d0=struct.pack(">6f", *range(6)))
save("good-inert", table(
    call=b"cos\nsystem\n" + u("touch /tmp/called") + b"\x85R", name=b"cposix\nsystem\n", big=b"\x8a\x09" + b"\xff" * 8 + b"\x00",
    text=b"L18446744073709551616L\n", none=b"N", flag=b"I01\n", real=b"F1.5\n", three=b"(K\x01K\x02K\x03t",
    w=tensor("0", 6, 0, (6,), (1,))) + b".", d0=floats)
save("bad-memo-bomb", b"]q\x00" + b"".join(b"(" + bytes([104, n]) * 10 + b"lq" + bytes([n + 1]) for n in range(30)) + b".")
save("bad-nesting", b"]" * 10**6 + b"a" * (10**6 - 1) + b".")
save("bad-cycle", b"]q\x00h\x00a.")
save("bad-length", b"\x8e" + b"\xff" * 8 + b".")
save("bad-memo-index", b"Nr\xff\xff\xff\xff.")
save("bad-memo-unset", b"h\x05.")
save("bad-underflow", b"R.")
save("bad-mark", b"t.")
save("bad-opcode", b"\xff.")
save("bad-no-stop", b"}")
