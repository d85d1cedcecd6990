#!/bin/sh
# SPDX-License-Identifier: MIT
# Each way in which mounting fails: its exit code, one line, nothing mounted, no process left.
. "$(dirname "$0")/common"

m=$work/m
mkdir "$m" "$work/full" && touch "$work/full/x"
make_model "$work/good.safetensors"
good=$work/good.safetensors

refused() {
	expect "$@"
	is_mounted "$m" && fail "$*: mounted all the same"
	no_processes || fail "$*: left processes $(processes)"
}

# usage
refused 2 "unknown option 'foo'" mount.wiamodel -o foo "$good" "$m"
refused 2 "unknown option '--foo'" mount.wiamodel --foo "$good" "$m"
refused 2 "unknown option '-Q'" mount.wiamodel -Q "$good" "$m"
refused 2 "expected MODEL DIR" mount.wiamodel "$good"
refused 2 "too many" mount.wiamodel "$good" "$m" more
refused 2 "needs a value" mount.wiamodel -o format "$good" "$m"
refused 2 "takes no value" mount.wiamodel -o ro=1 "$good" "$m"
refused 2 "contradict" mount.wiamodel -o recover,discard "$good" "$m"
refused 2 "number" mount.wiamodel -o uid=root "$good" "$m"
refused 2 "octal" mount.wiamodel -o umask=9 "$good" "$m"
refused 2 "bits or real" mount.wiamodel -o npy=x "$good" "$m"
refused 2 "out=FILE" mount.wiamodel -o to=npz "$good" "$m"

# the model
: >"$work/empty.onnx"
printf '<!DOCTYPE html><html></html>' >"$work/page.safetensors"
head -c 100 "$good" >"$work/short.safetensors"
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 12\n' 1 >"$work/lfs.onnx"
refused 3 "absent.onnx" mount.wiamodel "$work/absent.onnx" "$m"
refused 3 "empty" mount.wiamodel "$work/empty.onnx" "$m"
refused 3 "web page" mount.wiamodel "$work/page.safetensors" "$m"
refused 3 "short.safetensors" mount.wiamodel "$work/short.safetensors" "$m"
refused 3 "git lfs pull" mount.wiamodel "$work/lfs.onnx" "$m"
refused 3 "nosuch" mount.wiamodel -o format=nosuch "$good" "$m"
refused 3 "nosuch" mount.wiamodel -o views=nosuch "$good" "$m"
refused 3 "$work/full" mount.wiamodel "$work/full" "$m"

# the mount point
refused 4 "No such file" mount.wiamodel "$good" "$work/nowhere"
refused 4 "not a directory" mount.wiamodel "$good" "$good"
refused 4 "not empty" mount.wiamodel "$good" "$work/full"
expect 0 "" mount.wiamodel "$good" "$m"
expect 4 "mounted there already" mount.wiamodel "$good" "$m"
expect 0 "" umount.fuse.wiamodel "$m"

# the log file
refused 1 "nowhere/log" mount.wiamodel --log-file "$work/nowhere/log" "$good" "$m"

# what blocks whoever opens it
mkfifo "$work/fifo.onnx"
refused 3 "fifo.onnx" mount.wiamodel -o timeout=5 "$work/fifo.onnx" "$m"

mount.wiamodel --help | grep -q -- --log_file || fail "--help lists no log_file"
mount.wiamodel --version | grep -q "libfuse 3" || fail "--version names no libfuse"

# as an ordinary user
mkdir "$work/u" "$work/u/m" && cp "$good" "$work/u/" && chmod 644 "$work"/u/*.safetensors
[ "$(id -u)" != 0 ] || chown -R 65534:65534 "$work/u"
expect 4 "user_allow_other" $as_user mount.wiamodel -o allow_other "$work/u/good.safetensors" "$work/u/m"
expect 4 "/usr" $as_user mount.wiamodel -o nonempty "$work/u/good.safetensors" /usr/bin
chmod 000 "$work/good.safetensors"
[ "$(id -u)" != 0 ] || refused 3 "good.safetensors" $as_user mount.wiamodel "$good" "$work/u/m"
finish
