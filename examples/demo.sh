#!/bin/bash
# demo.sh [BUILD_FOLDER] [--reduced]: a layer of Qwen3-30B-A3B with random weights, at true size, in bf16 and in NVFP4:
# made, inspected, run and checked. Takes 1.6 GB in the temporary folder, which is emptied at the end.
set -euo pipefail
size=
[ "${1:-}" = --reduced ] || [ $# -eq 0 ] || { BIN=$1/bin; shift; }
[ "${1:-}" != --reduced ] || size=--reduced
moe=${BIN:-build/cpu/bin}/moe
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
started=$SECONDS

bold= plain=
if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
show() {
    printf '$ moe %s\n' "${*//$folder\//}"
    "$moe" "$@"
}

say "This library, and what it can use here"
show version
show devices

say "One layer of Qwen3-30B-A3B, random weights, with the names and sizes of the released files"
show make-model qwen3-30b-a3b "$folder/bf16" $size
show make-model qwen3-30b-a3b "$folder/nvfp4" $size --format nvfp4

say "What the files say: the experts, how a token chooses among them, in 16 and in 4.5 bits per weight"
show inspect "$folder/bf16"
show inspect "$folder/nvfp4"

for format in bf16 nvfp4; do
    say "Four tokens through the $format layer, compared with the fp64 reference"
    show run "$folder/$format" --layer 0 --tokens 4 --type bf16 --check
done

say "One token reads 8 experts only; the files are mapped, so nothing else is touched"
for format in bf16 nvfp4; do
    show run "$folder/$format" --layer 0 --tokens 1 --type bf16 --repeat 10
done

say "Done in $((SECONDS - started)) s: both layers agree with the reference. Next: moe --help, examples/forward.c"
