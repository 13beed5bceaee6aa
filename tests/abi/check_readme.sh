#!/bin/sh
# Compiles the C program of README.md together with the function of docs/start/cuda.md and runs it twice: on the fixture qwen3_moe_bf16, where it must print what readme_output.py
# computes, and against no checkpoint, where it must say which file it misses and fail.
# usage: check_readme.sh README CUDA_PAGE LIBRARY INCLUDE_DIRECTORY FIXTURE PYTHON
set -u
readme=$1 cuda_page=$2 library=$3 include=$4 fixture=$5 python=$6
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for page in "$readme" "$cuda_page"; do
    grep -q '^```c$' "$page" || { echo "no C program in $page"; exit 1; }
    sed -n '/^```c$/,/^```$/p' "$page" | sed '/^```/d' >>"$work/program.c"
done
cc -std=c99 -Wall -Wextra -pedantic -Werror -I "$include" "$work/program.c" "$library" \
    -Wl,-rpath,"$(dirname "$library")" -o "$work/program" || exit 1

if ! "$work/program" "$fixture" >"$work/output" 2>"$work/error"; then
    echo "the program fails on $fixture:"
    cat "$work/error"
    exit 1
fi
"$python" "$here/readme_output.py" "$fixture" "$work/output" || exit 1

if "$work/program" "$work/absent" 2>"$work/error"; then
    echo "the program succeeded without a checkpoint"
    exit 1
fi
grep -q "$work/absent" "$work/error" || { echo "the error does not name the file:"; cat "$work/error"; exit 1; }
