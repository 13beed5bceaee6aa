#!/bin/sh
# Compiles every public header alone, as C and as C++, under every standard it promises, without a warning: gcc and clang both.
# usage: check_headers.sh INCLUDE_DIRECTORY
set -u
include=$1
failed=0
compiled=0

check() { # compiler language standard header
    compiled=$((compiled + 1))
    if ! printf '#include <%s>\n#include <%s>\n' "$4" "$4" |
        "$1" -x "$2" -std="$3" -Wall -Wextra -pedantic -Werror -fsyntax-only -I "$include" -; then
        echo "$4 does not compile with $1 -std=$3"
        failed=1
    fi
}

check_language() { # language standards compilers
    for compiler in $3; do
        if ! command -v "$compiler" >/dev/null 2>&1; then
            echo "there is no $compiler: the headers are promised to gcc and to clang; install the packages g++ and clang"
            failed=1
            continue
        fi
        for standard in $2; do
            for header in "$include"/moe/*.h; do
                check "$compiler" "$1" "$standard" "moe/${header##*/}"
            done
        done
    done
}

check_language c "c99 c11 c17" "gcc clang"
check_language c++ "c++11 c++14 c++17 c++20" "g++ clang++"

if grep '#include' "$include/moe/moe.h" | grep -v -e '<stddef.h>' -e '<stdint.h>'; then
    echo "moe/moe.h includes more than stddef.h and stdint.h"
    failed=1
fi
echo "$compiled compilations"
exit $failed
