#!/bin/sh
# Makes of what build.sh has put into FOLDER the same for every .NET, in FOLDER/netstandard; FOLDER/mono has what Mono needs to
# use that, too: netstandard.sh FOLDER
set -eu
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/mono"
mkdir -p "$out/mono" "$out/netstandard"
mcs="mcs -langversion:7.2 -warnaserror -nologo"
cecil=$(find "$(dirname "$(command -v mcs)")/../lib/mono/gac/Mono.Cecil" -name Mono.Cecil.dll | sort -V | tail -n 1)
python3 -c 'import sys; sys.stdout.buffer.write(bytes.fromhex(sys.stdin.read()))' <public_key.txt >"$out/mono/public_key.snk"
$mcs -target:library -delaysign+ -keyfile:"$out/mono/public_key.snk" -nowarn:1607 -out:"$out/mono/System.Memory.dll" SystemMemory.cs
$mcs -r:"$cecil" -out:"$out/mono/Retarget.exe" Retarget.cs
for assembly in Moe.dll MoeTests.exe layer.exe server.exe; do
    mono "$out/mono/Retarget.exe" "$out/$assembly" "$out/netstandard/$assembly"
done
