#!/bin/sh
# SPDX-License-Identifier: MIT
# Large arrays of metadata lie in files beside metadata.json: they are named there, read, written and saved.
. "$(dirname "$0")/common"

m=$work/m
mkdir "$m"
cd "$work" || exit 1
PYTHONPATH=$here python3 -B - <<'END' || { fail "cannot write the model"; exit 1; }
from models import *
safetensors("a.safetensors", {"w": ("F32", [1], floats(1))}, {"note": "x", "wiamodel.preprocessing": json.dumps(
    {"mean": [0.5, 1], "vocab": {"tokens": ["t%d" % i for i in range(1500)], "few": list(range(1000)), "a/b": [1.5] * 1001}})})
END
mounted() { expect 0 "" mount.wiamodel "$@" a.safetensors "$m"; }
saved() { expect 0 "" umount.fuse.wiamodel "$m"; }
tokens=metadata/preprocessing/vocab/tokens.json
value() { jq -c "$1" "$m/metadata.json"; }

mounted
[ "$(value .preprocessing.vocab.tokens)" = "{\"\$file\":\"$tokens\"}" ] || fail "not named: $(value .preprocessing)"
[ "$(value '.preprocessing.vocab.few|length')" = 1000 ] || fail "a small array is not there"
[ "$(cd "$m" && find metadata -type f | sort | tr '\n' ' ')" = "metadata/preprocessing/vocab/a%2Fb.json $tokens " ] ||
	fail "files: $(cd "$m" && find metadata)"
[ "$(jq -c '[length, .[1499]]' "$m/$tokens")" = '[1500,"t1499"]' ] || fail "tokens.json"
wiamodel cat a.safetensors $tokens | cmp - "$m/$tokens" || fail "wiamodel cat"

# one element
jq '.[7] = "seven"' "$m/$tokens" >new && cat new >"$m/$tokens" || fail "writing an array"
[ "$(jq -r '.[7]' "$m/$tokens")" = seven ] || fail "the array reads as before"
# what is written elsewhere leaves it
jq '.preprocessing.mean[0] = 9' "$m/metadata.json" >new && cat new >"$m/metadata.json" || fail "writing metadata.json"
[ "$(jq -r '.[7]' "$m/$tokens")" = seven ] || fail "metadata.json takes the array back"
saved
[ "$(wiamodel cat a.safetensors $tokens | jq -c '[length, .[7], .[8]]')" = '[1500,"seven","t8"]' ] || fail "not saved"
[ "$(wiamodel cat a.safetensors metadata.json | jq -c '.preprocessing.mean')" = '[9,1]' ] || fail "the rest is not saved"
[ "$(wiamodel cat a.safetensors 'metadata/preprocessing/vocab/a%2Fb.json' | jq -c '[length, .[0]]')" = '[1001,1.5]' ] ||
	fail "the other array changed"

# refused
mounted
for text in '{"a": 1}' '[1,' '7'; do
	printf '%s' "$text" >new
	cp new "$m/$tokens" 2>err && fail "taken: $text"
	grep -q "Invalid argument" err || fail "$text: $(cat err)"
done
[ "$(jq -r '.[7]' "$m/$tokens")" = seven ] || fail "a refused array was taken"
jq '.preprocessing.x = {"$file": "metadata/nothing.json"}' "$m/metadata.json" >new
cp new "$m/metadata.json" 2>/dev/null && fail "taken: a file that is not there"
grep -q "there is no file 'metadata/nothing.json'" "$m/.wiamodel/status.json" || fail "a wrong name: $(cat "$m/.wiamodel/status.json")"
# removed, renamed, shortened, a new one
jq '.preprocessing.vocab |= {words: .tokens} | .preprocessing.more = [range(1001)] | .preprocessing.less = [range(3)]' \
	"$m/metadata.json" >new && cat new >"$m/metadata.json" || fail "moving an array"
[ "$(cd "$m" && find metadata -type f | sort | tr '\n' ' ')" = "metadata/preprocessing/more.json metadata/preprocessing/vocab/words.json " ] ||
	fail "moved: $(cd "$m" && find metadata)"
[ ! -e "$m/$tokens" ] || fail "the old file is still there"
[ "$(jq -c '[length, .[7]]' "$m/metadata/preprocessing/vocab/words.json")" = '[1500,"seven"]' ] || fail "moved: content"
[ "$(jq -c 'add' "$m/metadata/preprocessing/more.json")" = 500500 ] || fail "new: content"
jq -c '.[:2]' "$m/metadata/preprocessing/more.json" >new && cat new >"$m/metadata/preprocessing/more.json" || fail "shortening"
[ "$(value .preprocessing.more)" = '[0,1]' ] || fail "shortened: $(value .preprocessing.more)"
[ ! -e "$m/metadata/preprocessing/more.json" ] || fail "a small array still has a file"
saved
[ "$(wiamodel cat a.safetensors metadata/preprocessing/vocab/words.json | jq -r '.[7]')" = seven ] || fail "moved: not saved"

again_as_user
finish
