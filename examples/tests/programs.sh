# programs.sh - the C examples, on small checkpoints made for them.
. "$(dirname "$0")/expect.sh"

"$moe" make-model mixtral-8x7b "$folder/mixtral" --reduced
expect_text "token 3: " "$BIN/forward" "$folder/mixtral"
expect_failure 1 "nowhere" "$BIN/forward" "$folder/nowhere"
expect_failure 2 "usage" "$BIN/forward"

"$moe" make-model deepseek-v3 "$folder/gguf" --reduced --format q4_k
file=$(checkpoint_in "$folder/gguf")
expect_text "borrowed" "$BIN/gguf_layer" "$file"
cat "$folder/stdout"
expect_text "layer 3 of" "$BIN/gguf_layer" "$file" 3
borrowed=$(sed -n 's/^borrowed *\([0-9]*\) .*/\1/p' "$folder/stdout")
[ "$borrowed" -gt $(($(stat -c %s "$file") * 9 / 10)) ] || fail "only $borrowed bytes are borrowed"
expect_failure 1 "layer 9" "$BIN/gguf_layer" "$file" 9

expect_text "expected" "$BIN/dlopen"
cat "$folder/stdout"
