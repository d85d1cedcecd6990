#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: numpy_safetensors.sh WIAMODEL
set -eu
. "$(dirname "$0")/environment"
python=$(environment numpy)
exec "$python" "$(dirname "$0")/numpy_safetensors.py" "$1"
