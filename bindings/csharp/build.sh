#!/bin/sh
# Compiles the assembly Moe, its tests and the examples with Mono's mcs: build.sh FOLDER
set -eu
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")"
mcs="mcs -langversion:7.2 -warnaserror -nologo"
$mcs -unsafe -debug -target:library -nowarn:1591 -doc:"$out/Moe.xml" -out:"$out/Moe.dll" src/*.cs src/generated/*.cs
$mcs -debug -r:System.Core -r:"$out/Moe.dll" -out:"$out/MoeTests.exe" tests/*.cs
$mcs -r:"$out/Moe.dll" -out:"$out/layer.exe" example/Layer.cs
$mcs -r:System.Core -r:"$out/Moe.dll" -out:"$out/server.exe" example/server/*.cs
