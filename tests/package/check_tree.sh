#!/bin/sh
# Checks an installed tree: its files, and that a C program builds against it and runs through find_package and pkg-config, with
# libmoe.so and, where it is there, libmoe.a. The programs run a layer of a checkpoint that the installed command has made.
# usage: check_tree.sh PREFIX VERSION
set -eu
prefix=$1
version=$2
here=$(cd "$(dirname "$0")" && pwd)
source=$here/../../examples/forward.c
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset LD_LIBRARY_PATH CMAKE_PREFIX_PATH

fail() {
    echo "$prefix: $*"
    exit 1
}

libraries=$(dirname "$(find "$prefix" -name libmoe.so)")
abi=${version%.*}

# --- files ------------------------------------------------------------------------------------------------------

for file in include/moe/moe.h include/moe/moe_dl.h share/doc/libmoe/LICENSE; do
    [ -s "$prefix/$file" ] || fail "no $file"
done
[ "$(readlink "$libraries/libmoe.so")" = "libmoe.so.$abi" ] || fail "libmoe.so is not a link to libmoe.so.$abi"
[ "$(readlink "$libraries/libmoe.so.$abi")" = "libmoe.so.$version" ] || fail "libmoe.so.$abi is not a link to libmoe.so.$version"
if grep -rlE "$here|$(cd "$here/../.." && pwd)" "$libraries/cmake" "$libraries/pkgconfig"; then
    fail "these files have a path of the machine that built them"
fi

# --- the command ------------------------------------------------------------------------------------------------

moe=$prefix/bin/moe
if [ -x "$moe" ]; then
    "$moe" version | grep -q "^version=$version\$" || fail "moe version says $("$moe" version)"
    [ -s "$prefix/share/man/man1/moe.1" ] || [ -s "$prefix/share/man/man1/moe.1.gz" ] || fail "no man page"
    [ -s "$prefix/share/bash-completion/completions/moe" ] || fail "no completion"
    "$moe" make-model qwen3-30b-a3b "$work/model" --reduced --layers 1 --seed 7 >/dev/null
fi

# --- programs ---------------------------------------------------------------------------------------------------

# The first program's output is what the others must repeat; without the command there is no checkpoint, and each has to say so.
check_program() {
    if ! "$@" "$work/model" >"$work/output" 2>&1; then
        [ ! -d "$work/model" ] && grep -q "$work/model" "$work/output" || fail "$1: $(cat "$work/output")"
    elif ! grep -Eq "^token 3: -?[0-9.e-]*[1-9]" "$work/output"; then
        fail "$1 printed no result: $(cat "$work/output")"
    fi
    [ -f "$work/expected" ] || cp "$work/output" "$work/expected"
    cmp -s "$work/expected" "$work/output" || fail "$1 printed something else: $(cat "$work/output")"
}

configure() { cmake -S "$here/client" -B "$work/$1" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DMOE_WANTED="$1" >"$work/log" 2>&1; }

configure "$version" || fail "find_package: $(cat "$work/log")"
cmake --build "$work/$version" >"$work/log" || fail "by find_package: $(cat "$work/log")"
grep -q "^moe_DIR:.*=$libraries/cmake/moe\$" "$work/$version/CMakeCache.txt" || fail "another installation was found"
check_program "$work/$version/by_cmake"
for wrong in "0.$((${abi#*.} + 1))" 1.0; do
    if configure "$wrong"; then fail "find_package accepts $version as $wrong"; fi
    grep -q "requested version" "$work/log" || fail "find_package of $wrong, fails without naming it: $(cat "$work/log")"
done

if command -v pkg-config >/dev/null 2>&1; then
    export PKG_CONFIG_PATH="$libraries/pkgconfig"
    [ "$(pkg-config --modversion moe)" = "$version" ] || fail "pkg-config says $(pkg-config --modversion moe)"
    cc "$source" $(pkg-config --cflags --libs moe) -Wl,-rpath,"$libraries" -o "$work/by_pkg_config"
    check_program "$work/by_pkg_config"
fi

if [ -f "$libraries/libmoe.a" ]; then
    check_program "$work/$version/by_cmake_static"
    if readelf --dynamic "$work/$version/by_cmake_static" | grep -q libmoe; then fail "moe::moe_static needs libmoe.so"; fi
    if command -v pkg-config >/dev/null 2>&1; then
        cc -static "$source" $(pkg-config --static --cflags --libs moe) -o "$work/by_pkg_config_static" 2>"$work/log" ||
            fail "by pkg-config --static: $(cat "$work/log")"
        check_program "$work/by_pkg_config_static"
    fi
    cc -shared -fPIC -x c /dev/null -x none -Wl,--whole-archive "$libraries/libmoe.a" -Wl,--no-whole-archive \
        -lstdc++ -lm -o "$work/plugin.so"
    if nm --dynamic --defined-only "$work/plugin.so" | grep -w "moe_forward"; then
        fail "a shared library that links libmoe.a exports its functions"
    fi
fi
