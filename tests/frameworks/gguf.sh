#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: gguf.sh WIAMODEL
set -eu
. "$(dirname "$0")/environment"
python=$(environment gguf)
exec "$python" "$(dirname "$0")/gguf_check.py" "$1"
