#!/bin/sh
# Installs each package of ./dev package in an empty place and uses it from there: the tarball and the .deb as check_tree.sh says,
# the wheel from Python, where its binding runs a layer, and from a C program that opens its library; the NuGet package as
# check_nupkg.sh says. Their sizes and what they need are held to tests/abi/limits.txt; with --any-size, for a build that is not
# what is shipped, only what they need.
# usage: check_packages.sh [--any-size] FOLDER VERSION ASSEMBLIES
set -eu
any_size=
[ "$1" != --any-size ] || { any_size=yes && shift; }
folder=$(cd "$1" && pwd)
version=$2
assemblies=$3
here=$(cd "$(dirname "$0")" && pwd)
abi=$here/../abi
header=$here/../../include/moe/moe.h
fixture=$here/../oracle/fixtures/qwen3_moe_bf16
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset LD_LIBRARY_PATH MOE_LIBRARY PYTHONPATH

fail() {
    echo "$*"
    exit 1
}

# The one file of a kind.
one() {
    [ $# -eq 1 ] && [ -f "$1" ] || fail "expected one file, found: $*"
    echo "$1"
}

tarball=$(one "$folder"/*.tar.gz)
deb=$(one "$folder"/*.deb)
wheel=$(one "$folder"/*.whl)
nupkg=$(one "$folder"/*.nupkg)
cuda=
case $tarball in *cuda*) cuda=--cuda ;; esac

check_library() { # LIBRARY [COMMAND]
    python3 "$abi/check_elf.py" "$1" "$header" "$version"
    python3 "$abi/check_libc.py" --also "libmoe.so.${version%.*}" "$@"
    if readelf --wide --section-headers "$1" | grep -qE "\.(symtab|debug)"; then fail "$1 is not stripped"; fi
    [ -f "$work/library" ] || cp "$1" "$work/library"
    cmp "$work/library" "$1"
}

echo "== $(basename "$tarball")"
mkdir "$work/tar"
tar -xzf "$tarball" -C "$work/tar"
prefix=$work/tar/$(basename "$tarball" .tar.gz)
check_library "$prefix/lib/libmoe.so.$version" "$prefix/bin/moe"
python3 "$abi/check_archive.py" "$prefix/lib/libmoe.a" "$header"
sh "$here/check_tree.sh" "$prefix" "$version"

echo "== $(basename "$deb")"
[ "$(dpkg-deb --field "$deb" Version)" = "$version" ] || fail "version $(dpkg-deb --field "$deb" Version)"
glibc=$(sed -n 's/^glibc *//p' "$abi/limits.txt")
[ "$(dpkg-deb --field "$deb" Depends)" = "libc6 (>= $glibc)" ] || fail "depends on $(dpkg-deb --field "$deb" Depends)"
root=$work/root
if [ "$(id -u)" -eq 0 ]; then # as a real installation, with a database of its own
    mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
    : >"$root/var/lib/dpkg/status"
    dpkg --root="$root" --log="$work/dpkg.log" --force-depends --install "$deb" >"$work/log" 2>&1 || fail "dpkg: $(cat "$work/log")"
    dpkg --root="$root" --status "$(dpkg-deb --field "$deb" Package)" | grep -q "^Status: install ok installed" || fail "not installed"
else
    dpkg-deb --extract "$deb" "$root"
fi
dpkg-deb --ctrl-tarfile "$deb" | tar -xO ./triggers | grep -q ldconfig || fail "does not have ldconfig run"
check_library "$root/usr/lib/libmoe.so.$version" "$root/usr/bin/moe"
sh "$here/check_tree.sh" "$root/usr" "$version"

echo "== $(basename "$wheel")"
# The binding needs numpy, which a new environment without a network can only have from the system's Python.
system=
for candidate in python3 /usr/bin/python3; do
    if "$candidate" -c 'import numpy' 2>/dev/null; then system=$candidate && break; fi
done
[ -n "$system" ] || fail "no python3 has numpy: the wheel's binding cannot be tested (package python3-numpy)"
"$system" -m venv --system-site-packages "$work/venv"
python=$work/venv/bin/python
"$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps "$wheel"
library=$(cd "$work" && "$python" -c 'import moe_library; print(moe_library.path())')
include=$(cd "$work" && "$python" -c 'import moe_library; print(moe_library.include())')
case $library in "$work/venv/"*) ;; *) fail "the library is not that of the wheel: $library" ;; esac
check_library "$library"
(cd "$work" && "$python" - "$version" <<'PYTHON') || fail "the wheel does not work from Python"
import ctypes, importlib.metadata, sys
import moe_library
library = ctypes.CDLL(moe_library.path())
library.moe_version_string.restype = ctypes.c_char_p
versions = {library.moe_version_string().decode(), moe_library.__version__, importlib.metadata.version("libmoe")}
assert versions == {sys.argv[1]}, versions
PYTHON
(cd "$work" && "$python" -I "$here/wheel_forward.py" "$fixture") || fail "the wheel's Python binding does not run a layer"
cc -I"$include" "$here/../../examples/dlopen.c" -lm -ldl -o "$work/dlopen"
MOE_LIBRARY=$library "$work/dlopen" >"$work/log" 2>&1 || fail "dlopen: $(cat "$work/log")"
if "$work/dlopen" "$work/absent" >"$work/log" 2>&1; then fail "the program finds a library without the wheel"; fi
"$python" -m pip uninstall --quiet --yes libmoe
[ ! -e "$library" ] || fail "uninstalling leaves $library"

echo "== $(basename "$nupkg")"
python3 -m zipfile -e "$nupkg" "$work/nupkg"
check_library "$(one "$work"/nupkg/runtimes/*/native/libmoe.so)"
sh "$here/check_nupkg.sh" "$nupkg" "$version" "$assemblies"

[ -z "$any_size" ] || exit 0
echo "== sizes"
python3 "$abi/check_size.py" $cuda libmoe.so="$prefix/lib/libmoe.so.$version" moe="$prefix/bin/moe" \
    libmoe.a="$prefix/lib/libmoe.a" tar.gz="$tarball" deb="$deb" whl="$wheel" nupkg="$nupkg"
