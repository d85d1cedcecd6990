#!/bin/sh
# SPDX-License-Identifier: MIT
# Every good model of tests/golden, mounted: its tree agrees with itself, and cp -r of the mount is what extract writes.
. "$(dirname "$0")/common"

m=$work/m
mkdir "$m"
cd "$work" || exit 1
count=0

for good in "$top"/tests/golden/*/good-*; do
	case $good in *.expected) continue ;; esac
	model=$good
	[ ! -e "$good/.model" ] || model=$good/$(cat "$good/.model")
	mount.wiamodel -o ro "$model" "$m" >out 2>err || { fail "$model: $(cat err)"; continue; }
	count=$((count + 1))
	python3 -B "$here/walk.py" "$m" "$model" damaged >out 2>err || fail "$model: $(head -n 5 err)"
	grep -q "^metadata.json " out || fail "$model: hardly anything is there"
	rm -rf copied extracted
	cp -r "$m" copied 2>err
	grep -v "Input/output error" err >more && fail "$model: cp -r: $(head -n 5 more)"
	wiamodel extract "$model" . extracted >out 2>err
	# what cannot be read is left out by one, and begun by the other
	diff -r --no-dereference copied extracted >out 2>&1
	grep -v "^Only in copied" out >more && fail "$model: extract and cp -r differ: $(head -n 5 more)"
	[ "$(wc -l <out)" = 0 ] || [ -s err ] || fail "$model: extract leaves out without a word: $(head -n 5 out)"
	find copied -type f -name '*.json' -size +0 ! -path '*/files/*' -exec jq . {} + >out 2>err || fail "$model: jq: $(head -n 5 err)"
	cat "$m/.wiamodel/SHA256SUMS" >sums 2>err || fail "$model: SHA256SUMS: $(cat err)"
	[ "$(wc -l <sums)" = "$(find "$m/raw" -type f | wc -l)" ] || fail "$model: not every tensor has a line in SHA256SUMS"
	if grep -q "^[^#]" sums; then
		(cd "$m" && sha256sum -c --strict --quiet "$work/sums") >out 2>&1 || fail "$model: sha256sum -c: $(head -n 5 out)"
	fi
	expect 0 "" umount.fuse.wiamodel "$m"
done
[ $count -gt 10 ] || fail "only $count models were found"
finish
