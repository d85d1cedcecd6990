#!/bin/sh
# SPDX-License-Identifier: MIT
# What is no model, or one that cannot be trusted: each has a message of its own, exit code 3, nothing mounted, no process
# left. And external data: which files are taken, which are not. A model with one damaged tensor mounts.
. "$(dirname "$0")/common"

m=$work/m
mkdir "$m"
cd "$work" || exit 1
export PYTHONPATH="$here" PYTHONDONTWRITEBYTECODE=1

python3 - <<'END' || { fail "cannot write the models"; exit 1; }
from models import *
import os

def external(path, location, **more):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    onnx(path, graph([node("Identity", ["w"], ["y"], "op")],
                     [tensor("w", [64], external={"location": location, **more}), tensor("b", [2], floats(2))], [], []))

def data(path, count=64):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as f:
        f.write(floats(count))

small_onnx("whole.onnx")
whole = open("whole.onnx", "rb").read()
open("truncated.onnx", "wb").write(whole[:len(whole) // 2])
safetensors("whole.safetensors", {"good": ("F32", [64], floats(64)), "t": ("F32", [64], floats(64))})
whole = open("whole.safetensors", "rb").read()
open("header.safetensors", "wb").write(whole[:40])
open("truncated.safetensors", "wb").write(whole[:-100])
npz("whole.npz", [(b"t", "<f4", (64,), floats(64))])
whole = open("whole.npz", "rb").read()
open("truncated.npz", "wb").write(whole[:-30])
open("page.onnx", "w").write("\n <!DOCTYPE html>\n<html><body>404</body></html>\n")
open("page.npz", "w").write("<html>sign in</html>")
open("empty.safetensors", "w")
open("pointer.onnx", "w").write("version https://git-lfs.github.com/spec/v1\noid sha256:" + "1" * 64 + "\nsize 12\n")
os.makedirs("folder"); open("folder/notes.txt", "w").write("nothing\n")
# 2 MB of messages, each inside the one before: graph in attribute in node in graph ...
heads, size = [], 0
while size < 2000000:
    for number in (6, 5, 1):
        heads.append(varint(number << 3 | 2) + varint(size))
        size += len(heads[-1])
onnx("nested.onnx", b"".join(reversed(heads)))
# the same with lengths that are all wrong
open("deep.onnx", "wb").write(field(1, 9) + varint(7 << 3 | 2) + varint(2100000) + b"\x0a\x2a\x32" * 700000)
onnx("overflow.onnx", graph([], [tensor("w", [1 << 40, 1 << 40], b"")], [], []))
open("overflow.safetensors", "wb").write((lambda h: struct.pack("<Q", len(h)) + h)(
    b'{"t":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}}'))
external("missing/model.onnx", "gone.bin")
external("parent/model.onnx", "../outside.bin")
external("hidden/model.onnx", "sub/../../outside.bin")
external("absolute/model.onnx", "/etc/passwd")
data("outside.bin")
external("symlink/model.onnx", "link.bin"); os.symlink("../outside.bin", "symlink/link.bin")
external("symlinkdir/model.onnx", "dir/outside.bin"); os.symlink("..", "symlinkdir/dir")
external("fifo/model.onnx", "pipe.bin"); os.mkfifo("fifo/pipe.bin")
external("device/model.onnx", "w.bin"); os.symlink("/dev/zero", "device/w.bin")
external("dir/model.onnx", "w.bin"); os.mkdir("dir/w.bin")
# the cache of a hub: names lead to blobs, all inside one repository's folder
external("hub/models--o--m/blobs/aa", "w.bin"); data("hub/models--o--m/blobs/bb")
os.makedirs("hub/models--o--m/snapshots/1")
os.symlink("../../blobs/aa", "hub/models--o--m/snapshots/1/model.onnx")
os.symlink("../../blobs/bb", "hub/models--o--m/snapshots/1/w.bin")
# the same picture, but out of the repository's folder
external("evil/models--o--m/blobs/aa", "w.bin"); data("evil/models--p--q/blobs/bb")
os.makedirs("evil/models--o--m/snapshots/1")
os.symlink("../../blobs/aa", "evil/models--o--m/snapshots/1/model.onnx")
os.symlink("../../../models--p--q/blobs/bb", "evil/models--o--m/snapshots/1/w.bin")
# good ones
external("plain/model.onnx", "w.bin"); data("plain/w.bin")
external("below/model.onnx", "sub/dir/w.bin", offset=4, length=256); data("below/sub/dir/w.bin", 65)
# damaged
external("short/model.onnx", "w.bin"); data("short/w.bin", 63)
# a packed member whose bytes are not those of its sum; one in the middle of which a byte is another
arrays = [(b"good", "<f4", (64,), floats(64)), (b"t", "<f4", (40000,), floats(40000)), (b"z", "<f4", (64,), floats(64))]
npz("sum.npz", arrays, deflate=True)
whole = bytearray(open("sum.npz", "rb").read())
for name in (whole.index(b"t.npy") - 30, whole.rindex(b"t.npy") - 46):
    whole[name + (14 if whole[name + 2] == 3 else 16)] ^= 1
open("sum.npz", "wb").write(whole)
npz("packed.npz", arrays, deflate=True)
whole = bytearray(open("packed.npz", "rb").read())
middle = (whole.index(b"t.npy") + whole.index(b"z.npy")) // 2
whole[middle:middle + 8] = bytes(b ^ 0xff for b in whole[middle:middle + 8])
open("packed.npz", "wb").write(whole)
END

# refused TEXT MODEL
refused() {
	text=$1 model=$2
	expect 3 "$text" mount.wiamodel "$model" "$m"
	is_mounted "$m" && fail "$model: mounted all the same"
	await no_processes || fail "$model: left processes $(processes)"
	grep -q "$(basename "$model")" "$work/err" || fail "$model: not named: $(cat "$work/err")"
	# the same without a mount
	cp "$work/err" "$work/mount_says"
	expect 1 "$text" wiamodel ls "$model"
	[ "$(sed "s/^.*$(basename "$model"): //" err)" = "$(sed "s/^.*$(basename "$model"): //" mount_says)" ] ||
		fail "two messages: $(cat "$work/mount_says" "$work/err")"
}

refused "ends outside the message ([0-9]* bytes, [0-9]* are left)" truncated.onnx
refused "header of 136 bytes, 32 are left: the file is cut off" header.safetensors
refused "truncated.npz" truncated.npz
refused "web page" page.onnx
refused "web page" page.npz
refused "this file is empty" empty.safetensors
refused "git lfs pull" pointer.onnx
refused "directory with no model" folder
refused "nested deeper than 100" nested.onnx
refused "ends outside the message" deep.onnx
refused "shape of tensor 'w' overflows" overflow.onnx
refused "tensor 't'" overflow.safetensors
refused "cannot open companion file 'gone.bin': No such file" missing/model.onnx
refused "has '..' in its path" parent/model.onnx
refused "has '..' in its path" hidden/model.onnx
refused "absolute path" absolute/model.onnx
refused "symbolic link" symlink/model.onnx
refused "symbolic link" symlinkdir/model.onnx
refused "symbolic link" evil/models--o--m/snapshots/1/model.onnx
refused "w.bin" device/model.onnx
refused "pipe.bin" fifo/model.onnx
refused "w.bin" dir/model.onnx
refused "no such file" absent.onnx

expect 3 "there is no format 'nosuch'" mount.wiamodel -o format=nosuch whole.onnx "$m"
expect 3 "this is no archive" mount.wiamodel -o format=npz whole.onnx "$m"
not_mounted "$m" || fail "mounted with a wrong format"
await no_processes || fail "a wrong format left processes $(processes)"

for model in plain/model.onnx below/model.onnx hub/models--o--m/snapshots/1/model.onnx; do
	expect 0 "" mount.wiamodel -o ro $model "$m"
	[ "$(wc -c <"$m/raw/w")" = 256 ] || fail "$model: raw/w has $(wc -c <"$m/raw/w") bytes"
	[ "$(tail -c 4 "$m/raw/w" | od -An -tf4 | tr -d ' ')" = $([ $model = below/model.onnx ] && echo 64 || echo 63) ] ||
		fail "$model: $(od -tf4 "$m/raw/w")"
	expect 0 "" umount.fuse.wiamodel "$m"
done

# damaged MODEL TENSOR GOOD TEXT
damaged() {
	expect 0 "" mount.wiamodel -o ro "$1" "$m"
	for f in "raw/$2" "tensors/$2.npy"; do
		cat "$m/$f" >out 2>err && fail "$1: $f can be read"
		grep -q "Input/output error" err || fail "$1: $f: $(cat err)"
	done
	grep -q -- "$4" "$m/.wiamodel/status.json" || [ "$4" = only-when-read ] || fail "$1: '$4' is not in $(cat "$m/.wiamodel/status.json")"
	[ -s "$m/raw/$3" ] && cat "$m/raw/$3" >out || fail "$1: $3 cannot be read"
	cat "$m/.wiamodel/SHA256SUMS" >sums 2>err || fail "$1: SHA256SUMS: $(cat err)"
	(cd "$m" && sha256sum -c --quiet --strict "$work/sums" >"$work/out" 2>&1) || fail "$1: sha256sum -c: $(cat out)"
	grep -q "raw/$3\$" sums || fail "$1: $3 has no sum: $(cat sums)"
	grep -q "^# cannot be read  *raw/$2\$" sums || fail "$1: no comment on $2: $(cat sums)"
	[ "$(wc -c <sums)" = "$(stat -c %s "$m/.wiamodel/SHA256SUMS")" ] || fail "$1: SHA256SUMS has another size"
	ls -lR "$m" >out 2>err || fail "$1: ls -lR: $(cat err)"
	expect 0 "" umount.fuse.wiamodel "$m"
	expect 1 "" wiamodel check "$1"
	grep -q "^tensor $2: " out || fail "$1: check: $(cat out)"
}
damaged short/model.onnx w b "w.bin"
damaged truncated.safetensors t good '"t"'
damaged sum.npz t good only-when-read
damaged packed.npz t z only-when-read

again_as_user
finish
