#!/bin/sh
# keep_ptx.sh NVCC ARGUMENTS...: compiles, and puts the PTX that nvcc passed to ptxas into the object, as its section .moe.ptx. The
# emulator needs this PTX, and writing it a second time takes as long as half of the compilation. It is in the object, because ccache
# keeps that. Linkers leave a section out that is marked so. take_ptx.sh takes it from there.
set -eu

object=
before=
for argument in "$@"; do
    [ "$before" != -o ] || object=$argument
    before=$argument
done

kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT
"$@" --keep --keep-dir "$kept"
[ "$(ls "$kept" | grep -c '\.ptx$')" -eq 1 ] || { echo "keep_ptx.sh: there is not one file of PTX for $object" >&2; exit 1; }
objcopy --add-section .moe.ptx="$(ls "$kept"/*.ptx)" --set-section-flags .moe.ptx=exclude "$object"
