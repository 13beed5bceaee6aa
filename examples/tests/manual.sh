# manual.sh - the committed man page is what the command says of itself today, names every subcommand, and is well formed.
. "$(dirname "$0")/expect.sh"
page=$(dirname "$0")/../moe/moe.1

python3 "$(dirname "$0")/../moe/manual.py" "$moe" >"$folder/moe.1"
diff -u "$page" "$folder/moe.1" || fail "moe.1 is out of date: examples/moe/manual.py BIN/moe > examples/moe/moe.1"

commands=$("$moe" --help | sed -n '/^Subcommands:/I,/^$/s/^  \([a-z][-a-z]*\).*/\1/p')
[ "$(wc -w <<<"$commands")" -ge 8 ] || fail "subcommands not found in the help: $commands"
for command in $commands; do
    grep -q "^\.SS moe ${command//-/\\\\-} " "$page" || fail "$command is not in the man page"
done
for option in --layer --max-tokens --shards --top-k --ids-output; do
    grep -q "^\.B ${option//-/\\\\-} " "$page" || fail "$option is not in the man page"
done

if command -v groff >/dev/null; then
    warnings=$(groff -man -Tutf8 -ww "$page" 2>&1 >/dev/null)
    [ -z "$warnings" ] || fail "groff: $warnings"
fi
