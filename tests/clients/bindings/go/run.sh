#!/bin/sh
# Go: cgo reads moe.h as it is, and a program of the standard library alone calls forward once.
# usage: run.sh <include folder> <library folder> <build folder>
set -eu
include=$1 library=$2 build=$3
here=$(cd "$(dirname "$0")" && pwd)

need() { command -v "$1" >/dev/null 2>&1 || { echo "$1 is missing: install the package $2" >&2; exit 1; }; }
need go golang-go
need gcc gcc
mkdir -p "$build"

# Go's cache does not look into headers: their checksum among the flags does.
checksum=$(cksum <"$include/moe/moe.h" | cut -d ' ' -f 1)
export CGO_ENABLED=1 CGO_CFLAGS="-I$include -O1 -DMOE_HEADER_CHECKSUM=$checksum" CGO_LDFLAGS="-L$library -lmoe"
export GOCACHE="$build/cache" GOPATH="$build/path" GOFLAGS=-mod=mod GOTOOLCHAIN=local GO111MODULE=on
(cd "$here" && go build -o "$build/forward" .)
LD_LIBRARY_PATH="$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" GODEBUG=cgocheck=1 "$build/forward"
