# device.sh - every program that takes a device: on a GPU where there is one, else the library's own sentence and exit code 1.
. "$(dirname "$0")/expect.sh"

model=$folder/model
"$moe" make-model qwen3-30b-a3b "$model" --reduced
sizes="--hidden 256 --intermediate 128 --experts 16 --top-k 4 --repeat 2"

expect_text "device   cpu 0" "$moe" run "$model" --layer 0 --device cpu
expect_text '"calls_per_synchronize": 1' "$moe" bench $sizes --device cpu --json
expect_text "of 2 calls" "$moe" bench $sizes

if "$moe" devices | grep -q '^cuda [0-9]'; then
    for type in f32 bf16; do
        expect_text PASS "$moe" run "$model" --layer 0 --tokens 5 --type $type --device cuda --check
        expect_text "device   cuda 0" "$moe" run "$model" --layer 0 --tokens 5 --type $type --device cuda
    done
    expect_text "stream that is then synchronised" "$moe" bench $sizes --device cuda
    expect_text '"device": "cuda"' "$moe" bench $sizes --device cuda --json
    expect_text "token 3: " "$BIN/forward" "$model" cuda
    expect_text "expected" "$BIN/dlopen" "" cuda
    exit 0
fi
sentence="CUDA" # "the CUDA backend is not built into this library", "no CUDA driver (libcuda.so.1) on this machine"
expect_failure 1 "$sentence" "$moe" run "$model" --layer 0 --device cuda
expect_failure 1 "$sentence" "$moe" run "$model" --layer 0 --device cuda --check
expect_failure 1 "$sentence" "$moe" bench "$model" --layer 0 --device cuda
expect_failure 1 "$sentence" "$moe" bench $sizes --device cuda --json
expect_failure 1 "$sentence" "$BIN/forward" "$model" cuda
expect_failure 1 "$sentence" "$BIN/dlopen" "" cuda
