#!/bin/sh
# Fuzzes one target after the other: run.sh PROGRAM MINUTES [TARGET ...]. MINUTES are for all together.
# What is learnt stays in build/fuzz/corpus, what fails in build/fuzz/found; the last line of each target's log is its summary.
set -eu
program=$1 minutes=$2
shift 2
[ $# -gt 0 ] || set -- safetensors index config gguf model quant_state plan packed
here=$(cd "$(dirname "$0")" && pwd)
work=$(dirname "$(dirname "$(dirname "$program")")")
seconds=$((minutes * 60 / $#))
# Short stacks of allocations and a small quarantine: twice the speed, and the same faults are seen.
export ASAN_OPTIONS="malloc_context_size=1:quarantine_size_mb=8${ASAN_OPTIONS:+:$ASAN_OPTIONS}"

longest_input() {
    case $1 in
        gguf) echo 20000 ;;
        model) echo 14000 ;;
        packed) echo 32768 ;;
        *) echo 8192 ;;
    esac
}

stat() { sed -n "s/^stat::$2: *//p" "$1" | tail -n 1; }

status=0
for target in "$@"; do
    corpus=$work/corpus/$target found=$work/found/$target log=$work/$target.log
    mkdir -p "$corpus" "$found"
    result="no finding"
    nice -n 19 "$program" "$target" "$corpus" "$here/corpus/$target" "$here/regressions/$target" \
        -max_total_time=$seconds -max_len="$(longest_input "$target")" -rss_limit_mb=2000 -malloc_limit_mb=1000 \
        -timeout=10 -artifact_prefix="$found/" -print_final_stats=1 >"$log" 2>&1 || {
        result="a finding in $found, see $log"
        status=1
    }
    printf '%s: %s inputs, %s a second, %s\n' "$target" "$(stat "$log" number_of_executed_units)" \
        "$(stat "$log" average_exec_per_sec)" "$result"
done
exit $status
