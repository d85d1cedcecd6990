#!/bin/sh
# SPDX-License-Identifier: MIT
# Where and when saving works, and what is told when it does not.
. "$(dirname "$0")/common"

m=$work/m
mkdir "$m"
f=$work/a.safetensors
make_model "$f" 4
cp "$f" "$work/original"
head -c 4096 /dev/zero | tr '\0' A >"$work/new"
head -c 4096 /dev/zero >"$work/zeroes"
tensor() { wiamodel cat "$1" "raw/$2"; }
filled() { [ "$(tensor "$1" "$2" | tr -d A | wc -c)" = 0 ]; }
read_only() { # what
	{ echo >"$m/metadata.json"; } 2>"$work/err" && fail "$1: can be written"
	grep -q "Read-only file system" "$work/err" || fail "$1: $(cat "$work/err")"
	mkdir "$m/d" 2>/dev/null && fail "$1: mkdir"
	rm "$m/tensors/t0.npy" 2>/dev/null && fail "$1: rm"
	[ -e "$m/tensors/t0.npy" ] && [ ! -e "$m/.wiamodel/commit" ] || fail "$1: names"
}

expect 0 "" mount.wiamodel -o ro "$f" "$m"
read_only "ro"
[ "$(ls -A "$work" | grep -c journal)" = 0 ] || fail "ro: a journal"
expect 0 "" umount.fuse.wiamodel "$m"
cmp "$f" "$work/original" || fail "ro: the model changed"

# nothing was edited: the file is not touched, by whatever saves
before=$(stat -c '%i %Y %Z' "$f")
expect 0 "" mount.wiamodel "$f" "$m"
ls -lR "$m" >"$work/out"
sync "$m" && echo >"$m/.wiamodel/commit" || fail "nothing to save"
expect 0 "" umount.fuse.wiamodel "$m"
[ "$(stat -c '%i %Y %Z' "$f")" = "$before" ] || fail "an unedited mount touched the file"

# the mode stays; through a link the file is written, not the link; times in the mount are the new ones
chmod 640 "$f"
ln -s a.safetensors "$work/link.safetensors"
expect 0 "" mount.wiamodel "$work/link.safetensors" "$m"
cp "$work/new" "$m/raw/t1" || fail "link: cp"
echo >"$m/.wiamodel/commit" || fail "link: commit"
[ "$(stat -c %Y "$m/metadata.json")" = "$(stat -c %Y "$f")" ] || fail "link: times in the mount"
[ "$(stat -c %i "$f")" != "${before%% *}" ] || fail "link: not a new file"
expect 0 "" umount.fuse.wiamodel "$m"
[ -L "$work/link.safetensors" ] && filled "$f" t1 || fail "link: not saved"
[ "$(stat -c %a "$f")" = 640 ] || fail "link: mode $(stat -c %a "$f")"
chmod 644 "$f"

# extended attributes stay, where the file system has them
if setfattr -n user.note -v kept "$f" 2>/dev/null; then
	expect 0 "" mount.wiamodel "$f" "$m"
	cp "$work/new" "$m/raw/t2"
	expect 0 "" umount.fuse.wiamodel "$m"
	[ "$(getfattr -n user.note --only-values "$f" 2>/dev/null)" = kept ] || fail "an extended attribute is lost"
else
	echo "skipped: no extended attributes here"
fi

# changed by others: refused, unless forced
expect 0 "" mount.wiamodel "$f" "$m"
cp "$work/new" "$m/raw/t3"
cp "$work/original" "$work/other" && mv "$work/other" "$f"
expect 32 "changed by others" umount.fuse.wiamodel "$m"
cmp "$f" "$work/original" || fail "changed by others: overwritten"
rm "$f"
expect 32 "changed by others" umount.fuse.wiamodel "$m"
[ ! -e "$f" ] || fail "removed by others: it is back"
cp "$work/original" "$f"
expect 0 "" wiamodel discard "$m"
expect 0 "" umount.fuse.wiamodel "$m"
expect 0 "" mount.wiamodel -o force "$f" "$m"
cp "$work/new" "$m/raw/t3"
touch "$f"
expect 0 "" umount.fuse.wiamodel "$m"
filled "$f" t3 || fail "force: not saved"

# into another file, in another format; the model is not touched
cp "$work/original" "$f"
expect 0 "" mount.wiamodel -o "to=npz,out=$work/out.npz" "$f" "$m"
cp "$work/new" "$m/raw/t3"
expect 0 "" umount.fuse.wiamodel "$m"
cmp "$f" "$work/original" || fail "out: the model was touched"
filled "$work/out.npz" t3 || fail "out: not saved: $(wiamodel ls "$work/out.npz" raw)"
[ "$(ls -A "$work" | grep -c journal)" = 0 ] || fail "out: a journal stays"
expect 3 "exists already" mount.wiamodel -o "to=npz,out=$work/out.npz" "$f" "$m"
expect 3 "no format" mount.wiamodel -o "to=nothing,out=$work/x" "$f" "$m"
expect 0 "" mount.wiamodel -o "force,out=$work/out.npz,to=npz" "$f" "$m"
expect 0 "" umount.fuse.wiamodel "$m"
filled "$work/out.npz" t3 && fail "out: not replaced"

# the formats that can be written, and their edits through the mount
for g in "$top"/tests/golden/npz/good-plain.npz "$top"/tests/golden/npz/good-compressed.npz \
	"$top"/tests/golden/safetensors/good-state.safetensors "$top"/tests/golden/safetensors/good-sharded \
	"$top"/tests/golden/keras/good-k3-model.keras "$top"/tests/golden/keras/good-k2-model.h5; do
	name=$(basename "$g")
	cp -r "$g" "$work/$name"
	expect 0 "" mount.wiamodel "$work/$name" "$m"
	find "$m/raw" -type f | sort >"$work/list"
	[ -s "$work/list" ] || fail "$name: no tensors"
	(cd "$m/raw" && find . -type f -exec sha256sum {} +) | sort -k 2 >"$work/sums"
	# two tensors far from each other
	for t in $(sed -n '1p;$p' "$work/list"); do
		tr '\0-\377' '\1-\377\0' <"$t" >"$work/bytes"
		cp "$work/bytes" "$t" 2>"$work/err" || fail "$name: cp to $t: $(cat "$work/err")"
	done
	(cd "$m/raw" && find . -type f -exec sha256sum {} +) | sort -k 2 >"$work/edited"
	expect 0 "" umount.fuse.wiamodel "$m"
	expect 0 "" mount.wiamodel -o ro "$work/$name" "$m"
	(cd "$m/raw" && find . -type f -exec sha256sum {} +) | sort -k 2 >"$work/saved"
	expect 0 "" umount.fuse.wiamodel "$m"
	cmp "$work/edited" "$work/saved" || fail "$name: saved otherwise than shown"
	[ "$(diff "$work/sums" "$work/saved" | grep -c '^<')" -le 2 ] || fail "$name: others changed"
	expect 0 "" wiamodel check "$work/$name"
	rm -r "${work:?}/$name"
done

if [ "$(id -u)" = 0 ]; then
	# a user's mount of what he cannot write
	mkdir -m 755 "$work/ro" && cp "$work/original" "$work/ro/a.safetensors"
	mkdir -p "$work/u/m" && chown -R 65534:65534 "$work/u"
	expect 0 "" $as_user mount.wiamodel "$work/ro/a.safetensors" "$work/u/m"
	$as_user sh -c "echo >$work/u/m/metadata.json" 2>"$work/err" && fail "a foreign model can be written"
	grep -q "Read-only file system" "$work/err" || fail "a foreign model: $(cat "$work/err")"
	expect 0 "" $as_user umount.fuse.wiamodel "$work/u/m"

	# no space left to save: still mounted, the edit is kept, the file is as it was
	mkdir "$work/small"
	mount -t tmpfs -o size=64k none "$work/small"
	# (of holes tmpfs makes pages when they are looked at)
	cp --sparse=never "$work/original" "$work/small/a.safetensors"
	expect 0 "" mount.wiamodel "$work/small/a.safetensors" "$m"
	cp "$work/new" "$m/raw/t1" || fail "small: cp"
	head -c 1M /dev/zero >"$work/small/filler" 2>/dev/null
	expect 32 "No space left.*still mounted" umount.fuse.wiamodel "$m"
	is_mounted "$m" || fail "small: unmounted though not saved"
	sync "$m" 2>"$work/err" && fail "small: sync says all is well"
	grep -q "No space left" "$work/err" || fail "small: sync: $(cat "$work/err")"
	grep -q "No space left" "$m/.wiamodel/status.json" || fail "small: $(cat "$m/.wiamodel/status.json")"
	[ "$(tr -d A <"$m/raw/t1" | wc -c)" = 0 ] || fail "small: the edit is gone"
	cmp "$work/original" "$work/small/a.safetensors" || fail "small: the file changed"
	[ "$(ls -A "$work/small" | tr '\n' ' ')" = ".a.safetensors.wiamodel-journal a.safetensors filler " ] ||
		fail "small: left: $(ls -A "$work/small")"
	# no space to stage either
	head -c 1M /dev/zero >"$work/small/filler2" 2>/dev/null
	cp "$work/new" "$m/raw/t2" 2>"$work/err" && fail "small: staged without space"
	grep -q "No space left" "$work/err" || fail "small: staging: $(cat "$work/err")"
	cmp "$m/raw/t2" "$work/zeroes" || fail "small: raw/t2 changed"
	rm "$work/small"/filler*
	expect 0 "" umount.fuse.wiamodel "$m"
	filled "$work/small/a.safetensors" t1 || fail "small: not saved in the end"
	[ "$(ls -A "$work/small")" = a.safetensors ] || fail "small: left: $(ls -A "$work/small")"
	umount "$work/small"
fi
finish
