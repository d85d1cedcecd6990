#!/bin/sh
# SPDX-License-Identifier: MIT
# Edits through the mount, with the programs that people use for it, saved into the model.
. "$(dirname "$0")/common"

m=$work/m
mkdir "$m"
f=$work/a.safetensors
make_model "$f" 4
cp "$f" "$work/original"

mounted() { expect 0 "" mount.wiamodel "$@" "$f" "$m"; }
saved() { expect 0 "" umount.fuse.wiamodel "$m"; }

# npy FILE BYTE: 1024 float32, each byte BYTE (octal)
npy() {
	printf '\223NUMPY\1\0\166\0%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (1024,), }" >"$1"
	head -c 4096 /dev/zero | tr '\0' "\\$2" >>"$1"
}
# tensor NAME: its bytes in the saved file
tensor() { wiamodel cat "$f" "raw/$1"; }
filled() { [ "$(tensor "$1" | tr -d "\\$2" | wc -c)" = 0 ] && [ "$(tensor "$1" | wc -c)" = 4096 ]; }

npy "$work/new.npy" 101

# a tensor, by cp
mounted
cp "$work/new.npy" "$m/tensors/t1.npy" || fail "cp"
cmp "$work/new.npy" "$m/tensors/t1.npy" || fail "cp: reads back otherwise"
[ "$(tr -d A <"$m/raw/t1" | wc -c)" = 0 ] || fail "cp: raw/t1 does not follow"
cmp -s "$f" "$work/original" || fail "cp: the file changed before it was saved"
saved
filled t1 101 || fail "cp: not saved"
for t in t0 t2 t3; do
	filled $t 000 || fail "cp: $t changed"
done
[ -z "$(ls -A "$work" | grep wiamodel-journal)" ] || fail "a journal stays: $(ls -A "$work")"

finish
