#!/bin/sh
# SPDX-License-Identifier: MIT
# Hostile names, through the mount and the command line: each tensor is there once, tells its exact name, and all ways
# to copy it give the same bytes.
. "$(dirname "$0")/common"

m=$work/m
mkdir "$m"
cd "$work" || exit 1
export PYTHONPATH="$here" PYTHONDONTWRITEBYTECODE=1
python3 "$here/names.py" make . || { fail "cannot write the models"; exit 1; }

for model in names.npz names.onnx names.safetensors; do
	expect 0 "" mount.wiamodel -o ro $model "$m"
	python3 "$here/names.py" check "$m" $model >out 2>&1 || fail "$model: $(head -n 20 out)"
	rm -rf copied extracted one
	cp -r "$m" copied 2>err || fail "$model: cp -r: $(cat err)"
	expect 0 "" wiamodel extract $model . extracted
	diff -r --no-dereference copied extracted >out 2>&1 || fail "$model: extract and cp -r differ: $(head -n 5 out)"
	[ "$(find extracted | wc -l)" -gt 200 ] || fail "$model: extract has hardly anything"
	for f in info raw/a tensors; do
		expect 0 "" wiamodel extract -f $model $f one
		diff -r "$m/$f" "one/$(basename $f)" >out 2>&1 || fail "$model: extract $f: $(head -n 5 out)"
	done
	(cd "$m" && sha256sum -c --strict .wiamodel/SHA256SUMS) >out 2>err || fail "$model: sha256sum -c: $(cat err)"
	[ "$(wc -l <out)" = "$(find "$m/raw" -type f | wc -l)" ] || fail "$model: not all of raw/ has a sum"
	find "$m" -path "$m/raw" -prune -o -type f -name '*.json' -print0 | xargs -0 jq . >out 2>err || fail "$model: jq: $(cat err)"
	expect 0 "" umount.fuse.wiamodel "$m"
done

again_as_user
finish
