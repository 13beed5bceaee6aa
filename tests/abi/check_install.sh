#!/bin/sh
# Installs the build into an empty folder and builds a C program against it, through pkg-config and through find_package.
# usage: check_install.sh BUILD_DIRECTORY VERSION
set -eu
build=$1
version=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >/dev/null
libraries=$(dirname "$(find "$work/prefix" -name libmoe.so)")

mkdir "$work/program"
cat >"$work/program/main.c" <<'END'
#include <moe/moe.h>
#include <stdio.h>
int main(void) { return moe_abi_version() == MOE_ABI_VERSION && puts(moe_version_string()) >= 0 ? 0 : 1; }
END
cat >"$work/program/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(program C)
find_package(moe $version REQUIRED)
add_executable(program main.c)
target_link_libraries(program PRIVATE moe::moe)
END

expect_version() {
    answer=$("$@")
    [ "$answer" = "$version" ] || { echo "$1 says '$answer', expected '$version'"; exit 1; }
}

cmake -S "$work/program" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/build" >/dev/null
expect_version "$work/build/program"

if command -v pkg-config >/dev/null 2>&1; then
    # The prefix in the file is that of the configuration; a moved tree says where it is.
    flags=$(PKG_CONFIG_PATH=$libraries/pkgconfig pkg-config --define-variable=prefix="$work/prefix" --cflags --libs moe)
    cc "$work/program/main.c" $flags -Wl,-rpath,"$libraries" -o "$work/by_pkg_config"
    expect_version "$work/by_pkg_config"
fi
