#!/bin/sh
# SPDX-License-Identifier: MIT
# The process that reads the model crashes, hangs or is interrupted: one line, nothing mounted, nothing left. And the
# model file shrinks while it is mounted.
. "$(dirname "$0")/common"

m=$work/m
mkdir "$m"
# big enough that its reader can be caught at work
make_model "$work/big.safetensors" 150000

# launcher, keeper and server: the youngest is the server, and it is the third
server() {
	set -- $(processes | sort -n)
	[ $# = 3 ] && echo "$3"
}
# caught OPTIONS: starts mounting and stops the server while it reads
caught() {
	setsid mount.wiamodel "$@" "$work/big.safetensors" "$m" >"$work/out" 2>"$work/err" &
	launcher=$!
	until s=$(server); do
		is_mounted "$m" && break
	done
	kill -STOP "$s" 2>/dev/null
	is_mounted "$m" || return 0
	fail "the reader was too fast to catch"
	kill -CONT "$s"
	umount.fuse.wiamodel "$m"
	return 1
}
outcome() {
	wait $launcher
	got=$?
	[ $got = "$1" ] || fail "exit $got, expected $1: $(cat "$work/err")"
	grep -q "$2" "$work/err" || fail "'$2' is not in: $(cat "$work/err")"
	[ "$(wc -l <"$work/err")" = 1 ] || fail "not one line: $(cat "$work/err")"
	not_mounted "$m" || fail "mounted all the same"
	no_processes || fail "left processes $(processes)"
}

if caught; then
	kill -SEGV "$s"
	kill -CONT "$s"
	outcome 3 "big.safetensors.*Segmentation fault"
fi
if caught -o timeout=1; then
	outcome 3 "1 seconds"
fi
if caught; then
	# Ctrl-C: to the whole process group; the launcher dies of it
	env kill -INT -- "-$launcher"
	wait $launcher
	await no_processes || fail "interrupted: left $(processes)"
	not_mounted "$m" || fail "interrupted: mounted all the same"
fi

# truncated behind us: EIO where the bytes are gone, the rest still reads, and so do all once it has grown again
make_model "$work/a.safetensors" 64
cp "$work/a.safetensors" "$work/b.safetensors"
expect 0 "" mount.wiamodel --log-file="$work/log" "$work/a.safetensors" "$m"
truncate -s 16384 "$work/a.safetensors"
cat "$m/raw/t60" >/dev/null 2>"$work/err" && fail "a lost tensor was read"
grep -q "Input/output error" "$work/err" || fail "not EIO: $(cat "$work/err")"
cat "$m/raw/t0" >"$work/out" || fail "an intact tensor cannot be read"
[ "$(wc -c <"$work/out")" = 4096 ] || fail "an intact tensor is short"
grep -q "truncated" "$work/log" || fail "the log does not say so: $(cat "$work/log")"
if python3 -c 'import mmap' 2>/dev/null; then
	# a mapping of the lost part: its reader gets the signal, the mount does not
	python3 -c 'import mmap, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
with open(sys.argv[1], "rb") as f: mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[0]' "$m/raw/t62" 2>/dev/null
	[ $? = 135 ] || fail "a mapping of a lost tensor can be read"
fi
for n in 1 2 3 4 5 6 7 8; do
	cat "$m"/raw/* >/dev/null 2>&1 &
	cat "$m"/stats/* "$m"/tensors/* >/dev/null 2>&1 &
done
wait
cmp -n 4096 "$m/raw/t1" "$work/out" || fail "the mount is dead"
cat "$work/b.safetensors" >"$work/a.safetensors"
cmp "$m/raw/t61" "$work/out" || fail "a tensor that is back cannot be read"
expect 0 "" umount.fuse.wiamodel "$m"
finish
