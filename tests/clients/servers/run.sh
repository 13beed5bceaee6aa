#!/bin/sh
# A server under load: that of bindings/go/example/server, or that of bindings/csharp/example/server on Mono or on CoreCLR.
# usage: run.sh go|mono|coreclr <checkpoint> <seconds> <build folder>; MOE_LIBRARY is the library, DOTNET the runtime of coreclr.
# Exit code 77: there is no such runtime.
set -eu
checkpoint=$2 seconds=$3 build=$4
cd "$(dirname "$0")/../../.."
case $1 in
    go)
        # Go's cache does not look into headers: a checksum of them among the flags does.
        checksum=$(cat include/moe/*.h | cksum | cut -d ' ' -f 1)
        export CGO_CFLAGS="-g -O2 -DMOE_HEADER_CHECKSUM=$checksum" GOTOOLCHAIN=local GOFLAGS=-mod=mod GO111MODULE=on
        (cd bindings/go && go build -tags moe_dlopen -o "$build/server" ./example/server)
        "$build/server" -load "${seconds}s" "$checkpoint"
        ;;
    mono) mono "$build/csharp/server.exe" "$checkpoint" -load "$seconds" ;;
    coreclr)
        [ -n "${DOTNET:-}" ] || exit 77
        "$DOTNET" exec --runtimeconfig bindings/csharp/tests/coreclr.runtimeconfig.json \
            "$build/csharp/netstandard/server.exe" "$checkpoint" -load "$seconds"
        ;;
esac
