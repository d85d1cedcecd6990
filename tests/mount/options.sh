#!/bin/sh
# SPDX-License-Identifier: MIT
# What each option does to the mount. (What is refused: startup.sh.)
. "$(dirname "$0")/common"

m=$work/m
mkdir "$m"
cd "$work" || exit 1
export PYTHONPATH="$here" PYTHONDONTWRITEBYTECODE=1
python3 - <<'END' || { fail "cannot write the models"; exit 1; }
from models import *
safetensors("a.safetensors", {
    "f32": ("F32", [2], floats(2)),
    "bf16": ("BF16", [3], struct.pack("<3H", 0x3f80, 0xc000, 0x7f80)),
    "f8": ("F8_E4M3", [2], bytes([0x38, 0xb8]))})
small_onnx("a.onnx")
open("secret.dat", "wb").write(open("a.safetensors", "rb").read())
END
chmod 640 a.safetensors

mounted() { expect 0 "" mount.wiamodel "$@" "$m"; }
unmounted() { expect 0 "" umount.fuse.wiamodel "$m"; }
listed() { ls "$m" | tr '\n' ' '; }
descr() { head -c 128 "$m/tensors/$1.npy" | grep -ao "'descr': '[^']*'"; }

# without any
mounted a.safetensors
[ "$(listed)" = "info metadata.json raw stats tensors " ] || fail "listed: $(listed)"
[ "$(stat -c %u:%g "$m/raw/f32")" = "$(stat -c %u:%g a.safetensors)" ] || fail "owner: $(stat -c %u:%g "$m/raw/f32")"
[ "$(stat -c %A "$m/raw/f32")" = -rw-r----- ] || fail "mode of raw/: $(stat -c %A "$m/raw/f32")"
[ "$(stat -c %A "$m/tensors")" = drwxr-x--- ] || fail "mode of a directory: $(stat -c %A "$m/tensors")"
# what nobody can write does not claim it
for f in info/f32.json stats/f32.json .wiamodel/status.json .wiamodel/SHA256SUMS .wiamodel/layout.txt .wiamodel/export/*; do
	f=$(cd "$m" && ls -d $f)
	for g in $f; do
		[ "$(stat -c %A "$m/$g")" = -r--r----- ] || fail "mode of $g: $(stat -c %A "$m/$g")"
	done
done
[ "$(descr bf16)" = "'descr': '<f4'" ] || fail "bf16: $(descr bf16)"
[ "$(tail -c 12 "$m/tensors/bf16.npy" | od -An -tf4 | tr -s ' ')" = " 1 -2 inf" ] || fail "bf16: $(od -tf4 "$m/tensors/bf16.npy" | tail -n 2)"
grep -q "^$work/a.safetensors $m fuse.wiamodel rw," /proc/self/mounts || fail "table of mounts: $(grep "$m" /proc/self/mounts)"
unmounted

# ro
mounted -o ro a.safetensors
grep -q " $m fuse.wiamodel ro," /proc/self/mounts || fail "ro: $(grep "$m" /proc/self/mounts)"
for how in "touch $m/x" "rm $m/raw/f32" "mkdir $m/d" "mv $m/tensors/f32.npy $m/tensors/g.npy" "truncate -s 0 $m/raw/f32" \
	"cp a.onnx $m/metadata.json"; do
	$how 2>err && fail "ro: $how succeeds"
	grep -q "Read-only file system" err || fail "ro: $how: $(cat err)"
done
unmounted

# views=
mounted -o ro,views=raw:metadata a.safetensors
[ "$(listed)" = "metadata.json raw " ] || fail "views: $(listed)"
[ "$(stat -c %h "$m")" = 3 ] || fail "views: links $(stat -c %h "$m")"
[ "$(cat "$m/info/f32.json" | jq -r .dtype)" = float32 ] || fail "views: what is not listed cannot be reached"
unmounted
mounted -o ro,views=graph+info a.onnx
[ "$(listed)" = "graph info " ] || fail "views: $(listed)"
unmounted

# npy=
mounted -o ro,npy=bits a.safetensors
[ "$(descr bf16)" = "'descr': '<V2'" ] || fail "npy=bits: bf16: $(descr bf16)"
[ "$(descr f8)" = "'descr': '|V1'" ] || fail "npy=bits: f8: $(descr f8)"
[ "$(descr f32)" = "'descr': '<f4'" ] || fail "npy=bits: f32: $(descr f32)"
[ "$(tail -c 6 "$m/tensors/bf16.npy" | od -An -tx2 | tr -s ' ')" = " 3f80 c000 7f80" ] || fail "npy=bits: bytes"
[ "$(getfattr -n user.wiamodel.dtype --only-values --absolute-names "$m/tensors/bf16.npy")" = bfloat16 ] || fail "npy=bits: dtype"
unmounted

# format=
mounted -o ro,format=safetensors secret.dat
[ "$(jq -r .format "$m/.wiamodel/status.json")" = safetensors ] || fail "format="
unmounted

# uid, gid, umask, fsname
mounted -o 'ro,uid=12,gid=34,umask=027,fsname=a\,b' a.safetensors
[ "$(stat -c %u:%g:%A "$m/raw/f32")" = 12:34:-rw-r----- ] || fail "uid, gid, umask: $(stat -c %u:%g:%A "$m/raw/f32")"
grep -q '^a,b ' /proc/self/mounts || fail "fsname: $(grep "$m" /proc/self/mounts)"
unmounted
mounted --umask=0 a.safetensors
[ "$(stat -c %A "$m/raw/f32")" = -rw-rw-rw- ] || fail "umask=0: $(stat -c %A "$m/raw/f32")"
[ "$(stat -c %A "$m/info")" = drwxrwxrwx ] || fail "umask=0: $(stat -c %A "$m/info")"
unmounted

# one thread
mounted -s -o ro a.safetensors
s=$(processes | sort -n | tail -n 1)
before=$(ls "/proc/$s/task" | wc -l)
for n in 1 2 3 4 5 6 7 8; do
	cat "$m"/stats/* "$m"/raw/* >/dev/null &
done
wait
[ "$(cat "$m"/raw/* | wc -c)" = 16 ] || fail "-s: cannot read"
[ "$(ls "/proc/$s/task" | wc -l)" -le "$before" ] || fail "-s: $(ls "/proc/$s/task" | wc -l) threads, $before at first"
unmounted

# messages
mounted --log-file="$work/log" -v -o ro a.safetensors
unmounted
[ -s log ] || fail "-v: the log file is empty"
grep -q "$work\|a.safetensors" log || fail "-v: the log does not name the model: $(cat log)"
expect 0 "" mount.wiamodel --log_file=log2 -o ro a.safetensors "$m"
unmounted
[ -e log2 ] || fail "log_file: a relative path"

# in the foreground, every request told
mount.wiamodel -d -o ro a.safetensors "$m" >out 2>debug &
pid=$!
await is_mounted "$m" || fail "-d: not mounted"
await ls "$m/raw" >/dev/null
unmounted
wait $pid || fail "-d: exit code $?"
grep -qi "lookup" debug || fail "-d: no request is told: $(head -n 5 debug)"

# other users
if [ "$(id -u)" = 0 ]; then
	chmod 755 .
	mounted -o ro,umask=022 a.safetensors
	$as_user cat "$m/raw/f32" >out 2>err && fail "another user reads without allow_other"
	unmounted
	mounted -o ro,umask=022,allow_other a.safetensors
	$as_user cat "$m/raw/f32" >out 2>err || fail "allow_other: $(cat err)"
	unmounted
	mounted -o ro,umask=077,allow_other a.safetensors
	$as_user cat "$m/raw/f32" >out 2>err && fail "allow_other: the mode is not looked at"
	unmounted
	mounted -o ro,allow_other a.safetensors
	$as_user cat "$m/raw/f32" >out 2>err && fail "allow_other: more than the model file allows"
	unmounted
fi

wiamodel --version >out
for library in libfuse protobuf-c jansson zlib libseccomp; do
	grep -qi "$library" out || fail "--version does not name $library: $(cat out)"
done

again_as_user
finish
