#!/bin/sh
# Makes the Java and the Lua of moe.i, tests both, and says what each case came to.
# usage: run.sh LIBRARY_FOLDER BUILD_FOLDER RESULTS_FOLDER
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
library=$(cd "$1" && pwd)
mkdir -p "$2" "$3"
build=$(cd "$2" && pwd) results=$(cd "$3" && pwd)
flags="-shared -fPIC -O1 -Wall -Wno-unused-function -Wno-unused-but-set-variable -I$root/include"

# A library that has an ABI version and no other function, named and versioned as the linker wants it.
fake_library() { # ABI version
    mkdir -p "$build/fake_$1"
    echo 'LIBMOE_0.1 { global: moe_*; local: *; };' >"$build/exports.map"
    cc -shared -fPIC "-DFAKE_ABI=$1" "-Wl,--version-script=$build/exports.map" "$root/tests/clients/loader/fake_library.c" \
        -o "$build/fake_$1/libmoe.so.0.1"
}

# Says whether a program with the library of a folder says these words.
refuses() { # case, folder, words, program..
    name=$1 folder=$2 words=$3
    shift 3
    said=$(LD_LIBRARY_PATH=$folder "$@" 2>&1) && { echo "fail $name nothing was refused"; return; }
    case $said in
        *"$words"*) ;;
        *) echo "fail $name no '$words' in $(echo "$said" | tr '\n' ' ')" ;;
    esac
}

# Every function of moe.h must be called in what was made, but for those that README.md names.
all_are_called() { # file
    for name in $(sed -n 's/^MOE_API .*MOE_CALL \(moe_[a-z_]*\)(.*/\1/p' "$root/include/moe/moe.h"); do
        case $name in moe_last_error_copy | moe_memory_* | moe_stream_* | moe_loading_*) continue ;; esac
        grep -q "[ )=]$name(" "$1" || { echo "$1: $name is not reached" >&2; return 1; }
    done
}

make_java() {
    rm -rf "$build/java" && mkdir -p "$build/java/libmoe" "$build/java/classes"
    swig -java -Wall -package libmoe -module Moe "-I$root/include" -outdir "$build/java/libmoe" \
        -o "$build/java/wrap.c" "$here/moe.i"
    javac -nowarn -d "$build/java/classes" "$build"/java/libmoe/*.java "$here/java/MoeException.java" "$here"/java/test/*.java
    jdk=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")
    cc $flags "-I$jdk/include" "-I$jdk/include/linux" -o "$build/java/libmoejni.so" "$build/java/wrap.c" "-L$library" -lmoe
}

test_java() {
    java="java -cp $build/java/classes"
    export MOE_JNI="$build/java/libmoejni.so"
    for version in 0 2 77; do
        refuses VER-02 "$build/fake_$version" "found ABI version $version, wanted 1" $java MoeTest "$root" --gate
    done
    refuses VER-03 "$build/fake_1" "lacks the symbol moe_" $java MoeTest "$root" --gate
    refuses VER-03 "" "libmoe.so.0.1" $java MoeTest "$root" --gate
    echo "done VER-02 VER-03"
    LD_LIBRARY_PATH=$library $java MoeTest "$root" "$build/java"
}

make_lua() {
    mkdir -p "$build/lua"
    swig -lua -Wall "-I$root/include" -o "$build/lua/wrap.c" "$here/moe.i"
    cc $flags "-I${LUA_INCLUDE:-/usr/include/lua5.4}" -o "$build/lua/moe.so" "$build/lua/wrap.c" "-L$library" -lmoe
}

test_lua() {
    export LUA_CPATH="$build/lua/?.so"
    refuses VER-03 "$build/fake_1" "undefined symbol: moe_" lua5.4 -e 'require "moe"'
    refuses VER-03 "" "libmoe.so.0.1" lua5.4 -e 'require "moe"'
    echo "done VER-03"
    LD_LIBRARY_PATH=$library lua5.4 "$here/lua/test.lua" "$root" "$build/lua"
}

for version in 0 1 2 77; do
    fake_library $version
done
status=0
for language in java lua; do
    rm -f "$results/$language.jsonl"
    "make_$language"
    all_are_called "$build/$language/wrap.c"
    "test_$language" >"$build/$language.log" || status=1
    "${PYTHON:-python3}" "$here/results.py" "$language" "$build/$language.log" "$build/$language" \
        "$results/$language.jsonl" || status=1
done
exit $status
