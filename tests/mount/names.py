# SPDX-License-Identifier: MIT
"""usage: names.py make DIR | check MOUNT MODEL
Tensors and ops with hostile names. Tensor number k holds one float, k, so each file tells whose it is."""
import json
import os
import re
import struct
import subprocess
import sys

from models import *

NAMES = [
    b"a", b"a/b", b"a/b/c", b"a.npy", b"a.npy/d", b"a.json", b"a~2", b"a~", b"~2", b"A", b"", b".", b"..", b"...",
    b"../../../etc/passwd", b"/absolute", b"tail/", b"two//slashes", b"/", b"//", b"dir/..", b"dir/.", b"new\nline", b"\n",
    b"tab\there", b"\x01\x02\x7f", b"\xff\xfe", b"latin\xe9", b"cut\xe2\x82", b"\xed\xa0\x80", "\u00fc\u20ac\U0001f40d".encode(),
    b"%", b"%41", b"%2F", b"%%", b"%+", b"%=", b"back\\slash", b"\\n", b"'quotes\" $HOME `id`", b" blank ", b"-rf", b"*",
    b"w" * 199, b"w" * 200, b"w" * 201, b"l" * 256, b"l" * 2000, b"\xff" * 255, "\u20ac".encode() * 100, b"deep/" * 50 + b"end",
    b"x/" * 31 + b"y", b"x/" * 32 + b"y", b"q" * 5000, b"q" * 5000 + b"r", b"%" * 1200, b"metadata.json", b".wiamodel",
    b"user.wiamodel.name", b"nul\0byte", b"con:aux", b"trailing.",
]
FORMATS = {"names.npz": "npz", "names.onnx": "onnx", "names.safetensors": "safetensors"}


def valid_text(name):
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def names_of(model):
    base = os.path.basename(model)
    if base.endswith(".npz"):
        return [n for n in NAMES if b"\0" not in n]  # the format ends a name there
    if base.endswith(".onnx"):
        # the same name once more, twice
        return NAMES + [b"a", b"a", b"a/b"]
    return [n for n in NAMES if valid_text(n) and b"\0" not in n]


def make(folder):
    data = {k: struct.pack("<f", k) for k in range(1000)}
    path = os.path.join(folder, "names.npz")
    npz(path, [(n, "<f4", (1,), data[k]) for k, n in enumerate(names_of(path))])
    path = os.path.join(folder, "names.safetensors")
    safetensors(path, {n.decode(): ("F32", [1], data[k]) for k, n in enumerate(names_of(path))})
    path = os.path.join(folder, "names.onnx")
    names = names_of(path)
    ops = [node("Identity", [names[k]], [n + b"|%d" % k], n) for k, n in enumerate(names)]
    onnx(path, graph(ops, [tensor(n, [1], data[k]) for k, n in enumerate(names)], [], []))


failed = 0


def wrong(what, *more):
    global failed
    failed += 1
    print(what, *more)


def unescape(path):
    """The name a path stands for, told from wiamodel(5); None where the page says that it does not lead back."""
    if re.search(rb"%=[0-9a-f]{16}(~[0-9]+)?$", path):
        return None
    parts = re.sub(rb"(^|/)([^/]*)~[0-9]+$", rb"\1\2", path)
    if parts == b"%":
        return b""
    return re.sub(rb"%([0-9A-F]{2})", lambda m: bytes([int(m.group(1), 16)]), parts.replace(b"%+/", b""))


def files_below(top):
    for folder, dirs, files in os.walk(top):
        for f in files + dirs:
            if len(f) > 255 or f in (b"", b".", b".."):
                wrong("not a file name:", f)
            if not valid_text(f) or re.search(rb"[\x00-\x1f\x7f]", f):
                wrong("a terminal would not like:", f)
        for f in files:
            yield os.path.join(folder, f)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def from_json(value):
    if isinstance(value, dict):
        import base64
        return base64.b64decode(value["$bytes"])
    return value.encode()


def run(*command):
    return subprocess.run([b"wiamodel", *command], stdout=subprocess.PIPE, check=True).stdout


def check_tensors(mount, model, names):
    seen = {}
    top = os.path.join(mount, b"raw")
    for path in files_below(top):
        k = int(struct.unpack("<f", read(path))[0])
        inner = os.path.relpath(path, top)
        if k in seen:
            wrong("tensor", k, "is at", inner, "and at", seen[k])
        seen[k] = inner
        name = names[k]
        if os.getxattr(path, "user.wiamodel.name") != name:
            wrong(inner, "xattr is", os.getxattr(path, "user.wiamodel.name"), "expected", name)
        back = unescape(inner)
        if back is not None and back != name:
            wrong(inner, "leads back to", back, "expected", name)
        if back is None and len(name) < 900:
            wrong(inner, "does not lead back")
        info = json.loads(read(os.path.join(mount, b"info", inner + b".json")))
        if from_json(info["name"]) != name:
            wrong(inner, "info says", info["name"])
        if read(os.path.join(mount, b"tensors", inner + b".npy"))[-4:] != struct.pack("<f", k):
            wrong("tensors/ has another order of names at", inner)
        if k % 7 == 0 and run(b"cat", model, b"raw/" + inner) != struct.pack("<f", k):
            wrong("wiamodel cat", inner)
    for k in set(range(len(names))) - set(seen):
        wrong("nowhere:", names[k])
    for view, suffix in ((b"tensors", b".npy"), (b"info", b".json"), (b"stats", b".json")):
        there = {os.path.relpath(p, os.path.join(mount, view)) for p in files_below(os.path.join(mount, view))}
        for inner in there ^ {s + suffix for s in seen.values()}:
            wrong("only in one of raw/ and", view, inner)
    listed = run(b"ls", model, b"raw")
    if sorted(listed.split(b"\n")[:-1]) != sorted(os.listdir(top)):
        wrong("wiamodel ls:", listed)


def check_ops(mount, names):
    top = os.path.join(mount, b"graph", b"ops")
    seen = []
    for folder, dirs, files in os.walk(top):
        if b"op.json" not in files:
            continue
        op = json.loads(read(os.path.join(folder, b"op.json")))
        k = int(re.search(rb"[0-9]+$", from_json(op["outputs"][0])).group())
        seen.append(k)
        links = os.listdir(os.path.join(folder, b"inputs"))
        if not names[k]:
            if links:
                wrong("an omitted input has a link:", links)
            continue
        if len(links) != 1 or not links[0].startswith(b"0-") or len(links[0]) > 255:
            wrong("inputs of", names[k], links)
        # of tensors that share a name ONNX says nothing; any of them is right
        value = int(struct.unpack("<f", read(os.path.join(folder, b"inputs", links[0]))[-4:])[0])
        if names[value] != names[k]:
            wrong("input of", names[k], "leads to", names[value])
        if os.listdir(os.path.join(folder, b"outputs")) == []:
            wrong("outputs of", names[k])
    if sorted(seen) != list(range(len(names))):
        wrong("not every op is there once:", sorted(seen))


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    where, what = os.fsencode(sys.argv[2]), os.fsencode(sys.argv[3])
    check_tensors(where, what, names_of(sys.argv[3]))
    if sys.argv[3].endswith(".onnx"):
        check_ops(where, names_of(sys.argv[3]))
    sys.exit(failed > 0)
