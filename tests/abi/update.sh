#!/bin/sh
# Writes what has been added to the ABI into the golden files; refuses what would break programs of the same MOE_ABI_VERSION.
# usage: update.sh LIBRARY, in the root of the source tree, with a LIBRARY built from it
set -eu
here=$(dirname "$0")
header=include/moe/moe.h
python3 "$here/check_layout.py" "$header" --update
python3 "$here/check_symbols.py" "$1" --update
python3 "$here/check_types.py" "$header" libmoe/api/moe.map --update
git diff --stat -- "$here"
