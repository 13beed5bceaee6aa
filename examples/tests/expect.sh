# expect.sh - sourced by the tests of the examples: BIN is the folder of the programs, $folder a new temporary folder.
set -euo pipefail
: "${BIN:?the folder of the programs}"
moe=$BIN/moe
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}

# expect_failure CODE TEXT COMMAND...: exits with CODE, and one line on standard error contains TEXT.
expect_failure() {
    local code=$1 text=$2 status=0
    shift 2
    "$@" >"$folder/stdout" 2>"$folder/stderr" || status=$?
    [ "$status" -eq "$code" ] || fail "exit code $status, not $code: $* ($(cat "$folder/stderr"))"
    grep -qF -- "$text" "$folder/stderr" || fail "'$text' is not in: $(cat "$folder/stderr") ($*)"
    [ "$code" -ne 1 ] || [ "$(wc -l <"$folder/stderr")" -eq 1 ] || fail "more than one line: $*"
    echo "as it should: $(tail -n 1 "$folder/stderr")"
}

# expect_text TEXT COMMAND...: succeeds, and standard output contains TEXT.
expect_text() {
    local text=$1
    shift
    "$@" >"$folder/stdout" || fail "exit code $?: $*"
    grep -qF -- "$text" "$folder/stdout" || fail "'$text' is not in: $(cat "$folder/stdout") ($*)"
}

# The one .gguf in a folder, or the folder itself.
checkpoint_in() {
    local files=("$1"/*.gguf)
    if [ -e "${files[0]}" ]; then echo "${files[0]}"; else echo "$1"; fi
}
