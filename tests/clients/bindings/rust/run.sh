#!/bin/sh
# Rust: bindgen reads moe.h as it is, and a program of the standard library alone calls forward once.
# usage: run.sh <include folder> <library folder> <build folder>
set -eu
include=$1 library=$2 build=$3
here=$(cd "$(dirname "$0")" && pwd)

need() { command -v "$1" >/dev/null 2>&1 || { echo "$1 is missing: install the package $2" >&2; exit 1; }; }
need bindgen bindgen
need cargo cargo
mkdir -p "$build"

# New-type enums: a value that a newer library knows and this header does not is a number, not undefined behaviour.
bindgen "$include/moe/moe.h" --newtype-enum 'moe_.*' --allowlist-function 'moe_.*' --allowlist-type 'moe_.*' \
    --allowlist-var 'MOE_.*' --no-prepend-enum-name --output "$build/moe.rs" -- "-I$include" ||
    { echo "bindgen failed: does it find libclang? install the package libclang-dev" >&2; exit 1; }

export MOE_BINDINGS="$build/moe.rs" MOE_LIBRARY_FOLDER="$library" CARGO_TARGET_DIR="$build/target"
cargo build --offline --quiet --manifest-path "$here/Cargo.toml"
LD_LIBRARY_PATH="$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$build/target/debug/forward"
# The layouts that bindgen computed against those that rustc makes of them.
LD_LIBRARY_PATH="$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
    cargo test --offline --quiet --manifest-path "$here/Cargo.toml"
