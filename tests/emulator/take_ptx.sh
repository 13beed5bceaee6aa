#!/bin/sh
# take_ptx.sh FOLDER OBJECT...: makes the folder anew, with the PTX that keep_ptx.sh put into the objects: that of x.cu.o in x.ptx.
set -eu
folder=$1
shift
rm -rf "$folder"
mkdir -p "$folder"
for object in "$@"; do
    name=$(basename "$object" .cu.o)
    objcopy -O binary --only-section=.moe.ptx --set-section-flags .moe.ptx=alloc "$object" "$folder/$name.ptx"
    [ -s "$folder/$name.ptx" ] || { echo "take_ptx.sh: $object has no PTX" >&2; exit 1; }
done
