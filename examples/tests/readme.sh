# readme.sh - the commands of docs/start/command.md under "Try it", as they stand there but for the folder.
. "$(dirname "$0")/expect.sh"

readme=../docs/start/command.md
sed -n '/^## Try it$/,/^## /p' "$readme" | sed -n '/^```sh$/,/^```$/p' | sed '/^```/d' >"$folder/commands"
grep -q "^moe run .* --check$" "$folder/commands" || fail "no commands in $readme, or none that checks"
model=$(sed -n 's|^moe make-model [^ ]* \(/tmp/[^ ]*\).*|\1|p' "$folder/commands")
[ -n "$model" ] || fail "no folder for the model in $readme"
sed -i "s|$model\>|$folder/model|g" "$folder/commands"
! grep -q "$model\>" "$folder/commands" || fail "a folder is left: $(cat "$folder/commands")"

while read -r line; do
    (cd "$folder" && PATH=$BIN:$PATH sh -c "$line") >"$folder/output" 2>&1 || fail "$line: $(cat "$folder/output")"
    case $line in *--check*) grep -q PASS "$folder/output" || fail "$line does not pass: $(cat "$folder/output")" ;; esac
    [ -s "$folder/output" ] || fail "$line says nothing"
done <"$folder/commands"
