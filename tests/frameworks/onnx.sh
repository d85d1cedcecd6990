#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: onnx.sh WIAMODEL
set -eu
. "$(dirname "$0")/environment"
python=$(environment onnx)
exec "$python" "$(dirname "$0")/onnx_check.py" "$1"
