#!/bin/sh
# Unpacks the NuGet package in an empty folder, lays its files out as .NET does in a program's folder, and runs a layer there on
# Mono and, where DOTNET names a runtime, on CoreCLR.
# usage: check_nupkg.sh NUPKG VERSION ASSEMBLIES          ASSEMBLIES: what netstandard.sh wrote, of which Mono needs a part
set -eu
nupkg=$1
version=$2
here=$(cd "$(dirname "$0")" && pwd)
mono=$(cd "$3/mono" && pwd)
fixture=$here/../oracle/fixtures/qwen3_moe_bf16
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset LD_LIBRARY_PATH MOE_LIBRARY MONO_PATH

fail() {
    echo "$(basename "$nupkg"): $*"
    exit 1
}

python3 -m zipfile -e "$nupkg" "$work/unpacked"
case $(uname -m) in aarch64) platform=linux-arm64 ;; *) platform=linux-x64 ;; esac
library=runtimes/$platform/native/libmoe.so
for file in libmoe.nuspec '[Content_Types].xml' _rels/.rels lib/netstandard2.0/Moe.dll lib/netstandard2.0/Moe.xml "$library" \
    licenses/LICENSE.txt; do
    [ -s "$work/unpacked/$file" ] || fail "no $file"
done
python3 - "$work/unpacked" "$version" <<'PYTHON' || fail "libmoe.nuspec or the list of parts is wrong"
import pathlib, sys
import xml.etree.ElementTree as xml
folder, version = pathlib.Path(sys.argv[1]), sys.argv[2]
said = {one.tag.rpartition("}")[2]: one for one in xml.parse(folder / "libmoe.nuspec").iter()}
assert (said["id"].text, said["version"].text, said["license"].text) == ("libmoe", version, "Apache-2.0"), said
assert said["group"].get("targetFramework") == ".NETStandard2.0" and said["dependency"].get("id") == "System.Memory"
types = {one.get("Extension") for one in xml.parse(folder / "[Content_Types].xml").getroot()}
lacking = [str(file) for file in folder.rglob("*.*") if file.is_file() and file.name.rpartition(".")[2] not in types | {"xml"}]
assert not lacking, lacking
relation, = xml.parse(folder / "_rels" / ".rels").getroot()
assert relation.get("Target") == "/libmoe.nuspec"
PYTHON

# --- a program ---------------------------------------------------------------------------------------------------

lay_out() { # FOLDER: what a restored program has beside it
    mkdir "$1"
    cp "$work/unpacked/lib/netstandard2.0/Moe.dll" "$work/Program.exe" "$1"
    cp -r "$work/unpacked/runtimes" "$1"
}

check_output() { # FOLDER, what ran it
    grep -q "^$1/$library: relative error" "$work/output" || fail "on $2: $(cat "$work/output")"
    echo "on $2: $(sed 's|.*/runtimes|runtimes|' "$work/output")"
}

# Mono has the types of System.Memory in mscorlib, and this assembly in place of the package that the nuspec names.
mcs -nologo -warnaserror -r:"$work/unpacked/lib/netstandard2.0/Moe.dll" -r:"$mono/System.Memory.dll" \
    -out:"$work/Program.exe" "$here/nupkg/Program.cs"
lay_out "$work/mono"
cp "$mono/System.Memory.dll" "$work/mono"
(cd "$work" && mono mono/Program.exe "$fixture") >"$work/output" 2>&1 || fail "on Mono: $(cat "$work/output")"
check_output "$work/mono" Mono

lay_out "$work/coreclr"
cp "$here/../../bindings/csharp/tests/coreclr.runtimeconfig.json" "$work/coreclr/Program.runtimeconfig.json"
if [ -n "${DOTNET:-}" ]; then
    (cd "$work" && "$DOTNET" coreclr/Program.exe "$fixture") >"$work/output" 2>&1 || fail "on CoreCLR: $(cat "$work/output")"
    check_output "$work/coreclr" CoreCLR
else
    echo "skipped: the NuGet package on CoreCLR, for which there is no runtime here"
fi

# The library is that of the package and no other: without it the program says where it looked.
rm -r "$work/mono/runtimes"
if (cd "$work" && mono mono/Program.exe "$fixture") >"$work/output" 2>&1; then fail "a program finds a library without the package"; fi
grep -q "no libmoe; tried libmoe.so.0.1" "$work/output" || fail "without a library: $(cat "$work/output")"
