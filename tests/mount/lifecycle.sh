#!/bin/sh
# SPDX-License-Identifier: MIT
# Mounting and the ways to end a mount, as root and as an ordinary user: each leaves nothing.
. "$(dirname "$0")/common"

m=$work/m
mkdir "$m"
make_model "$work/a.safetensors" 4
mkdir -p "$work/u/m" && cp "$work/a.safetensors" "$work/u/"
[ "$(id -u)" != 0 ] || chown -R 65534:65534 "$work/u"

mounted() {
	expect 0 "" mount.wiamodel "$work/a.safetensors" "$m"
	# the very first request after the command returned
	[ "$(ls "$m/tensors")" = "$(printf 't0.npy\nt1.npy\nt2.npy\nt3.npy')" ] || fail "tensors are not listed"
}
ended() {
	await not_mounted "$m" || fail "$1: still mounted"
	await no_processes || fail "$1: processes left: $(processes)"
}

mounted
expect 0 "" umount.fuse.wiamodel "$m"
not_mounted "$m" || fail "umount.fuse.wiamodel left the mount"
# the server has gone when the command returns; the keeper may still be a zombie, which has no command line
no_processes || fail "umount.fuse.wiamodel returned before the server ended"

mounted
expect 0 "" wiamodel umount "$m"
ended "wiamodel umount"

mounted
expect 0 "" umount "$m"
no_processes || fail "umount(8) returned before the server ended"
ended "umount"

mounted
expect 0 "" fusermount3 -u "$m"
ended "fusermount3"

for s in TERM INT HUP; do
	mounted
	for p in $(processes); do
		kill -$s "$p" 2>/dev/null
	done
	ended "SIG$s"
done

# a dead server leaves no dead mount
mounted
expect 0 "" wiamodel commit "$m"
server=$(processes | sort -n | tail -n 1)
kill -KILL "$server"
ended "SIGKILL"
ls "$m" >"$work/out" 2>&1 || fail "after SIGKILL the directory is dead: $(cat "$work/out")"

# keeper and server both killed: a dead mount, which says so and can be unmounted
mounted
kill -KILL $(processes | sort -n | head -n 1)
kill -KILL $(processes)
await no_processes || fail "cannot be killed: $(processes)"
expect 4 "dead mount" mount.wiamodel "$work/a.safetensors" "$m"
expect 0 "" umount.fuse.wiamodel "$m"
not_mounted "$m" || fail "a dead mount stays"

# busy: refused, and all as before; then detached
mounted
exec 9<"$m/metadata.json"
expect 32 "busy" umount.fuse.wiamodel "$m"
is_mounted "$m" || fail "a busy mount was unmounted"
head -c 1 <&9 | grep -q '{' || fail "the open file died"
expect 0 "" umount.fuse.wiamodel -l "$m"
exec 9<&-
ended "lazy"

expect 32 "no model is mounted" umount.fuse.wiamodel "$m"
expect 2 "usage" umount.fuse.wiamodel

# in the foreground the program ends with the mount
mount.wiamodel -f "$work/a.safetensors" "$m" &
pid=$!
await is_mounted "$m" || fail "foreground: not mounted"
umount.fuse.wiamodel "$m"
wait $pid || fail "foreground: exit code $?"
mount.wiamodel -f "$work/a.safetensors" "$m" &
pid=$!
await is_mounted "$m" || fail "foreground: not mounted"
kill -TERM $pid
wait $pid || fail "foreground, SIGTERM: exit code $?"
ended "foreground"

# as mount(8) calls its helper
expect 0 "" mount.wiamodel "$work/a.safetensors" "$m" -n -o rw,user=root,x-systemd.automount,noatime,_netdev -t wiamodel
umount.fuse.wiamodel "$m" -n -r -t fuse.wiamodel || fail "umount(8)'s spelling"
ended "mount(8)"
if [ "$(id -u)" = 0 ]; then
	expect 0 "" mount -t wiamodel -o ro "$work/a.safetensors" "$m"
	expect 0 "" umount "$m"
	ended "mount -t wiamodel"
fi

# options that show
expect 0 "" mount.wiamodel -o 'ro,uid=12,gid=34,umask=077,fsname=a\,b,views=tensors:raw' "$work/a.safetensors" "$m"
[ "$(stat -c %u:%g "$m/tensors")" = 12:34 ] || fail "uid, gid: $(stat -c %u:%g "$m/tensors")"
stat -c %A "$m/raw/t0" | grep -q '^-r.-------$' || fail "umask: $(stat -c %A "$m/raw/t0")"
[ "$(ls "$m" | tr '\n' ' ')" = "raw tensors " ] || fail "views: $(ls "$m")"
grep -q '^a,b ' /proc/self/mounts || fail "fsname: $(grep "$m" /proc/self/mounts)"
umount.fuse.wiamodel "$m"
ended "options"

# as an ordinary user, by all four ways
for how in "umount.fuse.wiamodel" "umount" "fusermount3 -u" "wiamodel umount"; do
	expect 0 "" $as_user mount.wiamodel "$work/u/a.safetensors" "$work/u/m"
	is_mounted "$work/u/m" || fail "user: not mounted"
	$as_user ls "$work/u/m/tensors" >/dev/null || fail "user: cannot list"
	expect 0 "" $as_user $how "$work/u/m"
	await not_mounted "$work/u/m" || fail "user: $how left the mount"
	await no_processes || fail "user: $how left processes"
done

# root unmounts a user's mount, which it cannot look into
if [ "$(id -u)" = 0 ]; then
	expect 0 "" $as_user mount.wiamodel "$work/u/a.safetensors" "$work/u/m"
	expect 0 "" umount "$work/u/m"
	await not_mounted "$work/u/m" || fail "root cannot unmount a user's mount"
fi
# umount(8) remembers a mount only as long as it is there
await eval '! grep -qs "$work/" /run/mount/utab' || fail "a record stays: $(cat /run/mount/utab)"
finish
