# completion.bash - bash completion of the command moe. It asks the command's own --help for subcommands and options, and the
# command's lists for models and formats, so that it never differs from the version that is installed.

# The first word of every line of one section ("Subcommands", "Options") of a help text.
_moe_section() {
    sed -n "/^${1}:/I,/^[^ ]/s/^  \([-a-z][^ ]*\).*/\1/p"
}

_moe_subcommand() {
    local word
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ $word == -* ]] || { printf '%s' "$word"; return; }
    done
}

_moe_models() { "$1" make-model --list 2>/dev/null | sed -n '3,/^$/s/^\([^ ]\{1,\}\).*/\1/p'; }
_moe_formats() { "$1" formats 2>/dev/null | sed -n '3,$s/^\([^ ]\{1,\}\).*/\1/p'; }
_moe_made_formats() { "$1" make-model --list 2>/dev/null | sed -n 's/^formats: \([^(]*\).*/\1/p' | tr -d ','; }

_moe() {
    local command=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    local subcommand words=""
    subcommand=$(_moe_subcommand)
    COMPREPLY=()
    case $before in
        --model) words=$(_moe_models "$command") ;;
        --format)
            if [[ $subcommand == make-model ]]; then
                words=$(_moe_made_formats "$command")
            else
                words=$(_moe_formats "$command")
            fi ;;
        --type) words="f32 bf16 f16" ;;
        --to) words="nvfp4 mxfp4 kbit2 kbit3 kbit4 kbit5 fp8 int4 q8_0 q4_k" ;;
        --group-size) words="32 64 128" ;;
        --device) words="cpu cuda auto" ;;
        --io) words="mmap read" ;;
        --input | --output | --ids-output | --against) compopt -o default 2>/dev/null; return ;;
        --*)
            # An option with a value: its help line has a type in capitals after its name.
            if "$command" "$subcommand" --help 2>/dev/null | grep -q -- "^  $before [A-Z]"; then return; fi ;;
    esac
    if [[ -z $words ]]; then
        if [[ -z $subcommand ]]; then
            words="$("$command" --help 2>/dev/null | _moe_section Subcommands) --help --version"
        elif [[ $word == -* ]]; then
            words=$("$command" "$subcommand" --help 2>/dev/null | _moe_section Options | tr ',' '\n')
        elif [[ $subcommand == make-model && $before == make-model ]]; then
            words=$(_moe_models "$command")
        else
            compopt -o default 2>/dev/null # a checkpoint or a folder
            return
        fi
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -F _moe moe
