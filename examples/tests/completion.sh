# completion.sh - the bash completion offers every subcommand, every option of each, and the models and formats of the command.
. "$(dirname "$0")/expect.sh"
. "$(dirname "$0")/../moe/completion.bash"
complete -p moe | grep -q -- "-F _moe" || fail "nothing is registered for moe"
compopt() { :; } # works only while bash completes

# What is offered for the last word of a command line.
offered() {
    COMP_WORDS=("$moe" "$@")
    COMP_CWORD=$#
    _moe
    echo " ${COMPREPLY[*]} "
}

# expect_offered WORDS LINE...: each of WORDS is offered for the last word of LINE.
expect_offered() {
    local expected=$1 word answer
    shift
    answer=$(offered "$@")
    for word in $expected; do
        [[ $answer == *" $word "* ]] || fail "'$word' is not offered after 'moe $*', only:$answer"
    done
}

commands=$("$moe" --help | sed -n '/^Subcommands:/I,/^$/s/^  \([a-z][-a-z]*\).*/\1/p')
[ "$(wc -w <<<"$commands")" -ge 8 ] || fail "subcommands not found in the help: $commands"
expect_offered "$commands" ""
for command in $commands; do
    options=$("$moe" "$command" --help | grep -o '^  [-a-zA-Z,]*--[a-z][-a-z]*' | tr ', ' '\n\n' | grep '^-')
    expect_offered "$options" "$command" -
done

expect_offered "bench" b
expect_offered "qwen3-30b-a3b gpt-oss-20b" make-model ""
expect_offered "deepseek-v3" explain --model ""
expect_offered "nvfp4 kbit2 q4_k" bench --format ""
expect_offered "nvfp4" bench --tokens 8 --format nv
expect_offered "nvfp4 mxfp4 q4_k iq4_xs" make-model --format ""
for format in $(offered make-model --format ""); do # no format of the command's is exit code 2; the folder is full, which is 1
    expect_failure 1 "" "$moe" make-model mixtral-8x7b "$BIN" --reduced --format "$format" >/dev/null
done
[ "$(offered --v)" = " --version " ] || fail "'--v' is not --version alone: $(offered --v)"
expect_offered "nvfp4 kbit3 fp8 q4_k" quantize --to ""
expect_offered "bf16" run model.gguf --type ""
[ "$(offered run --layer "")" = "  " ] || fail "offers a number: $(offered run --layer "")"
[ "$(offered ben)" = " bench " ] || fail "'ben' is not bench alone: $(offered ben)"
[ "$(offered run --check mod)" = "  " ] || fail "a file name is not left to bash: $(offered run --check mod)"
