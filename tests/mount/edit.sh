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


# a part, by dd; through raw/, too
mounted
printf 'BBBB' | dd of="$m/tensors/t1.npy" bs=1 seek=128 conv=notrunc 2>/dev/null || fail "dd into tensors/"
printf 'CCCC' | dd of="$m/raw/t2" bs=1 seek=4092 conv=notrunc 2>/dev/null || fail "dd into raw/"
[ "$(head -c 6 "$m/raw/t1")" = BBBBAA ] || fail "dd: raw/t1 does not follow"
saved
[ "$(tensor t1 | head -c 6)" = BBBBAA ] || fail "dd: not saved"
[ "$(tensor t2 | tail -c 4)" = CCCC ] || fail "dd: raw/ not saved"

# refused: the earlier content stays, and the reason can be read
refused() { # FILE TEXT
	getfattr -n user.wiamodel.error --only-values "$1" 2>/dev/null | grep -q -- "$2" ||
		fail "no reason in $1: $(getfattr -n user.wiamodel.error --only-values "$1" 2>&1)"
	grep -q -- "$2" "$m/.wiamodel/status.json" || fail "'$2' is not in status.json"
}
mounted
before=$(sha256sum <"$m/tensors/t3.npy")
cp "$work/header" "$m/tensors/t3.npy" 2>"$work/err" && fail "no .npy, and cp succeeds"
grep -q "Invalid argument" "$work/err" || fail "cp of no .npy: $(cat "$work/err")"
[ "$(sha256sum <"$m/tensors/t3.npy")" = "$before" ] || fail "refused, and the content changed"
refused "$m/tensors/t3.npy" npy
dd if=/dev/zero of="$m/raw/t3" bs=10 count=1 2>/dev/null && fail "raw/ of another size"
refused "$m/raw/t3" "expected 4096 bytes, got 10"
printf '{' >"$m/metadata.json" 2>/dev/null
refused "$m/metadata.json" "expected near end of file"
cp "$work/new.npy" "$m/tensors/t3.npy" || fail "cp after a refused one"
getfattr -n user.wiamodel.error "$m/tensors/t3.npy" >/dev/null 2>&1 && fail "the error of t3 stays"
saved
filled t3 101 || fail "cp after a refused one: not saved"

# metadata, the ways of editors
author() { wiamodel cat "$f" metadata.json | grep '"author"'; }
with_author() { sed "s/\"model\": {}/\"model\": {\"author\": \"$1\"}/; s/\"author\": \"[^\"]*\"/\"author\": \"$1\"/"; }
mounted
with_author one <"$m/metadata.json" >"$work/j" && cat "$work/j" >"$m/metadata.json" || fail "a shell redirect"
grep -q '"author": "one"' "$m/metadata.json" || fail "a shell redirect: $(cat "$m/metadata.json")"
saved
author | grep -q one || fail "a shell redirect: not saved"
mounted
sed -i 's/"author": "one"/"author": "two"/' "$m/metadata.json" || fail "sed -i"
grep -q '"author": "two"' "$m/metadata.json" || fail "sed -i"
[ "$(ls -A "$m" | grep -c sed)" = 0 ] || fail "sed -i left $(ls -A "$m")"
saved
author | grep -q two || fail "sed -i: not saved"
mounted
with_author three <"$m/metadata.json" >"$m/tmp" && mv "$m/tmp" "$m/metadata.json" || fail "write and rename"
grep -q '"author": "three"' "$m/metadata.json" || fail "write and rename"
printf 'no' >"$m/tmp"
mv "$m/tmp" "$m/metadata.json" 2>/dev/null && fail "renaming what is no metadata"
grep -q '"author": "three"' "$m/metadata.json" || fail "renaming what is no metadata"
# backup by rename, a new file, the backup removed
mv "$m/metadata.json" "$m/metadata.json~" || fail "backup"
[ ! -e "$m/metadata.json" ] || fail "backup: still there"
with_author four <"$m/metadata.json~" >"$m/metadata.json" || fail "backup: new file"
rm "$m/metadata.json~" || fail "backup: rm"
grep -q '"author": "four"' "$m/metadata.json" || fail "backup: $(cat "$m/metadata.json")"
# and moved back
mv "$m/metadata.json" "$m/x" && mv "$m/x" "$m/metadata.json" || fail "there and back"
grep -q '"author": "four"' "$m/metadata.json" || fail "there and back"
saved
author | grep -q four || fail "backup: not saved"
if command -v vim >/dev/null; then
	for copy in yes no auto; do
		mounted
		vim -u NONE -es -c "set backup backupcopy=$copy backupdir=. directory=." \
			-c "%s/\"author\": \"[^\"]*\"/\"author\": \"vim $copy\"/" -c wq "$m/metadata.json" </dev/null ||
			fail "vim, backupcopy=$copy"
		saved
		author | grep -q "vim $copy" || fail "vim, backupcopy=$copy: $(author)"
	done
else
	echo "skipped: vim is not installed"
fi

if command -v jq >/dev/null; then
	mounted
	jq '.model.author = "five" | .properties.note = "é"' "$m/metadata.json" >"$m/tmp.json" && mv "$m/tmp.json" "$m/metadata.json" ||
		fail "jq and mv"
	[ "$(jq -r .properties.note "$m/metadata.json")" = é ] || fail "jq: $(cat "$m/metadata.json")"
	for key in '.model.version = "1"' '.model.created_at = "today"' '.format.name = "x"' '.model.nothing = 1' '.nothing = {}'; do
		jq "$key" "$m/metadata.json" >"$m/tmp.json"
		mv "$m/tmp.json" "$m/metadata.json" 2>/dev/null && fail "accepted: $key"
		rm "$m/tmp.json" || fail "a refused file is gone"
	done
	saved
	author | grep -q five || fail "jq: not saved"
else
	echo "skipped: jq is not installed"
fi

# mappings
if python3 -c 'import mmap' 2>/dev/null; then
	mounted
	python3 - "$m/tensors/t2.npy" <<-'END' || fail "mmap"
		import mmap, os, sys
		f = os.open(sys.argv[1], os.O_RDWR)
		m = mmap.mmap(f, 0)
		m[128:132] = b"MMMM"
		assert os.pread(f, 4, 128) == b"MMMM"
		os.close(f)          # judged, and not the end: the mapping goes on
		m[4220:4224] = b"NNNN"
		m.close()
	END
	[ "$(head -c 4 "$m/raw/t2")" = MMMM ] || fail "mmap: raw/ does not follow"
	await test "$(tail -c 4 "$m/raw/t2")" = NNNN || fail "mmap: what came after close is lost"
	saved
	[ "$(tensor t2 | head -c 4)" = MMMM ] && [ "$(tensor t2 | tail -c 4)" = NNNN ] || fail "mmap: not saved"
	mounted
	python3 - "$m/tensors/t2.npy" <<-'END' || fail "msync"
		import mmap, sys
		with open(sys.argv[1], "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
		    m[128:132] = b"SSSS"
		    m.flush()
		    m[132:136] = b"TTTT"
	END
	[ "$(tensor t2 | head -c 4)" = SSSS ] || fail "msync does not save"
	saved
	[ "$(tensor t2 | head -c 8)" = SSSSTTTT ] || fail "msync: $(tensor t2 | head -c 8)"
else
	echo "skipped: there is no python3"
fi
if python3 -c 'import numpy' 2>/dev/null; then
	mounted
	python3 - "$m/tensors" <<-'END' || fail "numpy"
		import numpy, sys
		a = numpy.load(sys.argv[1] + "/t3.npy", mmap_mode="r+")
		a[:] = numpy.arange(1024)
		a.flush()
		del a
		assert (numpy.load(sys.argv[1] + "/t3.npy") == numpy.arange(1024)).all()
		# big-endian, another memory order, another type whose values all fit
		numpy.save(sys.argv[1] + "/t0.npy", numpy.full((1024,), 2.5, ">f4"))
		numpy.save(sys.argv[1] + "/f.npy", numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)))
		assert (numpy.load(sys.argv[1] + "/f.npy") == numpy.arange(6.0).reshape(2, 3)).all()
	END
	saved
	[ "$(tensor t0 | od -An -tx1 -N4 | tr -d ' ')" = 00002040 ] || fail "numpy: big-endian"
	[ "$(tensor f | od -An -tf8 -j8 -N8 | tr -d ' ')" = 1 ] || fail "numpy: order"
	wiamodel cat "$f" tensors/t3.npy | python3 -c 'import numpy, sys, io
a = numpy.load(io.BytesIO(sys.stdin.buffer.read()))
assert (a == numpy.arange(1024)).all()' || fail "numpy: memmap not saved"
else
	echo "skipped: numpy is not installed"
fi

# names: rename, remove, add
cp "$work/original" "$f"
mounted
cp "$work/new.npy" "$m/tensors/t3.npy"
mv "$m/tensors/t0.npy" "$m/tensors/first.npy" || fail "mv of a tensor"
[ -e "$m/raw/first" ] && [ ! -e "$m/raw/t0" ] || fail "mv: raw/ does not follow: $(ls "$m/raw")"
rm "$m/tensors/t2.npy" || fail "rm of a tensor"
[ ! -e "$m/info/t2.json" ] || fail "rm: info/ does not follow"
[ ! -e "$m/raw/new" ] || fail "raw/new is there too early"
cp "$work/new.npy" "$m/tensors/new.npy" || fail "cp of a new tensor"
[ -e "$m/raw/new" ] || fail "add: raw/ does not follow: $(ls "$m/raw")"
cp "$work/header" "$m/tensors/bad.npy" 2>/dev/null && fail "a new tensor that is none"
[ ! -e "$m/tensors/bad.npy" ] || fail "a new tensor that is none stays"
mkdir "$m/tensors/block" && cp "$work/new.npy" "$m/tensors/block/w.npy" || fail "a tensor in a new directory"
mv "$m/tensors/t3.npy" "$m/tensors/t1.npy" || fail "mv of a tensor over another"
rm "$m/raw/t1" 2>/dev/null && fail "rm in raw/"
mv -n "$m/tensors/first.npy" "$m/tensors/new.npy" 2>/dev/null
[ -e "$m/tensors/first.npy" ] || fail "mv -n"
[ "$(ls "$m/tensors" | tr '\n' ' ')" = "block first.npy new.npy t1.npy " ] || fail "names: $(ls "$m/tensors")"
saved
[ "$(wiamodel ls "$f" raw | tr '\n' ' ')" = "block first new t1 " ] || fail "names: saved: $(wiamodel ls "$f" raw)"
filled new 101 && filled block/w 101 && filled t1 101 && filled first 000 || fail "names: wrong content"

# what is none of the model's
cp "$f" "$work/before"
mounted
mkdir "$m/d" && echo scratch >"$m/d/notes" && mv "$m/d/notes" "$m/tensors/.notes.swp" || fail "scratch"
[ "$(cat "$m/tensors/.notes.swp")" = scratch ] || fail "scratch reads otherwise"
ls -A "$m/tensors" | grep -q '^.notes.swp$' || fail "scratch is not listed"
rmdir "$m/d" && rmdir "$m/tensors" 2>/dev/null && fail "rmdir of tensors/"
saved
cmp "$f" "$work/before" || fail "scratch: the model was written"

finish
