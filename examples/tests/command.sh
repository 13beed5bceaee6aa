# command.sh - the command line itself: lists, files in and out, and every way to be wrong.
. "$(dirname "$0")/expect.sh"

qwen=$folder/qwen
"$moe" make-model qwen3-30b-a3b "$qwen" --reduced --shards 3 --seed 1

echo "== lists"
expect_text qwen3-next-80b-a3b "$moe" make-model --list
expect_text nvfp4 "$moe" formats
expect_text "cpu 0" "$moe" devices
expect_text version= "$moe" version
expect_text "moe $("$moe" version | sed -n 's/^version=//p')" "$moe" --version
expect_text "Example" "$moe" --help
for command in inspect quantize run explain bench make-model formats devices version; do
    expect_text "Example" "$moe" "$command" --help
done
expect_text "route" "$moe" explain --model deepseek-v3 --format nvfp4
expect_text "route" "$moe" explain --model deepseek-v3 --format nvfp4 --device auto

echo "== the same seed makes the same files"
"$moe" make-model qwen3-30b-a3b "$folder/again" --reduced --shards 3 --seed 1 --threads 1
cmp "$qwen/model-00002-of-00003.safetensors" "$folder/again/model-00002-of-00003.safetensors"

echo "== arrays in and out"
"$moe" run "$qwen" --layer 0 --tokens 5 --seed 3 --output "$folder/y.npy" --ids-output "$folder/ids.npy"
python3 - "$folder/y.npy" "$folder/ids.npy" <<'PYTHON'
import ast, struct, sys

def read(path, kind):
    data = open(path, "rb").read()
    length = struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10:10 + length].decode())
    assert data[:8] == b"\x93NUMPY\x01\x00" and (10 + length) % 64 == 0, path
    count = header["shape"][0] * header["shape"][1]
    assert len(data) == 10 + length + 4 * count, path
    return header, struct.unpack("<%d%s" % (count, kind), data[10 + length:])

header, y = read(sys.argv[1], "f")
assert header == {"descr": "<f4", "fortran_order": False, "shape": (5, 256)}, header
assert 0.01 < sum(v * v for v in y) / len(y) < 10, "outputs are not of the order of one"
header, ids = read(sys.argv[2], "i")
assert header == {"descr": "<i4", "fortran_order": False, "shape": (5, 8)}, header
for t in range(5):
    row = ids[8 * t:8 * t + 8]
    assert len(set(row)) == 8 and min(row) >= 0 and max(row) < 16, row
PYTHON
"$moe" run "$qwen" --layer 0 --input "$folder/y.npy" --output "$folder/z.npy"
"$moe" run "$qwen" --layer 0 --input "$folder/y.npy" --output "$folder/z2.npy" --io read --threads 1
cmp "$folder/z.npy" "$folder/z2.npy"
if cmp -s "$folder/y.npy" "$folder/z.npy"; then fail "the input came back as the output"; fi

echo "== packed weights in a file"
"$moe" quantize --to q8_0 "$qwen" "$folder/q8_0.gguf"
"$moe" run "$folder/q8_0.gguf" --layer 0 --tokens 3 --packed --check --save "$folder/layer.moe" --output "$folder/packed.npy" |
    grep "_q8_0_x16_\|cpu_any_f32_experts_ref"
"$moe" run "$folder/q8_0.gguf" --layer 0 --tokens 3 --open "$folder/layer.moe" --output "$folder/opened.npy" | grep "read in place"
cmp "$folder/packed.npy" "$folder/opened.npy"
expect_text "for the CPU" "$moe" inspect --verify "$folder/layer.moe"
expect_text "all checksums fit" "$moe" inspect --verify "$folder/layer.moe"
expect_text '"damaged_chunks": []' "$moe" inspect --verify --json "$folder/layer.moe"
# A byte in the middle, where the matrices are: an open does not read it, the check names its chunk.
python3 - "$folder/layer.moe" <<'PYTHON'
import sys

data = bytearray(open(sys.argv[1], "rb").read())
data[4096 + 5 * 131072 + 77] ^= 1
open(sys.argv[1], "wb").write(data)
PYTHON
"$moe" run "$folder/q8_0.gguf" --layer 0 --open "$folder/layer.moe" >/dev/null
expect_failure 1 "checksum of chunk 5 " "$moe" inspect --verify "$folder/layer.moe"
expect_failure 1 "no file of packed weights" "$moe" inspect --verify "$folder/y.npy"

echo "== times"
"$moe" bench --hidden 256 --intermediate 128 --experts 16 --top-k 4 --repeat 3 --json >"$folder/bench.json"
python3 - "$folder/bench.json" <<'PYTHON'
import json, sys

bench = json.load(open(sys.argv[1]))
assert bench["experts_hit"] == 4 and bench["n_tokens"] == 1 and bench["format"] == "bf16", bench
assert bench["weight_bytes"] == 2 * (4 * 3 * 256 * 128 + 16 * 256), bench
assert 0 < bench["us_lowest"] <= bench["us"], bench
rate = bench["weight_bytes"] / bench["us"] / 1e3
assert abs(bench["gb_per_s"] - rate) < 1e-3 * rate, bench
assert list(bench["kernels"]) == ["route", "dispatch", "experts", "combine", "finish"], bench
PYTHON
for format in $("$moe" formats | awk 'NR > 2 && $NF == "yes" { print $1 }'); do
    expect_text "top-8, $format; 3 tokens" "$moe" bench --model qwen3-next-80b-a3b --reduced --top-k 8 --hidden 256 \
        --intermediate 256 --format "$format" --tokens 3 --repeat 1
done
expect_failure 1 "iq2_xxs is not written" "$moe" bench --model qwen3-30b-a3b --reduced --format iq2_xxs
expect_text "of 16 experts" "$moe" bench "$qwen" --layer 0 --repeat 1
expect_text "of 32 experts" "$moe" bench --model gpt-oss-120b --reduced --experts 32 --repeat 1
expect_text "cpu_any_f32_experts_ref" "$moe" bench --model deepseek-v3 --reduced --kernel cpu_any_f32_experts_ref --repeat 1
expect_text "cpu_any_f32_experts_ref" "$moe" bench --model deepseek-v3 --reduced --kernel 'experts:*_f32_experts_ref' --repeat 1
expect_failure 1 "avx1024" "$moe" explain "$qwen" --layer 0 --kernel '-avx1024_*'

echo "== wrong arrays"
head -c 200 "$folder/y.npy" >"$folder/short.npy"
expect_failure 1 "short.npy" "$moe" run "$qwen" --layer 0 --input "$folder/short.npy"
expect_failure 1 "found '<i4'" "$moe" run "$qwen" --layer 0 --input "$folder/ids.npy"
expect_failure 1 "is not a .npy file" "$moe" run "$qwen" --layer 0 --input "$qwen/config.json"
expect_failure 1 "absent.npy" "$moe" run "$qwen" --layer 0 --input "$folder/absent.npy"
sed 's/(5, 256)/(256, 5)/' "$folder/y.npy" >"$folder/shape.npy"
expect_failure 1 "hidden size is 256" "$moe" run "$qwen" --layer 0 --input "$folder/shape.npy"
sed 's/: False/: True /' "$folder/y.npy" >"$folder/fortran.npy"
expect_failure 1 "fortran_order: True" "$moe" run "$qwen" --layer 0 --input "$folder/fortran.npy"
sed 's/(5, 256)/(9, 999)/' "$folder/y.npy" >"$folder/large.npy"
expect_failure 1 "does not agree" "$moe" run "$qwen" --layer 0 --input "$folder/large.npy"

expect_failure 1 "is a folder, not a .npy file" "$moe" run "$qwen" --layer 0 --input "$qwen"

echo "== what cannot be written is no result, and leaves no part of one"
# A disk that is full is met in the same place as a file that may not grow so large.
full() { (trap '' XFSZ; ulimit -f 100; "$moe" "$@" 2>&1 >/dev/null | cat >&2; exit "${PIPESTATUS[0]}"); }
expect_failure 1 "cannot be sized" full make-model qwen3-30b-a3b "$folder/deep/large" --reduced
[ ! -e "$folder/deep/large" ] && [ ! -e "$folder/deep/large.partial" ] || fail "make-model left something behind"
"$moe" make-model qwen3-30b-a3b "$folder/deep/large" --reduced
mkdir "$folder/empty"
expect_failure 1 "cannot be sized" full make-model qwen3-30b-a3b "$folder/empty" --reduced --format q8_0
[ -z "$(ls -A "$folder/empty")" ] || fail "make-model left something in an empty folder"
(cd "$folder/empty" && "$moe" make-model qwen3-30b-a3b . --reduced --format q8_0 && expect_text q8_0 "$moe" inspect ./*.gguf)
mkdir "$folder/stopped.partial"
expect_failure 1 "stopped.partial: is left of a run" "$moe" make-model qwen3-30b-a3b "$folder/stopped" --reduced
cp "$folder/y.npy" "$folder/y2.npy"
expect_failure 1 "y2.npy: cannot be written" full run "$qwen" --layer 0 --tokens 200 --output "$folder/y2.npy"
cmp "$folder/y.npy" "$folder/y2.npy" || fail "run has destroyed what it could not replace"
expect_failure 1 "y3.npy: cannot be written" full run "$qwen" --layer 0 --tokens 200 --output "$folder/y3.npy"
[ ! -e "$folder/y3.npy" ] && [ ! -e "$folder/y3.npy.partial" ] || fail "run left something behind"
ln -s y2.npy "$folder/y4.npy"
"$moe" run "$qwen" --layer 0 --tokens 2 --output "$folder/y4.npy" >/dev/null
[ -L "$folder/y4.npy" ] && [ "$(wc -c <"$folder/y2.npy")" -eq $((128 + 2 * 256 * 4)) ] || fail "y4.npy is no link to the result"
expect_failure 1 "/dev/full: cannot be written" "$moe" run "$qwen" --layer 0 --output /dev/full
[ -c /dev/full ] || fail "/dev/full is a device no more"
expect_failure 1 "is a folder" "$moe" run "$qwen" --layer 0 --output "$folder/empty"
unheard() { "$moe" "$@" >/dev/full; }
for line in "inspect $qwen" "explain $qwen --layer 0" formats devices version "run $qwen --layer 0" "make-model --list" --help \
    "bench $qwen --layer 0 --json --repeat 1" "inspect $qwen --json"; do
    expect_failure 1 "standard output cannot be written" unheard $line
done

echo "== wrong checkpoints"
expect_failure 1 "it has 0" "$moe" run "$qwen" --layer 4
expect_failure 1 "nowhere" "$moe" inspect "$folder/nowhere"
expect_failure 1 "is not an empty folder" "$moe" make-model qwen3-30b-a3b "$qwen" --reduced
expect_failure 1 "no model is called gpt-5" "$moe" make-model gpt-5 "$folder/gpt"
expect_failure 1 "use mxfp4" "$moe" make-model gpt-oss-20b "$folder/oss" --format nvfp4
expect_failure 1 "format of gpt-oss" "$moe" make-model mixtral-8x7b "$folder/mx" --format mxfp4
cp -r "$qwen" "$folder/truncated"
truncate -s -100 "$folder/truncated/model-00003-of-00003.safetensors"
expect_failure 1 "model-00003-of-00003.safetensors" "$moe" run "$folder/truncated" --layer 0
"$moe" make-model qwen3-30b-a3b "$folder/missing" --reduced
LC_ALL=C sed -i 's/experts\.1\.up_proj/experts.1.no_proj/' "$folder/missing/model.safetensors"
expect_failure 1 "experts.1.up_proj" "$moe" run "$folder/missing" --layer 0
expect_failure 1 "model.safetensors.index.json: begins with '{': it is no safetensors file" \
    "$moe" inspect "$qwen/model.safetensors.index.json"
"$moe" make-model qwen3-30b-a3b "$folder/strange" --reduced
LC_ALL=C sed -i 's/"model\.layers\./"modem.layers./g' "$folder/strange/model.safetensors"
unknown="'modem.layers.0.mlp.experts.0.down_proj.weight' is under no known prefix: model.layers."
expect_failure 1 "$unknown" "$moe" inspect "$folder/strange"
expect_failure 1 "$unknown" "$moe" run "$folder/strange" --layer 0
expect_failure 1 "$unknown" "$moe" quantize --to fp8 "$folder/strange" "$folder/strange8"

echo "== a whole file beside the index of its source"
"$moe" make-model qwen3-30b-a3b "$folder/stale" --reduced
printf '{"weight_map":{"lm_head.weight":"model-00001-of-00002.safetensors"}}' >"$folder/stale/model.safetensors.index.json"
expect_text "note: model.safetensors is read: none of the files that model.safetensors.index.json names is there" \
    "$moe" inspect "$folder/stale"
expect_text '"notes": ' "$moe" inspect "$folder/stale" --json

echo "== a family by name"
"$moe" make-model qwen3-30b-a3b "$folder/new" --reduced --seed 1
sed -i 's/"model_type": "qwen3_moe"/"model_type": "qwen9_moe"/' "$folder/new/config.json"
expect_failure 1 "'qwen9_moe' is no family that this version knows" "$moe" inspect "$folder/new"
expect_failure 1 "--family" "$moe" run "$folder/new" --layer 0
expect_failure 1 "qwen9_moe" "$moe" inspect "$folder/new" --family qwen9_moe
expect_text "family qwen3_moe" "$moe" inspect "$folder/new" --family qwen3_moe
sed 's/"model_type"/"swiglu_limit": 10.0, "model_type"/' "$folder/new/config.json" >"$folder/limited.json"
mkdir "$folder/limited"
cp "$folder/limited.json" "$folder/limited/config.json"
cp "$folder/new/model.safetensors" "$folder/limited"
expect_failure 1 "'swiglu_limit' is 10, which family 'qwen3_moe' neither reads nor has" \
    "$moe" run "$folder/limited" --layer 0 --family qwen3_moe
"$moe" run "$folder/new" --layer 0 --family qwen3_moe --input "$folder/y.npy" --output "$folder/z3.npy"
cmp "$folder/z.npy" "$folder/z3.npy"
expect_text "cpu" "$moe" explain "$folder/new" --layer 0 --family qwen3_moe
expect_failure 2 "--family and --set go with a checkpoint" "$moe" bench --model qwen3-30b-a3b --family qwen3_moe

echo "== fields of the layer by --set"
expect_text "top-8" "$moe" inspect "$qwen"
expect_text "top-3" "$moe" inspect "$qwen" --set top_k=3 --set routed_scale=2.5
expect_failure 1 "options.overrides: 'topk' is none of top_k" "$moe" inspect "$qwen" --set topk=3
expect_failure 1 "options.overrides: top_k is given twice" "$moe" inspect "$qwen" --set top_k=3 --set top_k=4
expect_failure 1 "options.overrides: top_k is 0" "$moe" run "$qwen" --layer 0 --set top_k=0
"$moe" run "$qwen" --layer 0 --input "$folder/y.npy" --output "$folder/plain.npy"
"$moe" run "$qwen" --layer 0 --set top_k=3 --input "$folder/y.npy" --output "$folder/top3.npy" --check
! cmp -s "$folder/plain.npy" "$folder/top3.npy" || fail "--set top_k=3 changes nothing"
expect_failure 2 "--family and --set go with a checkpoint" "$moe" explain --model qwen3-30b-a3b --set top_k=3

echo "== a bad layer beside good ones"
"$moe" make-model qwen3-30b-a3b "$folder/bad" --reduced --layers 3
LC_ALL=C sed -i 's/layers\.1\.mlp\.experts\.1\.up_proj/layers.1.mlp.experts.1.no_proj/' "$folder/bad/model.safetensors"
expect_failure 1 "layer 1 is not readable: model.safetensors: there is no tensor" "$moe" inspect "$folder/bad"
grep -q "^0 .*top-8" "$folder/stdout" && grep -q "^2 .*top-8" "$folder/stdout" || fail "good layers are missing"
grep -q "^layer 1: not readable: .*experts.1.up_proj" "$folder/stdout" || fail "the bad layer is missing"
expect_failure 1 "layer 1 is not readable" "$moe" inspect "$folder/bad" --json
grep -q '"problem": .*experts.1.up_proj' "$folder/stdout" || fail "the bad layer is missing"

echo "== numbers of one"
expect_text ", 1 tensor copied," "$moe" quantize --to fp8 "$qwen" "$folder/fp8"

echo "== outputs that are not finite"
python3 - "$folder/y.npy" "$folder/nan.npy" <<'PYTHON'
import struct, sys

data = bytearray(open(sys.argv[1], "rb").read())
data[-4:] = struct.pack("<f", float("nan"))
open(sys.argv[2], "wb").write(data)
PYTHON
expect_text "1 of 5 tokens are not finite" "$moe" run "$qwen" --layer 0 --input "$folder/nan.npy"
if "$moe" run "$qwen" --layer 0 --input "$folder/y.npy" | grep "not finite"; then fail "finite outputs"; fi

echo "== wrong usage"
expect_failure 2 "" "$moe"
expect_failure 2 "there is no command bogus" "$moe" bogus
expect_failure 2 "there is no command --bogus" "$moe" --bogus
for command in "make-model qwen3-30b-a3b $folder/f" "run $qwen --layer 0" "explain $qwen --layer 0" "bench $qwen --layer 0" \
    "quantize $qwen $folder/f --to fp8"; do
    expect_failure 2 "--threads: must be 0 to 1024, not -1" "$moe" $command --threads -1
    expect_failure 2 "--threads: must be 0 to 1024, not 99999" "$moe" $command --threads 99999
done
expect_failure 2 "--hidden: must be positive, not 0" "$moe" bench --hidden 0
expect_failure 2 "--shards: must not be negative, not -1" "$moe" make-model qwen3-30b-a3b "$folder/f" --shards -1
expect_failure 2 "--layer: must not be negative, not -1" "$moe" run "$qwen" --layer -1
expect_failure 2 "--layer" "$moe" run "$qwen"
expect_failure 2 "--tokens" "$moe" run "$qwen" --layer 0 --tokens 0
expect_failure 2 "--type" "$moe" run "$qwen" --layer 0 --type f64
expect_failure 2 "--device" "$moe" run "$qwen" --layer 0 --device tpu
expect_failure 2 "--io" "$moe" run "$qwen" --layer 0 --io tape
expect_failure 2 "--format" "$moe" make-model qwen3-30b-a3b "$folder/f" --format int3
expect_failure 2 "--model" "$moe" explain
expect_failure 2 "--top-k" "$moe" bench --hidden 256 --intermediate 128 --experts 16
expect_failure 2 "its own sizes" "$moe" bench "$qwen" --layer 0 --hidden 64
expect_failure 1 "hidden is 100" "$moe" bench --hidden 100 --intermediate 128 --experts 16 --top-k 4
expect_failure 2 "--repeat" "$moe" bench "$qwen" --layer 0 --repeat 0
expect_failure 2 "--device" "$moe" bench "$qwen" --layer 0 --device tpu
expect_failure 1 "no-such-kernel" "$moe" run "$qwen" --layer 0 --kernel no-such-kernel

echo "== options that would be ignored"
expect_failure 2 "--format goes with --model" "$moe" explain "$qwen" --layer 0 --format nvfp4
expect_failure 2 "--layer goes with a checkpoint" "$moe" explain --model deepseek-v3 --layer 7
expect_failure 2 "--layer goes with a checkpoint" "$moe" bench --model qwen3-30b-a3b --reduced --layer 0
expect_failure 2 "--reduced goes with --model" "$moe" bench --hidden 256 --intermediate 128 --experts 16 --top-k 4 --reduced
expect_failure 2 "--per-tensor goes with --against" "$moe" inspect "$qwen" --per-tensor
expect_failure 2 "--list goes with nothing else" "$moe" make-model --list extra --format bogus
expect_failure 2 "--list goes with nothing else" "$moe" make-model --list --seed 0
expect_failure 2 "--shards is for safetensors" "$moe" make-model qwen3-30b-a3b "$folder/f" --format q8_0 --shards 2
expect_failure 2 "--seed excludes --input" "$moe" run "$qwen" --layer 0 --input "$folder/y.npy" --seed 3

echo "== defaults are said where they are, and are what is done"
for command in run explain; do expect_text "f32 (default)" "$moe" "$command" --help; done
expect_text "bf16 (default)" "$moe" bench --help
expect_text " in bf16" "$moe" bench "$qwen" --layer 0 --repeat 1
"$moe" run "$qwen" --layer 0 --seed 3 --output "$folder/default.npy" >/dev/null
"$moe" run "$qwen" --layer 0 --seed 3 --type f32 --output "$folder/f32.npy" >/dev/null
cmp "$folder/default.npy" "$folder/f32.npy"
