#!/bin/sh
# SPDX-License-Identifier: MIT
# Saving, killed at every system call that changes a file, and with each of them failing: the model is the old or the new
# one, byte for byte, saving again works, and nothing stays behind.
. "$(dirname "$0")/common"

command -v strace >/dev/null || { echo "skipped: strace is not installed"; exit 0; }
m=$work/m
dir=$work/d
mkdir "$m" "$dir"
f=$dir/a.safetensors
make_model "$work/original" 4
head -c 4096 /dev/zero | tr '\0' A >"$work/new"
calls=ftruncate,pwrite64,write,copy_file_range,ioctl,fsync,fdatasync,fchown,fchmod,fsetxattr,renameat,renameat2,unlinkat,mkdirat
clean() { [ "$(ls -A "$dir")" = a.safetensors ]; }

# staged: the model with an edit that waits in the journal of a mount that died
staged() {
	rm -rf "$dir" && mkdir "$dir" && cp "$work/original" "$f"
	mount.wiamodel "$f" "$m" && cp "$work/new" "$m/raw/t1" || fail "cannot stage"
	for p in $(processes | sort -rn); do
		kill -KILL "$p" 2>/dev/null
	done
	await no_processes
	umount.fuse.wiamodel "$m" 2>/dev/null
	await not_mounted "$m" || fail "the dead mount stays"
}

staged
strace -f -qq -o "$work/calls" -e "trace=$calls" wiamodel commit "$f" || fail "cannot save"
cp "$f" "$work/edited"
clean || fail "saved, and left: $(ls -A "$dir")"
total=$(wc -l <"$work/calls")
[ "$total" -gt 10 ] || fail "only $total calls seen"

# judged WHAT: the file is old or new; a second attempt ends with the new one and nothing else
judged() {
	if cmp -s "$f" "$work/original"; then
		old=$((old + 1))
	elif cmp -s "$f" "$work/edited"; then
		new=$((new + 1))
	else
		fail "$1: neither the old nor the new file"
	fi
	wiamodel commit "$f" >"$work/out" 2>&1 || fail "$1: saving again: $(cat "$work/out")"
	cmp -s "$f" "$work/edited" || fail "$1: saved again, and not the new file"
	clean || fail "$1: left: $(ls -A "$dir")"
}

# strace counts each kind of call by itself
sed 's/^[0-9]* *//; s/(.*//' "$work/calls" | awk '{ print $1, ++n[$1] }' >"$work/moments"
old=0 new=0
while read -r call nth; do
	staged
	strace -f -qq -o "$work/one" -e "trace=$call" -e "inject=$call:signal=SIGKILL:when=$nth" \
		wiamodel commit "$f" >"$work/out" 2>&1 </dev/null
	judged "killed at $call $nth"
done <"$work/moments"
[ $old -gt 0 ] && [ $new -gt 0 ] || fail "killed: $old times the old, $new times the new file: not every moment was met"

while read -r call nth; do
	case $call in
	pwrite64 | write | ftruncate | copy_file_range) error=ENOSPC ;;
	fsync | fdatasync | renameat | renameat2 | fchmod) error=EIO ;;
	*) continue ;;
	esac
	staged
	strace -f -qq -o "$work/one" -e "trace=$call" -e "inject=$call:error=$error:when=$nth" \
		wiamodel commit "$f" >"$work/out" 2>&1 </dev/null
	judged "$call $nth: $error"
done <"$work/moments"
finish
