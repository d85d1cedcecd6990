# SPDX-License-Identifier: MIT
"""HDF5 files that the golden test reads: every kind of storage, and damage. Needs h5py 3.14 and NumPy.

good-k2-*, good-k3*, good-layers, good-preprocessing and good-shards come from tf_keras 2.21.0 and Keras 3.15.1.
"""
import os
import struct
import sys
import zipfile
import zlib

import h5py
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(7)


def path(name):
    return os.path.join(here, name)


def storage():
    a = (np.arange(35 * 23).reshape(35, 23) % 97).astype("<i4")
    with h5py.File(path("good-storage.h5"), "w", userblock_size=512) as f:
        f.create_dataset("contiguous", data=a)
        f.create_dataset("contiguous_be", data=a.astype(">f8"))
        f.create_dataset("chunked", data=a, chunks=(8, 5))
        f.create_dataset("chunked_whole", data=a, chunks=a.shape)
        f.create_dataset("chunked_rows", data=a, chunks=(4, 23), compression="gzip")
        f.create_dataset("deflate", data=a, chunks=(8, 5), compression="gzip")
        f.create_dataset("shuffle", data=a, chunks=(8, 5), compression="gzip", shuffle=True)
        f.create_dataset("fletcher32", data=a, chunks=(8, 5), shuffle=True, fletcher32=True, compression="gzip")
        f.create_dataset("lzf", data=a, chunks=(16, 16), compression="lzf", shuffle=True)
        f.create_dataset("lzf_noise", data=rng.integers(0, 255, (40, 40), dtype="u1"), chunks=(16, 16), compression="lzf")
        f.create_dataset("scaleoffset", data=a, chunks=(16, 16), scaleoffset=0)
        f.create_dataset("chunked_cube", data=np.arange(7 * 6 * 5, dtype="<u2").reshape(7, 6, 5), chunks=(3, 4, 5),
                         compression="gzip")
        part = f.create_dataset("partly_written", (20, 20), "<i2", chunks=(7, 7), compression="gzip", fillvalue=-3)
        part[8:10, 8:10] = 5
        f.create_dataset("never_written", (6, 7), "<f4")
        f.create_dataset("never_written_fill", (6, 7), "<i8", fillvalue=77)
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        d = h5py.h5d.create(f.id, b"compact", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((3, 2)), compact)
        d.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(6, dtype="<f4").reshape(3, 2))
        f["soft"] = h5py.SoftLink("/contiguous")
        f["group/soft"] = h5py.SoftLink("inside")
        f["group/dangling"] = h5py.SoftLink("/nothing")
        f["group/inside"] = np.arange(4, dtype="<f2")
        f["hard"] = f["contiguous"]
        f["group/cycle"] = f["/"]
        f["outside"] = h5py.ExternalLink("other.h5", "/x")
        f.create_dataset("external", (4,), "<f4", external=[("/etc/hostname", 0, 16)])
        virtual = h5py.VirtualLayout((4,), "<f4")
        virtual[:] = h5py.VirtualSource("other.h5", "x", (4,))
        f.create_virtual_dataset("virtual", virtual)


def types():
    with h5py.File(path("good-types.h5"), "w", libver=("v110", "v110")) as f:
        for t in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"):
            f["little/" + t] = np.array([[1, 2, 3], [4, 5, 6]], "<" + t)
            f["big/" + t] = np.array([[1, 2, 3], [4, 5, 6]], ">" + t)
        f["bool"] = np.array([True, False])
        f["long_double"] = np.array([1.5, -2.5], np.longdouble)
        f["scalar"] = np.float32(2.5)
        f["empty"] = np.zeros((0, 3), "<f4")
        f["null"] = h5py.Empty("f4")
        f["strings/fixed"] = np.array([b"one", b"three"])
        f.create_dataset("strings/variable", data=["één", "", "three"], dtype=h5py.string_dtype())
        f["enumeration"] = np.array([0, 2], h5py.enum_dtype({"A": 0, "B": 2}, "i4"))
        f["record"] = np.array([(1, 2.5)], [("n", "i4"), ("x", "f8")])
        f.create_dataset("lists", (2,), h5py.vlen_dtype("i4"))
        bf = h5py.h5t.create(h5py.h5t.OPAQUE, 2)
        bf.set_tag(b"")
        d = h5py.h5d.create(f.id, b"bfloat16", bf, h5py.h5s.create_simple((3,)))
        d.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([0x3f80, 0xc000, 0x4049], "<u2").view("V2"), bf)
        f["bfloat16"].attrs["dtype"] = "bfloat16"
        f["..."] = np.arange(2)
        f["sp ace\n%"] = np.arange(2)
        at = f["scalar"].attrs
        at["text"], at["numbers"], at["truth"] = "höhe", np.array([1, -2]), np.bool_(True)
        at["big"], at["real"], at["list"] = np.uint64(2**64 - 1), np.float32(0.1), ["a", "bb"]
        at["fixed"], at["none"] = np.bytes_(b"abc"), h5py.Empty("f4")
        f.attrs["author"] = "somebody"


def names():
    with h5py.File(path("good-names.h5"), "w") as f:
        for name in (b"..", b"%2F", b"a b", b"\xff\xfe", b"line\nbreak", b"x" * 300, b"tensor.npy", b"a"):
            d = h5py.h5d.create(f.id, name, h5py.h5t.STD_I8LE, h5py.h5s.create_simple((2,)))
            d.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(2, dtype="i1"))
        g = h5py.h5g.create(f.id, b"...")
        h5py.h5d.create(g, b"..", h5py.h5t.STD_I8LE, h5py.h5s.create_simple((0,)))


def split_names():
    """More than 64 KiB of names."""
    names = [("layer_%04d_" % i + "x" * 120).encode() for i in range(600)]
    with h5py.File(path("good-split-names.h5"), "w", libver="latest") as f:
        f.attrs["keras_version"] = "2.15.0"
        for part in range(0, 600, 400):
            f.attrs["layer_names%d" % (part // 400)] = names[part:part + 400]
        for n in names:
            f.create_group(n)
        for n in names[:2] + names[-2:]:
            f[n].attrs["weight_names"] = [n + b"/kernel:0"]
            f[n][n + b"/kernel:0"] = np.ones(2, "<f4")


def hostile():
    with h5py.File(path("good-damaged.h5"), "w") as f:
        a = rng.integers(0, 99, (64, 64)).astype("<f4")
        for n in ("bomb", "checksum", "cut"):
            f.create_dataset(n, data=a, chunks=(64, 64), compression="gzip", fletcher32=n == "checksum")
        f.create_dataset("outside", data=a, chunks=(64, 64))
        f.create_dataset("sound", data=np.arange(5, dtype="<f4"))
        at = {n: f[n].id.get_chunk_info(0) for n in ("bomb", "checksum", "cut", "outside")}
        deep = f
        for _ in range(230):
            deep = deep.create_group("d")
    with open(path("good-damaged.h5"), "r+b") as f:
        data = bytearray(f.read())
        bomb = zlib.compress(bytes(1 << 20), 9)  # 64 times what the chunk should hold
        assert len(bomb) <= at["bomb"].size
        data[at["bomb"].byte_offset:at["bomb"].byte_offset + len(bomb)] = bomb
        cut = at["cut"]
        data[cut.byte_offset + 4:cut.byte_offset + cut.size] = b"\xff" * (cut.size - 4)
        sums = at["checksum"]
        data[sums.byte_offset + sums.size - 2] ^= 1  # the checksum stands behind the packed bytes
        where = bytes(data).index(struct.pack("<Q", at["outside"].byte_offset))
        data[where:where + 8] = struct.pack("<Q", 1 << 40)
        f.seek(0)
        f.write(data)
    with h5py.File(path("bad-truncated.h5"), "w") as f:
        f["x"] = np.arange(1000)
        f.create_dataset("y", data=np.arange(1000), chunks=(10,))
    whole = open(path("bad-truncated.h5"), "rb").read()
    open(path("bad-truncated.h5"), "wb").write(whole[:-1])
    open(path("bad-signature-only.h5"), "wb").write(whole[:8])
    open(path("bad-superblock.h5"), "wb").write(whole[:60])
    header = bytearray(whole)
    root = struct.unpack("<Q", header[64:72])[0]
    header[root:root + 16] = b"\xff" * 16
    open(path("bad-root.h5"), "wb").write(header)
    tree = bytearray(whole)
    where = tree.index(b"TREE")
    tree[where:where + 4] = b"EERT"
    open(path("bad-tree.h5"), "wb").write(tree)
    heap = bytearray(whole)
    where = heap.index(b"HEAP")
    heap[where + 8:where + 16] = b"\xff" * 8
    os.makedirs(path("../../fuzz/corpus/keras"), exist_ok=True)
    # the library crashes here (1.10.8), or says something else in every version
    open(path("../../fuzz/corpus/keras/heap.h5"), "wb").write(heap)
    names = bytearray(whole)
    where = names.index(b"SNOD")
    names[where + 8:where + 16] = b"\xff" * 8
    open(path("bad-symbol.h5"), "wb").write(names)


def archives():
    with zipfile.ZipFile(path("good-k3-model.keras")) as z:
        members = {n: z.read(n) for n in z.namelist()}

    def write(name, change, method=zipfile.ZIP_STORED):
        with zipfile.ZipFile(path(name), "w", method) as z:
            for n, data in {**members, **change}.items():
                if data is not None:
                    z.writestr(zipfile.ZipInfo(n, (2026, 1, 2, 3, 4, 6)), data, method)

    write("good-deflated.keras", {"assets/vocabulary.txt": b"one\ntwo\n"}, zipfile.ZIP_DEFLATED)
    write("good-config-broken.keras", {"config.json": b"{", "metadata.json": b"[]"})
    write("bad-weights.keras", {"model.weights.h5": b"no"})
    write("bad-no-weights.keras", {"model.weights.h5": None})
    write("good-no-config.keras", {"config.json": None})
    data = open(path("good-k3-model.keras"), "rb").read()
    open(path("bad-truncated.keras"), "wb").write(data[:-200])


for make in (storage, archives, types, names, split_names, hostile):
    if len(sys.argv) == 1 or make.__name__ in sys.argv[1:]:
        make()
