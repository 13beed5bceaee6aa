# quantize.sh - every target of moe quantize: what is written opens again, computes what the source does within the error of
# the format, and leaves alone what is no expert's matrix; and every way to be refused.
. "$(dirname "$0")/expect.sh"
cat >"$folder/compare.py" <<'PYTHON'
"""errors BOUND Y Z: relative L2, of all tokens and of each.  copied IN OUT: bytes that must be equal.  tables A B.
says_once OUT METHOD_OR_FORMAT [KEY ...]: quantization_config is in one place of config.json."""
import ast, glob, json, math, os, re, struct, sys


def rows(path):
    data = open(path, "rb").read()
    length = struct.unpack("<H", data[8:10])[0]
    n, width = ast.literal_eval(data[10:10 + length].decode())["shape"]
    values = struct.unpack("<%df" % (n * width), data[10 + length:])
    return [values[i * width:(i + 1) * width] for i in range(n)]


def relative(pairs):
    return math.sqrt(sum((x - y) ** 2 for x, y in pairs) / sum(x * x for x, _ in pairs))


def errors(bound, wanted, got):
    tokens = [list(zip(a, b, strict=True)) for a, b in zip(rows(wanted), rows(got), strict=True)]
    whole = relative([pair for token in tokens for pair in token])
    worst = max(map(relative, tokens))
    print("relative L2 error: %.4f, allowed %s; of a token at most %.4f" % (whole, bound, worst))
    assert 0.0 < whole <= float(bound) and worst <= 1.25 * float(bound)


def tensors(checkpoint):
    found = {}
    for path in sorted(glob.glob(checkpoint + "/*.safetensors")):
        data = open(path, "rb").read()
        length = struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:8 + length]).items():
            if name == "__metadata__":
                continue
            assert name not in found, name
            begin, end = entry["data_offsets"]
            found[name] = (entry["dtype"], entry["shape"], data[8 + length + begin:8 + length + end], os.path.basename(path))
    return found


def copied(source, output):
    before, after = tensors(source), tensors(output)
    matrix = re.compile(r"\.experts\.(\d+\.)?(gate|up|down|gate_up|w[123])(_proj)?(?!.*bias)")
    kept = [name for name in before if not matrix.search(name)]
    assert kept, "nothing is to be copied"
    for name in kept:
        assert before[name][:3] == after[name][:3], name
    assert {name for name in after if not matrix.search(name)} == set(kept)
    assert len(after) > len(kept)
    index = output + "/model.safetensors.index.json"
    if os.path.exists(index):
        assert json.load(open(index))["weight_map"] == {name: t[3] for name, t in after.items()}


def tables(quantised, inspected):
    a = json.load(open(quantised))["tensors"]
    b = json.load(open(inspected))["errors"]
    key = lambda row: (row["layer"], row["role"], row["expert"])
    assert len(a) == 96, len(a)
    for x, y in zip(sorted(a, key=key), sorted(b, key=key), strict=True):
        assert key(x) == key(y) and abs(x["relative_l2"] - y["relative_l2"]) < 1e-12, (x, y)
        assert 0 < x["relative_l2"] < 0.11 and 0 < x["largest_error"] < x["largest_value"], x


def says_once(checkpoint, wanted, *place):
    config = json.load(open(checkpoint + "/config.json"))
    text = json.dumps(config)
    assert text.count('"quantization_config"') == 1, text
    for key in place:
        config = config[key]
    quantization = config["quantization_config"]
    assert wanted in (quantization["quant_method"], quantization.get("format")), quantization


globals()[sys.argv[1]](*sys.argv[2:])
PYTHON
compare() { python3 "$folder/compare.py" "$@" || fail "$*"; }

# quantised MODEL LAYER TARGET OUT BOUND: bounds are 1.25 times what each format costs on normally distributed weights.
quantised() {
    local source=$folder/$1 layer=$2 target=$3 out=$folder/$4 bound=$5
    echo "== $1 to $target"
    "$moe" quantize --to "$target" "$source" "$out"
    [ ! -e "$out.partial" ] || fail "$out.partial is left"
    for checkpoint in "$source" "$out"; do
        "$moe" run "$checkpoint" --layer "$layer" --tokens 8 --seed 3 --repeat 1 --check \
            --output "$folder/$(basename "$checkpoint").npy" >/dev/null || fail "run $checkpoint"
    done
    compare errors "$bound" "$folder/$1.npy" "$folder/$4.npy"
    if [ -d "$out" ]; then
        compare copied "$source" "$out"
        expect_text "$target" "$moe" inspect "$out" --against "$source"
    fi
}

"$moe" make-model qwen3-30b-a3b "$folder/qwen3" --reduced --shards 3 --layers 2 --seed 1
echo '{"eos_token_id": 7}' >"$folder/qwen3/generation_config.json"
quantised qwen3 0 nvfp4 nvfp4 0.202
quantised qwen3 1 mxfp4 mxfp4 0.250
quantised qwen3 0 kbit2 kbit2 0.963
quantised qwen3 1 kbit3 kbit3 0.393
quantised qwen3 0 kbit4 kbit4 0.185
quantised qwen3 1 kbit5 kbit5 0.109
quantised qwen3 0 fp8 fp8 0.057
quantised qwen3 1 q8_0 q8_0.gguf 0.012
"$moe" quantize --to int4 "$folder/qwen3" "$folder/int4" >/dev/null
grep -q pack-quantized "$folder/int4/config.json" || fail "config.json does not say pack-quantized"
expect_text "bit_stream 1x32 bf16 gate up down" "$moe" inspect "$folder/int4"
compare copied "$folder/qwen3" "$folder/int4"
"$moe" run "$folder/int4" --layer 1 --tokens 8 --seed 3 --repeat 1 --output "$folder/int4.npy" >/dev/null
compare errors 0.209 "$folder/qwen3.npy" "$folder/int4.npy" # the last run of the source was layer 1, too
cmp "$folder/qwen3/generation_config.json" "$folder/int4/generation_config.json"
"$moe" quantize --to int4 --group-size 128 "$folder/qwen3" "$folder/int4_128" >/dev/null
expect_text "bit_stream 1xall bf16" "$moe" inspect "$folder/int4_128"

echo "== other families and names"
"$moe" make-model mixtral-8x7b "$folder/mixtral" --reduced --seed 2
quantised mixtral 0 q4_k q4_k.gguf 0.154
quantised mixtral 0 nvfp4 mixtral_nvfp4 0.202
"$moe" make-model gpt-oss-20b "$folder/gpt_oss" --reduced --format bf16 --seed 2
quantised gpt_oss 0 mxfp4 gpt_oss_mxfp4 0.250
quantised gpt_oss 0 q8_0 gpt_oss.gguf 0.012
"$moe" make-model qwen2-57b-a14b "$folder/qwen2" --reduced --seed 2 # with a shared expert and its gate
quantised qwen2 0 q8_0 qwen2.gguf 0.012
quantised qwen2 0 kbit4 qwen2_kbit4 0.185
"$moe" make-model deepseek-v3 "$folder/deepseek" --reduced --format bf16 --seed 2
quantised deepseek 3 q8_0 deepseek.gguf 0.012
quantised deepseek 3 fp8 deepseek_fp8 0.057
"$moe" make-model qwen3-30b-a3b "$folder/fp8_source" --reduced --format fp8_128x128 --seed 2
quantised fp8_source 0 mxfp4 from_fp8 0.250

echo "== names of every kind, and experts that are not all written"
fixtures=$(cd "$(dirname "$0")/../../tests/oracle/fixtures" && pwd)
# family FIXTURE MATRICES
family() {
    "$moe" quantize --to int4 "$fixtures/$1" "$folder/$1" | grep -q ": $2 matrices in int4" || fail "$1: not $2 matrices"
    expect_text "int4 bit_stream" "$moe" inspect "$folder/$1" --against "$fixtures/$1"
}
family deepseek_v4_bf16 15
family jamba_bf16 12
family lfm2_moe_bf16 15
family llama4_bf16 15
family longcat_flash_bf16 15
family nemotron_h_bf16 10
for name in dbrx gemma4 granitemoeshared step3p7; do
    expect_failure 1 "matrices of experts have names that a quantised" "$moe" quantize --to int4 "$fixtures/${name}_bf16" "$folder/no"
done
cp -r "$folder/mixtral" "$folder/gelu"
sed -i 's/"hidden_act": "silu"/"hidden_act": "gelu"/' "$folder/gelu/config.json"
expect_failure 1 "activation of layer 0 cannot be said" "$moe" quantize --to q8_0 "$folder/gelu" "$folder/no.gguf"

echo "== models that see: what is the language model's lies in text_config"
# nested IN OUT: the same checkpoint with its configuration in text_config.
nested() {
    cp -r "$folder/$1" "$folder/$2"
    python3 - "$folder/$2/config.json" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1]))
json.dump({"model_type": "sees", "text_config": config, "vision_config": {}}, open(sys.argv[1], "w"))
PYTHON
}
nested fp8_source sees_fp8
quantised sees_fp8 0 mxfp4 sees_mxfp4 0.250
quantised sees_fp8 0 kbit4 sees_kbit4 0.185
compare says_once "$folder/sees_mxfp4" mxfp4-pack-quantized text_config
compare says_once "$folder/sees_kbit4" kbit text_config
cp -r "$folder/sees_fp8" "$folder/hears_fp8"
python3 - "$folder/hears_fp8/config.json" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1]))
json.dump({"model_type": "qwen3_omni_moe", "thinker_config": config}, open(sys.argv[1], "w"))
PYTHON
quantised hears_fp8 0 mxfp4 hears_mxfp4 0.250
compare says_once "$folder/hears_mxfp4" mxfp4-pack-quantized thinker_config text_config
nested qwen3 sees
quantised sees 0 fp8 sees_to_fp8 0.057
compare says_once "$folder/sees_to_fp8" fp8
python3 - "$folder/sees_fp8/config.json" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1]))
config["quantization_config"] = config["text_config"]["quantization_config"]
json.dump(config, open(sys.argv[1], "w"))
PYTHON
quantised sees_fp8 0 nvfp4 sees_nvfp4 0.202 # it was said twice
compare says_once "$folder/sees_nvfp4" nvfp4-pack-quantized text_config

echo "== tables"
"$moe" quantize --to nvfp4 --json --force --threads 1 "$folder/qwen3" "$folder/nvfp4" >"$folder/quantize.json"
"$moe" inspect "$folder/nvfp4" --against "$folder/qwen3" --json >"$folder/inspect.json"
compare tables "$folder/quantize.json" "$folder/inspect.json"
expect_text "experts.15.down_proj" "$moe" quantize --to nvfp4 --per-tensor --force "$folder/qwen3" "$folder/nvfp4"
expect_text "layer 1 expert 15 down" "$moe" inspect "$folder/nvfp4" --against "$folder/qwen3" --per-tensor
"$moe" quantize --to kbit4 --progress --force "$folder/qwen3" "$folder/kbit4" 2>&1 >/dev/null | grep -q "quantising to kbit4" ||
    fail "no progress on standard error"

echo "== refused"
expect_failure 1 "nvfp4: exists; --force replaces it" "$moe" quantize --to fp8 "$folder/qwen3" "$folder/nvfp4"
expect_failure 1 "is the source itself" "$moe" quantize --to fp8 --force "$folder/qwen3" "$folder/qwen3/"
mkdir "$folder/other"
touch "$folder/other/letter.txt"
expect_failure 1 "so it is not replaced" "$moe" quantize --to fp8 --force "$folder/qwen3" "$folder/other"
expect_failure 2 "whose name must end in .gguf" "$moe" quantize --to q8_0 --force "$folder/qwen3" "$folder/other/letter.txt"
mkdir "$folder/other.gguf"
expect_failure 1 "so it is not replaced" "$moe" quantize --to q8_0 --force "$folder/qwen3" "$folder/other.gguf"
[ -e "$folder/other/letter.txt" ] || fail "a file that is no checkpoint is gone"
expect_failure 2 "whose name must end in .gguf" "$moe" quantize --to q8_0 "$folder/qwen3" "$folder/no"
expect_failure 2 "whose name must not end in .gguf" "$moe" quantize --to nvfp4 "$folder/qwen3" "$folder/no.gguf"
expect_failure 2 "whose name must not end in .gguf" "$moe" quantize --to nvfp4 "$folder/qwen3" "$folder/no.gguf/"
expect_failure 1 "'blk.0.ffn_down_exps.weight': columns is 128" "$moe" quantize --to q4_k "$folder/qwen3" "$folder/no.gguf"
"$moe" make-model deepseek-v2-lite "$folder/narrow" --reduced # columns of down: 192
expect_failure 1 "down_proj': 192 columns are not a multiple of the group size 128" \
    "$moe" quantize --to int4 --group-size 128 "$folder/narrow" "$folder/no"
expect_failure 1 "keeps its experts fused" "$moe" quantize --to nvfp4 "$folder/gpt_oss" "$folder/no"
expect_failure 1 "is GGUF" "$moe" quantize --to nvfp4 "$folder/qwen2.gguf" "$folder/no"
expect_failure 1 "is GGUF already" "$moe" quantize --to q8_0 "$folder/qwen2.gguf" "$folder/no.gguf"
"$moe" quantize --help | grep -q "^  in .*Folder or .safetensors file" || fail "the help offers to quantise what cannot be"
"$moe" make-model deepseek-v3 "$folder/deepseek_quantised" --reduced
expect_failure 1 "is quantised already (F8_E4M3)" "$moe" quantize --to nvfp4 "$folder/deepseek_quantised" "$folder/no"
nested deepseek_quantised sees_quantised
expect_failure 1 "is quantised already (F8_E4M3)" "$moe" quantize --to nvfp4 "$folder/sees_quantised" "$folder/no"
python3 - "$folder/deepseek_quantised" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1] + "/config.json"))
del config["quantization_config"]
json.dump(config, open(sys.argv[1] + "/config.json", "w"))
json.dump({"quantization": {"quant_algo": "FP8_PB_WO"}}, open(sys.argv[1] + "/hf_quant_config.json", "w"))
PYTHON
expect_failure 1 "is quantised already (F8_E4M3)" "$moe" quantize --to nvfp4 "$folder/deepseek_quantised" "$folder/no"
expect_failure 1 "nowhere" "$moe" quantize --to fp8 "$folder/nowhere" "$folder/no"
# A disk that is full is met in the same place as a file that may not grow so large.
full() { (trap '' XFSZ; ulimit -f 100; "$moe" "$@" 2>&1 >/dev/null | cat >&2; exit "${PIPESTATUS[0]}"); }
expect_failure 1 "model-00001-of-00003.safetensors: cannot be" full quantize --to fp8 "$folder/qwen3" "$folder/no"
cp -r "$folder/qwen3" "$folder/nan"
python3 - "$folder/nan/model-00002-of-00003.safetensors" <<'PYTHON'
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(-2, 2)
    file.write(b"\xc0\x7f")  # NaN
PYTHON
expect_failure 1 "tensor 'model.layers." "$moe" quantize --to kbit4 "$folder/nan" "$folder/no"
for name in no no.partial no.gguf no.gguf.partial; do
    [ ! -e "$folder/$name" ] || fail "a failure left $name behind"
done
mkdir "$folder/no.partial"
expect_failure 1 "left of a run that was stopped" "$moe" quantize --to kbit4 "$folder/qwen3" "$folder/no"
expect_failure 1 "of the same sizes" "$moe" inspect "$folder/nvfp4" --against "$folder/mixtral"
expect_failure 1 "no MoE layer in common" "$moe" inspect "$folder/nvfp4" --against "$folder/deepseek"
expect_failure 2 "--to must be one of nvfp4" "$moe" quantize --to int3 "$folder/qwen3" "$folder/no2"
expect_failure 2 "--group-size" "$moe" quantize --to int4 --group-size 48 "$folder/qwen3" "$folder/no2"
expect_failure 2 "--to" "$moe" quantize "$folder/qwen3" "$folder/no2"
expect_failure 2 "--group-size is for int4" "$moe" quantize --to nvfp4 --group-size 64 "$folder/qwen3" "$folder/no2"
expect_failure 2 "--group-size: must be positive, not 0" "$moe" quantize --to int4 --group-size 0 "$folder/qwen3" "$folder/no2"
echo "== the source is never replaced or removed, however it is named"
place=$folder/place
mkdir "$place"
"$moe" make-model qwen3-30b-a3b "$place/kept" --reduced --seed 4
cp -r "$place/kept" "$place/source"
# kept_from TEXT SOURCE OUT: refused, and all of the source is still there.
kept_from() {
    expect_failure 1 "$1" "$moe" quantize --to kbit2 --force "$2" "$3"
    diff -r "$place/kept" "$place/source" || fail "quantize $2 $3 has changed its source"
}
kept_from "source: holds the source" "$place/source/model.safetensors" "$place/source"
kept_from "is the source itself" "$place/source" "$place/source/"
kept_from "lies in the source" "$place/source" "$place/source/new"
kept_from "holds the source" "$place/source/model.safetensors" "$place/source/."
ln -s source "$place/link"
kept_from "is the source itself" "$place/link" "$place/source"
kept_from "is the source itself" "$place/source" "$place/link"
kept_from "source: holds the source" "$place/link/model.safetensors" "$place/source"
mkdir "$place/links" # as a cache keeps them: names here, bytes elsewhere
ln -s ../source/model.safetensors ../source/config.json "$place/links"
kept_from "source: holds the source" "$place/links" "$place/source"
kept_from "source: holds the source" "$place/links/model.safetensors" "$place/source"
cp "$place/kept/config.json" "$place/config.json"
kept_from "place: holds the source" "$place/source" "$place"
mv "$place/source" "$place/source.partial"
expect_failure 1 "source.partial: is the source itself" "$moe" quantize --to kbit2 --force "$place/source.partial" "$place/source"
expect_failure 1 "source.partial: holds the source" \
    "$moe" quantize --to kbit2 --force "$place/source.partial/model.safetensors" "$place/source"
diff -r "$place/kept" "$place/source.partial" || fail "a source called .partial has changed"
mkdir -p "$place/new.partial/letters"
expect_failure 1 "is not what a run leaves" "$moe" quantize --to kbit2 --force "$place/kept" "$place/new"
[ -d "$place/new.partial/letters" ] || fail "a folder that no run has left is gone"
rm -r "$place/new.partial/letters"
expect_text "kbit2" "$moe" quantize --to kbit2 --force "$place/kept" "$place/new"
expect_text "kbit3" "$moe" quantize --to kbit3 --force "$place/kept/model.safetensors" "$place/new"
(cd "$place/kept" && expect_text "kbit2" "$moe" quantize --to kbit2 model.safetensors beside)
