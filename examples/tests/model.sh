# model.sh MODEL LAYER FORMAT...: a reduced checkpoint of each format is made, inspected, run and checked.
. "$(dirname "$0")/expect.sh"
model=$1
layer=$2
shift 2

for format in "$@"; do
    echo "== $model $format"
    "$moe" make-model "$model" "$folder/$format" --reduced --format "$format" --layers 2 --seed 7
    checkpoint=$(checkpoint_in "$folder/$format")
    "$moe" inspect "$checkpoint"
    "$moe" inspect "$checkpoint" --json | python3 -m json.tool >/dev/null
    expect_text "$layer-$((layer + 1))" "$moe" inspect "$checkpoint"
    for type in f32 bf16; do
        for tokens in 1 7; do
            "$moe" run "$checkpoint" --layer "$layer" --tokens "$tokens" --type "$type" --check --repeat 1 ||
                fail "$model $format: run --type $type --tokens $tokens"
        done
    done
    "$moe" explain "$checkpoint" --layer "$((layer + 1))" >/dev/null
    "$moe" explain "$checkpoint" --layer "$layer" --json | python3 -m json.tool >/dev/null
    rm -rf "${folder:?}/$format"
done
