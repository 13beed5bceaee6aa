"""Checks libmoe.so as a file: its name, what it needs, what it exports, and that its stack is not executable.

usage: check_elf.py [--shared-runtime] LIBRARY HEADER VERSION
Exports must be exactly the functions that the header declares. --shared-runtime, for builds with sanitizers or a shared libstdc++, lets it need other libraries.
"""
import argparse
import os
import re
import subprocess

ALLOWED_NEEDED = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
NEWEST_GLIBC = (2, 36)
LARGEST = 60 << 20


def readelf(option, library):
    run = subprocess.run(["readelf", "--wide", option, library], capture_output=True, text=True, check=True,
                         env={**os.environ, "LC_ALL": "C"})
    return run.stdout


def declared_functions(header):
    with open(header, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    return set(re.findall(r"^MOE_API\b[^;()]*\bMOE_CALL\s+(moe_\w+)\s*\(", text, flags=re.M))


def exported_symbols(library):
    """(name, type, binding) of every symbol that others can bind to; version nodes themselves left out."""
    for line in readelf("--dyn-syms", library).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[0][:-1].isdigit() and fields[6] not in ("UND", "ABS"):
            yield fields[7], fields[3], fields[4]


def check_exports(library, header, node):
    declared = declared_functions(header)
    exported = list(exported_symbols(library))
    names = {name.split("@")[0] for name, _, _ in exported}
    if not declared:
        yield f"{header}: no declaration found; the pattern is out of date"
    for name in sorted(declared - names):
        yield f"declared but not exported: {name}"
    for name in sorted(names - declared):
        yield f"exported but not declared: {name}"
    for name, kind, binding in exported:
        if (kind, binding) != ("FUNC", "GLOBAL") or not name.endswith(f"@@{node}"):
            yield f"{name}: {kind} {binding}, expected a global function of version {node}"


def needed(library):
    return re.findall(r"\(NEEDED\).*\[(.*?)\]", readelf("--dynamic", library))


def check_needed(library):
    for name in needed(library):
        if name not in ALLOWED_NEEDED:
            yield f"needs {name}, which is not libc, libm or the loader"


def check_no_cuda_needed(library):
    """Whatever it was linked with: a machine without CUDA must be able to load it."""
    for name in needed(library):
        if re.match(r"lib(cu|nv|nccl)", name):
            yield f"needs {name}: a library of CUDA"


def check_size(library):
    """Bytes of the file that are loaded, debug information left out."""
    sizes = re.findall(r"^\s+LOAD\s+\S+\s+\S+\s+\S+\s+(0x[0-9a-f]+)", readelf("--program-headers", library), flags=re.M)
    loaded = sum(int(size, 16) for size in sizes)
    if not 0 < loaded <= LARGEST:
        yield f"has {loaded} bytes to load, more than {LARGEST} or none"


def check_glibc(library):
    versions = re.findall(r"\bGLIBC_(\d+)\.(\d+)", readelf("--version-info", library))
    newest = max((int(major), int(minor)) for major, minor in versions)
    if newest > NEWEST_GLIBC:
        yield f"needs GLIBC_{newest[0]}.{newest[1]}, newer than {NEWEST_GLIBC[0]}.{NEWEST_GLIBC[1]}"


def check_name(library, version):
    expected = "libmoe.so." + ".".join(version.split(".")[:2])
    found = re.findall(r"\(SONAME\).*\[(.*?)\]", readelf("--dynamic", library))
    if found != [expected]:
        yield f"SONAME is {found}, expected {expected}"


def check_segments(library):
    stack = re.findall(r"GNU_STACK\s.*\s([RWE ]+?)\s+0x", readelf("--program-headers", library))
    if len(stack) != 1 or "E" in stack[0]:
        yield f"the stack must be marked not executable, GNU_STACK is {stack}"
    if "(TEXTREL)" in readelf("--dynamic", library):
        yield "has text relocations"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library")
    parser.add_argument("header")
    parser.add_argument("version")
    parser.add_argument("--shared-runtime", action="store_true")
    args = parser.parse_args()

    node = "LIBMOE_" + ".".join(args.version.split(".")[:2])
    problems = [*check_exports(args.library, args.header, node), *check_name(args.library, args.version),
                *check_segments(args.library), *check_no_cuda_needed(args.library), *check_size(args.library)]
    if not args.shared_runtime:
        problems += [*check_needed(args.library), *check_glibc(args.library)]
    for problem in problems:
        print(f"{args.library}: {problem}")
    raise SystemExit(1 if problems else 0)


main()
