#!/bin/sh
# compute-sanitizer over small cases: sanitize.sh [path of moe-gpu-test] [more options of it].
# TOOLS chooses among memcheck, synccheck and racecheck. Racecheck takes the kernels without asynchronous copies, whose
# barriers it does not know: those of router and dispatch.
set -eu
program=${1:-build/cuda/bin/tests/moe-gpu-test}
[ $# -eq 0 ] || shift
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)

# One shape of each family, every layout, odd ids and addresses; no processes of their own, no load tests.
set -- --quiet --filter 'format/*/h128_i64/*' --filter 'format/*[kxs]/h256_i256/*' --filter 'grid/*/h128_i64/*' --filter 'length/*/h352' \
    --filter 'length/*/i176' --filter 'ids/*' --filter 'stage/*' --filter 'call/addresses/*' --filter 'call/true_tokens/*' \
    --filter 'call/chunks/*' --filter 'dispatch/odd_ids' --filter 'router/rule/*' --filter 'slice/*/rich/bf16/*' \
    --filter 'layer/experts/*/bf16/*' --filter 'triton/fused_forward/t32_e8*' --filter 'graph/streams' \
    --filter 'skew/many_rows_fewer/nvfp4' --filter 'families/call/addresses/*/bf16' --filter 'families/call/true_tokens/bf16/bf16' \
    --filter 'families/call/accumulate/nvfp4/bf16' --filter 'families/stage/experts/rich/*/bf16' --filter 'families/slice/*/bf16' \
    --filter 'families/graph/streams' "$@"

check() {
    "$sanitizer" --error-exitcode 9 --launch-timeout 120 --tool "$@"
}

for tool in ${TOOLS:-memcheck synccheck racecheck}; do
    echo "$tool"
    case $tool in
        # It is slow where kernels hold many barriers: one shape of each format, and two streams.
        synccheck) check synccheck --num-cuda-barriers 65536 "$program" --quiet --filter 'format/*/h128_i64/bf16' \
            --filter 'format/*[kxs]/h256_i256/bf16' --filter 'graph/streams' --filter 'families/graph/layers/t2' --filter 'skew/many_rows_zipf/nvfp4' ;;
        racecheck) check racecheck "$program" --quiet --filter 'router/rule/*' --filter 'dispatch/*' ;;
        *) check "$tool" "$program" "$@" ;;
    esac
done
