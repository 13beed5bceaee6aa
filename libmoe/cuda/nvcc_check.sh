#!/bin/sh
# nvcc_check.sh COMMAND...: runs a compilation and fails it when ptxas says that it serialised wgmma instructions. That is
# only a remark to ptxas, but such a kernel runs at half its speed.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" >"$log" 2>&1
status=$?
cat "$log" >&2
if grep -q 'wgmma.*serialized' "$log"; then
    echo "nvcc_check.sh: wgmma instructions were serialized, see above" >&2
    exit 1
fi
exit $status
