#!/bin/sh
# SWIG: reads moe.h as it is, and Python calls forward once through what it made.
# usage: run.sh <include folder> <library folder> <build folder>
set -eu
include=$1 library=$2 build=$3
here=$(cd "$(dirname "$0")" && pwd)

need() { command -v "$1" >/dev/null 2>&1 || { echo "$1 is missing: install the package $2" >&2; exit 1; }; }
need swig swig
need python3 python3
need gcc gcc
mkdir -p "$build"

swig -python -Wall -w451 "-I$include" -outdir "$build" -o "$build/moe_wrap.c" "$here/moe.i"
headers=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
[ -f "$headers/Python.h" ] || { echo "Python.h is missing: install the package python3-dev" >&2; exit 1; }
gcc -shared -fPIC -O1 "-I$include" "-I$headers" -o "$build/_moe.so" "$build/moe_wrap.c" "-L$library" -lmoe
LD_LIBRARY_PATH="$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" PYTHONPATH="$build" PYTHONDONTWRITEBYTECODE=1 \
    python3 "$here/forward.py"
