# SPDX-License-Identifier: MIT
"""Models made by Keras 3, tf_keras and h5py: read, edited through a mount, converted, and loaded again by the framework."""
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import h5py
import keras
import numpy as np
import tf_keras
from keras import layers as L

wiamodel = os.path.abspath(sys.argv[1])
rng = np.random.default_rng(11)
top = tempfile.mkdtemp()


def path(name):
    return os.path.join(top, name)


def run(*args, **more):
    return subprocess.run([wiamodel, *args], capture_output=True, **more)


def shown(model, name):
    r = run("cat", model, f"tensors/{name}.npy")
    assert r.returncode == 0, (model, name, r.stderr)
    return np.load(io.BytesIO(r.stdout))


def names(model):
    r = run("cat", model, ".wiamodel/SHA256SUMS", text=True)
    assert r.returncode == 0, r.stderr
    return {line.split("  raw/", 1)[1] for line in r.stdout.splitlines()}


@contextlib.contextmanager
def mounted(model):
    """The mount's directory; saved when it ends."""
    where = tempfile.mkdtemp(dir=top)
    subprocess.run([wiamodel, "mount", model, where], check=True)
    try:
        yield where
    finally:
        r = subprocess.run([wiamodel, "umount", where], capture_output=True, text=True)
        if r.returncode:
            status = open(os.path.join(where, ".wiamodel/status.json")).read()
            subprocess.run(["fusermount3", "-uz", where], check=False)
            raise AssertionError((model, r.stderr, status))


def put(where, name, value):
    file = os.path.join(where, "tensors", name + ".npy")
    os.makedirs(os.path.dirname(file), exist_ok=True)
    np.save(path("new.npy"), value)
    shutil.copyfile(path("new.npy"), file)


def differ(a, b):
    """Positions at which two files of one size differ."""
    a, b = (np.fromfile(f, np.uint8) for f in (a, b))
    assert a.size == b.size, (a.size, b.size)
    return np.flatnonzero(a != b)


# ---- Keras 3 ----

def functional():
    i = keras.Input((4,), name="entry")
    inner = keras.Model(i, L.Dense(3, name="d1")(i), name="blockf")
    x = keras.Input((4,), name="x")
    shared = L.Dense(4, name="shared")
    y = shared(shared(x))
    y = keras.Sequential([L.Dense(5, name="s1"), L.Dense(4)], name="blocks")(y)
    y = L.Dropout(.5, name="drop")(inner(y))
    y = L.Reshape((3, 1))(L.LayerNormalization(name="ln")(y))
    y = L.LSTM(2, name="rnn", return_sequences=True)(y)
    y = L.MultiHeadAttention(2, 2, name="mha")(y, y)
    y = L.SeparableConv1D(2, 1, name="sc")(L.Conv1D(2, 1, name="c")(y))
    y = L.PReLU(name="pr")(L.DepthwiseConv1D(1, name="dc")(y))
    y = L.BatchNormalization(name="bn")(y)
    y = L.Bidirectional(L.GRU(2), name="bi")(y)
    return keras.Model(x, L.Dense(2, name="out")(y), name="whole")


def frozen():
    """Nested models with weights that are not trained: Keras lists those last."""
    x = keras.Input((4,), name="x")
    y = keras.Sequential([L.Dense(4, name="f", trainable=False), L.BatchNormalization(name="n"), L.Dense(4, name="t"),
                          keras.Sequential([L.Dense(4, name="in")], name="inner")], name="mixed")(x)
    block = keras.Sequential([L.Dense(4, name="u"), L.BatchNormalization(name="o"), L.Dense(4, name="v")], name="ice")
    block.trainable = False
    return keras.Model(x, L.BatchNormalization(name="last", trainable=False)(block(y)), name="frozen")


def sequential():
    scale = L.Normalization(name="nz")
    model = keras.Sequential([keras.Input((4,)), scale, L.Dense(3, name="a"), L.Dense(2)], name="mine")
    scale.adapt(np.random.default_rng(1).uniform(1, 3, (50, 4)))
    return model


def fill(model):
    for v in model.variables:
        if v.dtype == "float32" and "/nz/" not in v.path:
            v.assign(rng.uniform(.1, 1, v.shape).astype("float32"))


def check_names(model, file):
    want = {v.path: v.numpy() for v in model.weights}
    got = names(file)
    assert set(want) <= got, (file, sorted(set(want) - got), sorted(got))
    for n, v in want.items():
        assert np.array_equal(shown(file, n), v), (file, n)


def keras3():
    data = rng.standard_normal((5, 4)).astype("float32")
    for make in (functional, sequential):
        model = make()
        fill(model)
        for end in (".keras", ".weights.h5", ".h5"):
            file = path("k3" + end)
            (model.save_weights if end == ".weights.h5" else model.save)(file)
            check_names(model, file)
        for end in (".keras", ".weights.h5", ".h5"):
            file, old = path("k3" + end), path("old" + end)
            shutil.copy(file, old)
            target = next(v for v in model.weights if v.path.endswith("/kernel"))
            before = target.numpy()
            value = rng.standard_normal(before.shape).astype("float32")
            with mounted(file) as m:
                put(m, target.path, value)
            assert np.array_equal(shown(file, target.path), value), file
            target.assign(value)
            want = model.predict(data, verbose=0)
            target.assign(before)
            if end == ".weights.h5":
                again = make()
                again.load_weights(file)
            else:
                again = keras.saving.load_model(file)
            assert np.allclose(again.predict(data, verbose=0), want, rtol=1e-5), file
            if end == ".keras":
                with zipfile.ZipFile(file) as new, zipfile.ZipFile(old) as z:
                    assert new.testzip() is None and new.namelist() == z.namelist()
                    for n in z.namelist():
                        assert (new.read(n) == z.read(n)) == (n != "model.weights.h5"), n
            else:
                d = differ(file, old)
                assert 0 < d.size <= value.nbytes and d[-1] - d[0] < value.nbytes, (file, d)


def quantised():
    for mode in ("int8", "int4", "float8"):
        model = keras.Sequential([
            keras.Input((8,), dtype="int32"), L.Embedding(10, 4, name="e"),
            L.EinsumDense("abc,cd->abd", output_shape=(None, 6), bias_axes="d", name="ed"),
            L.Dense(4, name="a"), L.Dense(4, name="b", use_bias=False)], name="q")
        model.quantize(mode)
        for end in (".keras", ".weights.h5"):
            file = path("q" + end)
            (model.save_weights if end == ".weights.h5" else model.save)(file)
            want, got = {v.path: v.numpy() for v in model.variables}, names(file)
            assert set(want) == got, (mode, file, set(want) ^ got)
            for n, v in want.items():
                assert np.array_equal(shown(file, n), v), (mode, file, n)
        model.save(path("q.keras"))
        r = run("convert", "--lossy", "--force", path("q.keras"), path("q.h5"), text=True)
        assert r.returncode == 1 and "is quantised" in r.stderr, r  # Keras loads by an order that is not certain


def tf_keras2():
    old = tf_keras.layers
    x = tf_keras.Input((4,), name="x")
    block = tf_keras.Sequential([old.Dense(3, name="s1"), old.BatchNormalization(name="bn"), old.Dense(2, name="s2")],
                                name="block")
    y = old.Bidirectional(old.LSTM(2), name="bi")(old.Reshape((2, 1))(block(x)))
    model = tf_keras.Model(x, old.Dense(2, name="out")(y), name="two")
    for w in model.weights:
        w.assign(rng.uniform(.1, 1, w.shape).astype("float32"))
    data = rng.standard_normal((5, 4)).astype("float32")
    want = model.predict(data, verbose=0)
    for end in (".keras", ".h5", ".weights"):
        file = path("k2" + end)
        if end == ".weights":
            file = path("weights2.h5")  # the name decides the layout
            model.save_weights(file, save_format="h5")
        else:
            model.save(file)
        out = {v.name.split(":")[0]: v.numpy() for v in model.weights}
        got = names(file)
        assert set(out) <= got, (file, set(out) - got, got)
        if end == ".keras":
            r = run("convert", "--lossy", file, path("from-keras2.h5"), text=True)
            assert r.returncode == 0, r.stderr
            again = tf_keras.models.load_model(path("from-keras2.h5"))
            assert np.allclose(again.predict(data, verbose=0), want, rtol=1e-5)
        assert np.array_equal(shown(file, "out/kernel"), out["out/kernel"])
        value = np.full_like(out["out/bias"], 3)
        with mounted(file) as m:
            put(m, "out/bias", value)
        if end == ".weights":
            again = tf_keras.models.clone_model(model)
            again.load_weights(file)
        else:
            again = tf_keras.models.load_model(file)
        assert np.array_equal(again.get_layer("out").get_weights()[1], value), file


# ---- any HDF5 ----

def storage():
    a = np.arange(300, dtype="<i4").reshape(20, 15)
    file = path("s.h5")
    with h5py.File(file, "w", userblock_size=512) as f:
        f["plain"] = a
        f.create_dataset("big", data=a.astype(">i4"))
        f.create_dataset("packed", data=a, chunks=(6, 4), compression="gzip", shuffle=True, fletcher32=True)
        f.create_dataset("lzf", data=a, chunks=(6, 4), compression="lzf")
        f.create_dataset("chunked", data=a, chunks=(6, 4))
        f.create_dataset("scaled", data=a, chunks=(6, 4), scaleoffset=0)
        f.create_dataset("cube", data=a.reshape(5, 4, 15), chunks=(2, 3, 4), compression="lzf", shuffle=True)
        f.create_dataset("unwritten", (3, 2), "<f4")
        f.create_dataset("text", data=["a", "bb"], dtype=h5py.string_dtype())
        f["g/x"], f["g/y"], f["go"] = np.float32(1), np.float32(2), np.arange(3)
        f["plain"].attrs["unit"] = "metre"
        f.attrs["author"], f.attrs["year"] = "me", 2026
        f["keep"] = np.arange(2000, dtype="<f8")
    with mounted(file) as m:
        for n in ("plain", "big", "packed", "lzf", "chunked"):
            put(m, n, a * 2)
        put(m, "scaled", a * 3)
        put(m, "cube", a.reshape(5, 4, 15) * 2)
        put(m, "unwritten", np.ones((3, 2), "<f4"))
    with h5py.File(file) as f:
        for n in ("plain", "big", "packed", "lzf", "chunked"):
            assert np.array_equal(f[n][()], a * 2), n
        assert np.array_equal(f["scaled"][()], a * 3) and f["scaled"].scaleoffset is not None
        assert np.array_equal(f["cube"][()], a.reshape(5, 4, 15) * 2) and f["cube"].compression == "lzf"
        assert f["lzf"].compression == "lzf" and f["lzf"].chunks == (6, 4)
        assert f["big"].dtype == ">i4" and f["packed"].compression == "gzip" and f["packed"].fletcher32
        assert f["unwritten"][()].sum() == 6 and f["plain"].attrs["unit"] == "metre"
    with mounted(file) as m:
        put(m, "plain", np.arange(7, dtype="<f8"))          # another shape and type
        put(m, "added/deep/tensor", np.full((2, 3), 4, "<i2"))
        t = os.path.join(m, "tensors")
        os.rename(t + "/g/x.npy", t + "/g/z.npy")
        os.rename(t + "/g/y.npy", t + "/g/x.npy")           # a name that was free a moment ago
        os.remove(t + "/go.npy")
        put(m, "text", np.array(["ccc", "dä"]))
        text = open(m + "/metadata.json").read()
        assert '"author": "me"' in text
        text = text.replace('"author": "me"', '"author": "you", "rate": 0.5, "tags": ["a", "b"]').replace(
            '"year": 2026', '"on": true')
        open(m + "/metadata.json", "w").write(text)
    with h5py.File(file) as f:
        assert f["plain"].shape == (7,) and f["plain"].dtype == "<f8" and f["plain"].attrs["unit"] == "metre"
        assert np.array_equal(f["plain"][()], np.arange(7))
        assert f["added/deep/tensor"].dtype == "<i2" and f["added/deep/tensor"][1, 2] == 4
        assert f["g/z"][()] == 1 and f["g/x"][()] == 2 and "y" not in f["g"] and "go" not in f
        assert list(f["text"].asstr()[()]) == ["ccc", "dä"]
        assert f.attrs["author"] == "you" and f.attrs["rate"] == .5 and list(f.attrs["tags"]) == ["a", "b"]
        assert f.attrs["on"] == True and "year" not in f.attrs
        assert np.array_equal(f["keep"][()], np.arange(2000))
        assert np.array_equal(f["packed"][()], a * 2)


def links():
    """Two names of one dataset; the newest format of the file."""
    for libver in ("earliest", "v110"):
        file = path("l.h5")
        with h5py.File(file, "w", libver=(libver, "v110"), track_order=True) as f:
            f["a"] = np.arange(6, dtype="<f4")
            f["hard"], f["soft"] = f["a"], h5py.SoftLink("/a")
            f["g/b"] = np.arange(5, dtype="<i8")
            f["g/again"] = f["g/b"]
            for i in range(40):
                f[f"many/t{i}"] = np.full((i + 1,), i, "<u2")
                f[f"many/t{i}"].attrs["i"] = i
        assert json.loads(run("cat", file, "info/hard.json").stdout)["aliases"] == ["a", "soft"]
        with mounted(file) as m:
            put(m, "a", np.arange(6, dtype="<f4") * 2)
            os.rename(m + "/tensors/hard.npy", m + "/tensors/firm.npy")
            os.remove(m + "/tensors/g/b.npy")
            put(m, "many/t7", np.zeros((2, 2), "<f8"))
            os.remove(m + "/tensors/many/t8.npy")
        with h5py.File(file) as f:
            assert np.array_equal(f["a"][()], np.arange(6) * 2) and f["firm"] == f["a"] and "hard" not in f
            assert np.array_equal(f["soft"][()], f["a"][()]) and isinstance(f.get("soft", getlink=True), h5py.SoftLink)
            assert "b" not in f["g"] and np.array_equal(f["g/again"][()], np.arange(5))
            assert f["many/t7"].shape == (2, 2) and f["many/t7"].attrs["i"] == 7 and "t8" not in f["many"]
            assert all(f[f"many/t{i}"][i] == i for i in range(9, 40))


def tools():
    """h5diff names the one dataset that was edited, h5dump reads the result."""
    if not shutil.which("h5diff"):
        return
    file, old = path("tools.h5"), path("tools-old.h5")
    functional().save(file)
    shutil.copy(file, old)
    with mounted(file) as m:
        put(m, "out/bias", np.array([3, 4], "<f4"))
    r = subprocess.run(["h5diff", old, file], capture_output=True, text=True)
    assert r.returncode == 1 and r.stdout.count("differences found") == 1 and "out/bias" in r.stdout, r
    with mounted(file) as m:
        os.rename(m + "/tensors/out/bias.npy", m + "/tensors/out/offset.npy")
    subprocess.run(["h5dump", file], check=True, stdout=subprocess.DEVNULL)


def legacy_names():
    """A renamed weight moves together with the list that names it; Keras loads by order."""
    model = sequential()
    fill(model)
    file = path("names.h5")
    model.save(file)
    with mounted(file) as m:
        os.rename(m + "/tensors/mine/a/kernel.npy", m + "/tensors/mine/a/matrix.npy")
    with h5py.File(file) as f:
        g = f["model_weights/a"]
        assert [n for n in g.attrs["weight_names"]] == ["mine/a/matrix", "mine/a/bias"], list(g.attrs["weight_names"])
        assert "mine/a/matrix" in g and "mine/a/kernel" not in g
    data = rng.standard_normal((5, 4)).astype("float32")
    assert np.array_equal(keras.saving.load_model(file).predict(data, verbose=0), model.predict(data, verbose=0))


def metadata():
    """Keys that Keras has no field for, kept where it does not look; a file of the archive."""
    model = sequential()
    fill(model)
    data = rng.standard_normal((5, 4)).astype("float32")
    want = model.predict(data, verbose=0)
    for end in (".keras", ".h5"):
        file = path("meta" + end)
        model.save(file)
        with mounted(file) as m:
            meta = json.load(open(m + "/metadata.json"))
            assert meta["model"]["name"] == "mine" and meta["model"]["framework_version"] == keras.__version__, meta
            assert len(meta["preprocessing"]["mean"]) == 4
            meta["model"].update(author="me", version="1.2.3", license="MIT")
            meta["properties"]["note"] = "größer"
            with open(m + "/metadata.json", "w") as f:
                json.dump(meta, f)
        meta = json.loads(run("cat", file, "metadata.json").stdout)
        assert meta["model"]["author"] == "me" and meta["model"]["version"] == "1.2.3", meta
        assert meta["model"]["name"] == "mine" and meta["properties"]["note"] == "größer", meta
        if end == ".keras":
            with zipfile.ZipFile(file) as z:
                own = json.loads(z.read("metadata.json"))
        else:
            with h5py.File(file) as f:
                own = {k: f.attrs[k] for k in f.attrs}
        assert own["wiamodel.author"] == "me" and "wiamodel.framework" not in own and "wiamodel.preprocessing" not in own, own
        assert np.array_equal(keras.saving.load_model(file).predict(data, verbose=0), want)
    with mounted(path("meta.keras")) as m:
        text = open(m + "/files/config.json").read()
        with open(m + "/files/config.json", "w") as f:
            f.write(text.replace('"mine"', '"other"'))
    assert keras.saving.load_model(path("meta.keras")).name == "other"


def directory():
    """An archive that somebody unpacked."""
    model = sequential()
    fill(model)
    data = rng.standard_normal((5, 4)).astype("float32")
    model.save(path("packed.keras"))
    where = path("unpacked")
    with zipfile.ZipFile(path("packed.keras")) as z:
        z.extractall(where)
    check_names(model, where)
    want = model.predict(data, verbose=0)
    r = run("convert", where, path("again.keras"), text=True)
    assert r.returncode == 0, r.stderr
    assert np.allclose(keras.saving.load_model(path("again.keras")).predict(data, verbose=0), want)


def shards():
    """Weights in several files."""
    model = keras.Sequential([keras.Input((64,)), L.Dense(64, name="a"), L.Dense(64, name="b"), L.Dense(2)], name="many")
    fill(model)
    model.save_weights(path("X.weights.json"), max_shard_size=20e3 / 1024**3)
    assert os.path.exists(path("X_00001.weights.h5"))
    check_names(model, path("X.weights.json"))
    assert run("convert", path("X.weights.json"), path("one.safetensors")).returncode == 0
    check_names(model, path("one.safetensors"))


def conversions():
    model = functional()
    fill(model)
    model.save(path("c.keras"))
    want = {v.path: v.numpy() for v in model.weights}
    for chain in (["c.safetensors", "c.h5"], ["c.npz", "d.h5"]):
        source = "c.keras"
        for target in chain:
            r = run("convert", "--lossy", path(source), path(target), text=True)
            assert r.returncode == 0, (source, target, r.stderr)
            source = target
        with h5py.File(path(source)) as f:
            for n, v in want.items():
                assert np.array_equal(f[n][()], v), (source, n)


def between_layouts():
    """Whole models from one of Keras' files to the other and back."""
    data = rng.standard_normal((5, 4)).astype("float32")
    for make in (functional, sequential, frozen):
        model = make()
        fill(model)
        model.save(path("a.keras"))
        model.save(path("a.h5"))
        want = model.predict(data, verbose=0)
        for source, target in (("a.keras", "b.h5"), ("a.h5", "b.keras"), ("b.h5", "c.keras"), ("b.keras", "c.h5")):
            r = run("convert", "--lossy", "--force", path(source), path(target), text=True)
            assert r.returncode == 0, (source, target, r.stderr)
            check_names(model, path(target))
            again = keras.saving.load_model(path(target))
            assert np.allclose(again.predict(data, verbose=0), want, rtol=1e-5), (source, target)
    np.savez(path("plain.npz"), x=np.arange(3))
    r = run("convert", path("plain.npz"), path("plain.keras"), text=True)
    assert r.returncode == 1 and "configuration of its layers" in r.stderr and not os.path.exists(path("plain.keras")), r


def hostile():
    """A terabyte that is not there: listed at once, read where asked."""
    file = path("t.h5")
    with h5py.File(file, "w") as f:
        f.create_dataset("terabyte", (1 << 20, 1 << 18), "<f4", chunks=(1 << 11, 1 << 11), fillvalue=2.5)
        f.create_dataset("tiny_chunks", (1 << 40,), "<f4", chunks=(1,))
    r = run("ls", file, "tensors", text=True, timeout=10)
    assert r.returncode == 0 and "terabyte.npy" in r.stdout, r
    with mounted(file) as m:
        big = np.load(m + "/tensors/terabyte.npy", mmap_mode="r")
        assert big.shape == (1 << 20, 1 << 18) and big[12345, 678] == 2.5
        del big
    assert "more than" in run("cat", file, "info/tiny_chunks.json", text=True).stdout


try:
    for test in (storage, links, tools, hostile, keras3, quantised, tf_keras2, legacy_names, metadata, directory, shards, conversions, between_layouts):
        test()
        print(test.__name__)
finally:
    shutil.rmtree(top, ignore_errors=True)
print("ok")
