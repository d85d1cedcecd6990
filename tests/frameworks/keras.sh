#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: keras.sh WIAMODEL
set -eu
. "$(dirname "$0")/environment"
python=$(environment keras)
exec "$python" "$(dirname "$0")/keras_models.py" "$1"
