#!/bin/sh
# SPDX-License-Identifier: MIT
# Edits that were never saved: they survive the mount's death, and the next mount says so.
. "$(dirname "$0")/common"

m=$work/m
mkdir "$m"
f=$work/a.safetensors
make_model "$f" 4
printf "\\223NUMPY\\1\\0\\166\\0%-117s\\n" "{'descr': '<f4', 'fortran_order': False, 'shape': (1024,), }" >"$work/new.npy"
head -c 4096 /dev/zero | tr '\0' A >>"$work/new.npy"

journal=$work/.a.safetensors.wiamodel-journal
mounted() { expect 0 "" mount.wiamodel "$@" "$f" "$m"; }
die() {
	for p in $(processes | sort -rn); do
		kill -KILL "$p" 2>/dev/null
	done
	await no_processes || fail "cannot be killed"
	umount.fuse.wiamodel "$m" 2>/dev/null
	await not_mounted "$m" || fail "the dead mount stays"
}
tensor() { wiamodel cat "$f" "raw/$1"; }

# one of each kind of edit, some over the ones before
edit() {
	cp "$work/new.npy" "$m/tensors/t1.npy" &&
		printf BB | dd of="$m/raw/t1" bs=1 conv=notrunc 2>/dev/null &&
		printf CC | dd of="$m/tensors/t1.npy" bs=1 seek=130 conv=notrunc 2>/dev/null &&
		mv "$m/tensors/t1.npy" "$m/tensors/sub.one.npy" &&
		printf DD | dd of="$m/raw/sub.one" bs=1 seek=4 conv=notrunc 2>/dev/null &&
		cp "$work/new.npy" "$m/tensors/added.npy" &&
		rm "$m/tensors/t2.npy" &&
		sed -i 's/"model": {}/"model": {"author": "me"}/' "$m/metadata.json"
}
edited() {
	[ "$(tensor sub.one | head -c 8)" = BBCCDDAA ] || fail "$1: sub.one: $(tensor sub.one | head -c 8)"
	[ "$(tensor added | tr -d A | wc -c)" = 0 ] || fail "$1: added"
	wiamodel ls "$f" raw | grep -q t2 && fail "$1: t2 is there"
	wiamodel cat "$f" metadata.json | grep -q '"author": "me"' || fail "$1: metadata"
}

cp "$f" "$work/original"
mounted
edit || fail "edits"
echo kept >"$m/scratch"
die
cmp "$f" "$work/original" || fail "the model changed though nothing was saved"
[ -d "$journal" ] || fail "there is no journal"
expect 3 "unsaved edits: -o recover" mount.wiamodel "$f" "$m"
not_mounted "$m" || fail "mounted in spite of a journal"
[ -d "$journal" ] || fail "the journal is gone"
mounted -o recover
[ "$(head -c 8 "$m/raw/sub.one")" = BBCCDDAA ] || fail "recovered: $(head -c 8 "$m/raw/sub.one")"
[ ! -e "$m/scratch" ] || fail "scratch came back"
# still not saved: dies again
die
cmp "$f" "$work/original" || fail "recovering alone changed the model"
mounted -o recover
expect 0 "" umount.fuse.wiamodel "$m"
edited "recovered"
[ ! -e "$journal" ] || fail "the journal stays: $(ls -A "$journal")"
mounted
expect 0 "" umount.fuse.wiamodel "$m"

# without a mount
cp "$work/original" "$f"
mounted
edit || fail "edits"
die
expect 0 "" wiamodel commit "$f"
edited "wiamodel commit"

# dropped
cp "$work/original" "$f"
mounted
edit || fail "edits"
die
mounted -o discard
[ -e "$m/tensors/t2.npy" ] || fail "discard: t2 is gone"
expect 0 "" umount.fuse.wiamodel "$m"
cmp "$f" "$work/original" || fail "discard: the model changed"
[ ! -e "$journal" ] || fail "discard: the journal stays"

# the model changed meanwhile: never taken up
mounted
edit || fail "edits"
die
make_model "$f" 5
expect 3 "another version" mount.wiamodel -o recover "$f" "$m"
[ -d "$journal" ] || fail "another version: the journal is gone"
mounted -o discard
expect 0 "" umount.fuse.wiamodel "$m"
wiamodel ls "$f" raw | grep -q t4 || fail "another version: the model changed"

# a running mount drops its edits
cp "$work/original" "$f"
mounted
edit || fail "edits"
expect 0 "" wiamodel discard "$m"
[ -e "$m/raw/t1" ] && [ ! -e "$m/raw/added" ] || fail "discard: $(ls "$m/raw")"
cp "$work/new.npy" "$m/tensors/t0.npy" || fail "an edit after discard"
echo >"$m/.wiamodel/discard" || fail ".wiamodel/discard"
grep -q '"dirty": false' "$m/.wiamodel/status.json" || fail "dirty after discard"
expect 0 "" umount.fuse.wiamodel "$m"
cmp "$f" "$work/original" || fail "discard: saved"

# saved while mounted, by command, by file, by fsync; then killed: nothing is left to recover
mounted
cp "$work/new.npy" "$m/tensors/t0.npy"
echo >"$m/.wiamodel/commit" || fail ".wiamodel/commit"
[ "$(tensor t0 | tr -d A | wc -c)" = 0 ] || fail ".wiamodel/commit: not saved"
cp "$work/new.npy" "$m/tensors/t2.npy"
expect 0 "" wiamodel commit "$m"
[ "$(tensor t2 | tr -d A | wc -c)" = 0 ] || fail "wiamodel commit: not saved"
dd if="$work/new.npy" of="$m/tensors/t3.npy" conv=fsync,notrunc bs=4K 2>/dev/null || fail "dd conv=fsync"
[ "$(tensor t3 | tr -d A | wc -c)" = 0 ] || fail "fsync: not saved"
cp "$work/new.npy" "$m/tensors/t1.npy"
sync "$m" || fail "sync of the directory"
[ "$(tensor t1 | tr -d A | wc -c)" = 0 ] || fail "sync DIR: not saved"
printf EE | dd of="$m/raw/t1" bs=1 conv=notrunc 2>/dev/null || fail "an edit after saving"
[ "$(head -c 4 "$m/raw/t1")" = EEAA ] || fail "an edit after saving: $(head -c 4 "$m/raw/t1")"
die
mounted -o recover
expect 0 "" umount.fuse.wiamodel "$m"
[ "$(tensor t1 | head -c 4)" = EEAA ] || fail "an edit after saving: not recovered"

# two mounts: the second one cannot write
mkdir "$work/m2"
mounted
expect 0 "read-only: another mount" mount.wiamodel "$f" "$work/m2"
[ -r "$work/m2/raw/t0" ] || fail "second mount: cannot read"
{ echo >"$work/m2/metadata.json"; } 2>/dev/null && fail "second mount: can write"
cp "$work/new.npy" "$m/tensors/t1.npy" || fail "first mount: cannot write"
expect 0 "" umount.fuse.wiamodel "$work/m2"
expect 0 "" umount.fuse.wiamodel "$m"

# SIGTERM and fusermount save
for how in TERM fusermount; do
	cp "$work/original" "$f"
	mounted
	edit || fail "edits"
	if [ $how = TERM ]; then
		kill -TERM $(processes | sort -n | head -n 1)
	else
		fusermount3 -u "$m"
	fi
	await not_mounted "$m" || fail "$how: still mounted"
	await no_processes || fail "$how: processes left"
	edited "$how"
	[ ! -e "$journal" ] || fail "$how: the journal stays"
done
finish
