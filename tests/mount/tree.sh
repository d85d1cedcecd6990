#!/bin/sh
# SPDX-License-Identifier: MIT
# The tree tells the truth to the programs that people use on files, and two trees differ where their models do.
. "$(dirname "$0")/common"

models() { PYTHONPATH=$here python3 -B -c "from models import *
$1" || { fail "cannot write the models"; exit 1; }; }
mounted() { # MODEL DIR [OPTION]...
	f=$1 d=$2
	shift 2
	expect 0 "" mount.wiamodel "$@" "$f" "$work/$d"
}
unmounted() {
	for d; do
		expect 0 "" umount.fuse.wiamodel "$d"
	done
}
cd "$work" || exit 1
mkdir m m1 m2 # the programs see them by these names, in $work

models '
import os
t = lambda w: {"b.weight": ("F32", [8, 16], floats(127) + struct.pack("<f", w)), "b.bias": ("F32", [8], floats(8)),
    "empty": ("F32", [0, 3], b""), "scalar": ("I64", [], bytes(8)), "half": ("BF16", [4], bytes(range(8))),
    "flags": ("BOOL", [5], bytes([0, 1, 1, 0, 1]))}
safetensors("a.safetensors", t(1.0), {"note": "one"})
safetensors("weight.safetensors", t(2.0), {"note": "one"})
safetensors("property.safetensors", t(1.0), {"note": "two"})
safetensors("more.safetensors", {"aaa": ("F32", [64], floats(64)), **t(1.0)}, {"note": "one", "abc": "more"})
small_onnx("a.onnx", properties={"note": "one"})
small_onnx("weight.onnx", weight=2.0, properties={"note": "one"})
small_onnx("property.onnx", properties={"note": "two"})
small_onnx("attribute.onnx", alpha=0.25, properties={"note": "one"})
small_onnx("more.onnx", properties={"note": "one"}, before=[tensor("aaa", [64], floats(64))])
npz("a.npz", [(b"w", "<f4", (64,), floats(64)), (b"dir/b", ">i2", (3,), bytes(6))], deflate=True)
# all of one time, and an odd one
for f in os.listdir("."):
    if os.path.isfile(f): os.utime(f, ns=(1600000000123456789, 1600000000123456789))
'

# what is in DIR agrees with itself and with the model, and all programs copy it whole
truthful() { # MODEL DIR
	python3 -B "$here/walk.py" "$2" "$1" >walked 2>err || fail "$1: $(cat err)"
	find "$2" -name '*.json' | while read -r j; do
		jq -e . "$j" >out 2>err || echo "$j: $(cat err)"
	done >bad
	[ ! -s bad ] || fail "$1: jq: $(cat bad)"
	[ "$(find "$2" -name '*.json' | wc -l)" -gt 3 ] || fail "$1: there is hardly any json"
	jq -e .format "$2/.wiamodel/status.json" >out || fail "$1: status.json"
	(cd "$2" && sha256sum -c --strict .wiamodel/SHA256SUMS) >out 2>&1 || fail "$1: sha256sum -c: $(cat out)"
	[ "$(wc -l <out)" = "$(find "$2/raw" -type f | wc -l)" ] || fail "$1: not all of raw/ has a sum"

	rm -rf copy && cp -r "$2" copy 2>err || fail "$1: cp -r: $(cat err)"
	diff -r "$2" copy >out 2>&1 || fail "$1: cp -r: $(head -n 3 out)"
	[ ! -e copy/.wiamodel ] || fail "$1: cp -r took .wiamodel along"
	rm -rf copy && rsync -a "$2/" copy/ 2>err || fail "$1: rsync: $(cat err)"
	[ -z "$(rsync -acni "$2/" copy/)" ] || fail "$1: rsync: $(rsync -acni "$2/" copy/)"
	rm -rf copy && mkdir copy && tar -C "$2" -cf a.tar . 2>err && tar -C copy -xf a.tar || fail "$1: tar: $(cat err)"
	[ ! -s err ] || fail "$1: tar: $(cat err)"
	diff -r --no-dereference "$2" copy >out 2>&1 || fail "$1: tar: $(head -n 3 out)"
	tar -C "$2" -df a.tar >out 2>&1 || fail "$1: tar -d: $(head -n 3 out)"

	# the same from the command line
	rm -rf copy && expect 0 "" wiamodel extract "$1" . copy
	diff -r --no-dereference "$2" copy >out 2>&1 || fail "$1: extract: $(head -n 3 out)"
	expect 0 "" wiamodel ls -R "$1"
	(cd "$2" && ls -R . | sed 's/^\.\/\(.*:\)$/\1/') | cmp - out || fail "$1: wiamodel ls -R and ls -R differ"

	size=$(find "$2" -type f -printf '%s\n' | awk '{ n += $1 } END { print n }')
	[ "$(find "$2" -type f -exec cat {} + | wc -c)" = "$size" ] || fail "$1: sizes of find -printf"
	[ "$(du -sb "$2" | cut -f1)" = "$size" ] ||
		[ "$(find "$2" ! -type f -printf '%s\n' | awk '{ n += $1 } END { print n }')" != 0 ] ||
		fail "$1: du -b: $(du -sb "$2"), expected $size"
	[ "$(du -s --block-size=1 "$2" | cut -f1)" -ge "$size" ] || fail "$1: du: $(du -s --block-size=1 "$2") < $size"
	# shellcheck disable=SC2046
	set -- "$1" "$2" $(stat -f -c '%s %b %f %c %d %l' "$2")
	[ "$3" -gt 0 ] && [ $(($3 * $4)) -ge "$(stat -c %s "$1")" ] && [ "$5" = 0 ] && [ "$6" -gt 0 ] && [ "$7" = 0 ] &&
		[ "$8" = 255 ] || fail "$1: statfs: $*"
}

for model in a.safetensors a.npz a.onnx; do
	mounted $model m1 -o ro
	mounted $model m2 -o ro
	diff -r m1 m2 >out 2>&1 || fail "$model: two mounts differ: $(head -n 3 out)"
	# exports that would lose something are refused
	diff -r --exclude=export m1/.wiamodel m2/.wiamodel >out 2>&1 || fail "$model: .wiamodel of two mounts differs: $(head -n 3 out)"
	truthful $model m1
	cp walked first
	python3 -B "$here/walk.py" m2 $model 2>&1 | cmp - first || fail "$model: two mounts have other numbers"
	unmounted m1
	mounted $model m1 -s -o ro
	python3 -B "$here/walk.py" m1 $model 2>&1 | cmp - first || fail "$model: other numbers at the next mount"
	unmounted m1 m2
	mounted $model m1
	diff -r m1 copy >out 2>&1 || fail "$model: a writable mount differs: $(head -n 3 out)"
	truthful $model m1
	unmounted m1
done

# what differs between two models, one path a line
differing() {
	mounted "$1" m1 -o ro
	mounted "$2" m2 -o ro
	diff -rq m1 m2 | sed 's/^Files m1.\(.*\) and .*/\1/; s/^Only in m[12]\/*\(.*\): /+\1\//' >differ
	git diff --no-index --name-status --no-renames m1 m2 | sed 's/^M\tm1\///; s/^[AD]\tm[12]\//+/' >by_git
	unmounted m1 m2
	sort -o by_git by_git
	sort differ | cmp - by_git >out 2>&1 || fail "$1 $2: git diff --no-index says otherwise: $(cat by_git)"
	got=$(sort differ | tr '\n' ' ')
	[ "$got" = "$3 " ] || fail "$1 and $2 differ in: $got, expected: $3"
}
differing a.safetensors weight.safetensors "raw/b.weight stats/b.weight.json tensors/b.weight.npy"
differing a.safetensors property.safetensors "metadata.json"
differing a.safetensors more.safetensors "+info/aaa.json +raw/aaa +stats/aaa.json +tensors/aaa.npy metadata.json"
differing a.onnx weight.onnx "raw/fc1.weight stats/fc1.weight.json tensors/fc1.weight.npy"
differing a.onnx property.onnx "metadata.json"
differing a.onnx attribute.onnx "graph/graph.txt graph/ops/act/op.json"
differing a.onnx more.onnx "+info/aaa.json +raw/aaa +stats/aaa.json +tensors/aaa.npy metadata.json"

# walking the graph
mounted a.onnx m
(
	cd m/graph/ops/fc2/inputs/0-a && [ "$(pwd -P)" = "$work/m/graph/ops/act" ] && cd inputs/0-h &&
		[ "$(jq -r .type op.json)" = Gemm ] && cmp inputs/1-fc1.weight "$work/m/tensors/fc1.weight.npy" &&
		cd outputs && [ "$(ls)" = 0-h ]
) || fail "the graph cannot be walked: $(ls -l m/graph/ops/*/inputs/*)"
grep -qx 'a = LeakyRelu(h) {"alpha": 0.5} # act' m/graph/graph.txt || fail "graph.txt: $(cat m/graph/graph.txt)"
[ "$(jq -r '.[0].name' m/graph/inputs.json)" = x ] || fail "inputs.json: $(cat m/graph/inputs.json)"
[ "$(ls m/graph/ops/fc2)" = op.json ] || fail "an op lists its links: $(ls m/graph/ops/fc2)"
unmounted m

# xattrs
attribute() { getfattr -n "user.wiamodel.$1" --only-values --absolute-names "$2" 2>&1; }
mounted a.safetensors m -o ro
for v in raw/b.weight tensors/b.weight.npy info/b.weight.json; do
	[ "$(attribute name m/$v)" = b.weight ] || fail "$v: name: $(attribute name m/$v)"
	[ "$(attribute dtype m/$v)" = float32 ] || fail "$v: dtype: $(attribute dtype m/$v)"
	[ "$(attribute shape m/$v)" = "[8,16]" ] || fail "$v: shape: $(attribute shape m/$v)"
	[ "$(attribute format m/$v)" = safetensors ] || fail "$v: format: $(attribute format m/$v)"
	[ "$(attribute sha256 m/$v)" = "$(sha256sum <m/raw/b.weight | cut -d' ' -f1)" ] || fail "$v: sha256"
done
[ "$(getfattr -d --absolute-names m/raw/scalar | grep -c '^user.wiamodel\.')" = 5 ] ||
	fail "xattrs: $(getfattr -d --absolute-names m/raw/scalar)"
[ "$(python3 -c 'import os; print(len(os.listxattr("m/raw/scalar")))')" = 5 ] || fail "listxattr does not list 5"
command -v strace >/dev/null || fail "there is no strace"
[ "$(strace -e trace=llistxattr,listxattr -f ls -lR m 2>&1 >/dev/null | grep -c 'listxattr(')" -lt 10 ] ||
	fail "ls asks each file for its attributes"
attribute error m/raw/scalar | grep -q "No such attribute" || fail "an error without an error"
[ -z "$(getfattr --absolute-names m/tensors)" ] || fail "a directory has xattrs: $(getfattr --absolute-names m/tensors)"

# bytes
[ "$(tail -c 4 m/raw/b.weight | od -An -tf4 | tr -d ' ')" = 1 ] || fail "raw/b.weight: $(od -tf4 m/raw/b.weight | tail -n 3)"
hexdump -C m/raw/half 2>&1 | head -n 1 | grep -q '00 01 02 03 04 05 06 07' || fail "hexdump: $(hexdump -C m/raw/half)"
if python3 -c 'import numpy' 2>/dev/null; then
	python3 - <<-'END' || fail "numpy"
		import numpy
		a = numpy.load("m/tensors/b.weight.npy", mmap_mode="r")
		assert a.shape == (8, 16) and a.dtype == "<f4" and a[7, 14] == 126 and a[7, 15] == 1, a
		assert numpy.load("m/tensors/scalar.npy").shape == () and numpy.load("m/tensors/empty.npy").shape == (0, 3)
		assert numpy.load("m/tensors/flags.npy", mmap_mode="r").tolist() == [False, True, True, False, True]
		half = numpy.load("m/tensors/half.npy")
		assert half.dtype == "<f4" and (half.view("u4") >> 16).astype("<u2").tobytes() == bytes(range(8)), half
	END
else
	echo "skipped: numpy is not installed"
fi
unmounted m

again_as_user
finish
