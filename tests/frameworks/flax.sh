#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: flax.sh WIAMODEL
set -eu
. "$(dirname "$0")/environment"
python=$(environment flax)
exec "$python" "$(dirname "$0")/flax_check.py" "$1"
