#!/bin/sh
# candle: the block of examples/candle against candle's own, and clippy where there is one. Exit code 77: cargo did not
# bring the crates, or is too old for them.
# usage: run.sh <library folder> <build folder>; absolute paths. Crates and what is built stay in the build folder.
set -eu
cd "$(dirname "$0")/../../../examples/candle"
export MOE_LIB_DIR=$1 LD_LIBRARY_PATH="$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export CARGO_HOME="$2/cargo" CARGO_TARGET_DIR="$2/candle"

minor=$(cargo --version | sed 's/^cargo 1\.\([0-9]*\).*/\1/')
[ "$minor" -ge 89 ] || { echo "candle needs cargo 1.89 or newer" >&2; exit 77; }

# A registry that does not answer must not hold the test for long; without it what was fetched before will do.
mkdir -p "$2"
if ! timeout 300 cargo fetch --quiet 2>"$2/fetch.log" && ! cargo fetch --offline --quiet; then
    cat "$2/fetch.log" >&2
    exit 77
fi
# One test after the other: each has as many threads as there are cores.
cargo test --release --offline --quiet -- --test-threads=1
if cargo clippy --version >/dev/null 2>&1; then
    cargo clippy --release --offline --quiet --all-targets -- -D warnings
fi
