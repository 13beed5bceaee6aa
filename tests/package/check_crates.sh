#!/bin/sh
# Packs both crates, unpacks them in an empty folder and runs the example there: the crate moe against the crate moe-sys that was
# packed with it. Nothing is downloaded.
# usage: check_crates.sh, with MOE_LIB_DIR, and CARGO_TARGET_DIR where the builds go
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
fixture=$here/../oracle/fixtures/qwen3_moe_bf16
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "crates: $*"
    exit 1
}

# Older ones pack one crate at a time, and look for moe-sys in a registry.
minor=$(cargo --version | sed -n 's/^cargo 1\.\([0-9]*\)\..*/\1/p')
[ "${minor:-0}" -ge 90 ] || { echo "skipped: packing a crate with another that it needs takes cargo 1.90 or newer" && exit 0; }

rm -rf "$CARGO_TARGET_DIR/package"
cargo package --quiet --workspace --offline --allow-dirty --no-verify --manifest-path "$root/bindings/rust/Cargo.toml" \
    >"$work/log" 2>&1 || fail "cargo package: $(cat "$work/log")"
for crate in "$CARGO_TARGET_DIR"/package/*.crate; do tar -xzf "$crate" -C "$work"; done

safe=$(echo "$work"/moe-[0-9]*)
sys=$(echo "$work"/moe-sys-[0-9]*)
for crate in "$safe" "$sys"; do
    [ -d "$crate" ] || fail "not packed: $crate"
    cmp "$root/LICENSE" "$crate/LICENSE" || fail "$(basename "$crate") is without the license"
    cmp "$root/bindings/rust/README.md" "$crate/README.md" || fail "$(basename "$crate") is without the README"
    grep -q '^license = "Apache-2.0"$' "$crate/Cargo.toml" || fail "no license in $(cat "$crate/Cargo.toml")"
    [ ! -e "$crate/tests" ] || fail "tests are packed, which need files of the source tree"
done
! grep -q '^path = "\.\.' "$safe/Cargo.toml" || fail "a path of the source tree in $(cat "$safe/Cargo.toml")"

cd "$safe"
cargo run --quiet --offline --config "patch.crates-io.moe-sys.path='$sys'" --example layer "$fixture" >"$work/output" 2>"$work/log" ||
    fail "the example: $(cat "$work/log")"
grep -q '^token 3: experts .*, rms of out 0\.[0-9]*[1-9]' "$work/output" || fail "the example says $(cat "$work/output")"
echo "crates: $(basename "$safe") and $(basename "$sys") are packed whole"
