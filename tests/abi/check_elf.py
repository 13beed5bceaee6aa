"""Checks libmoe.so as a file: its name, what it exports, that its stack is not executable and that it loads without CUDA.

usage: check_elf.py LIBRARY HEADER VERSION
Exports must be exactly the functions that the header declares. What it may need of libc: check_libc.py.
"""
import re
import sys

from header import declared_functions
from limits import needed, readelf


def exported_symbols(library):
    """(name, type, binding) of every symbol that others can bind to; version nodes themselves left out."""
    for line in readelf("--dyn-syms", library).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[0][:-1].isdigit() and fields[6] not in ("UND", "ABS"):
            yield fields[7], fields[3], fields[4]


def is_for_tests(symbol):
    """The launch hook, which builds with MOE_LAUNCH_HOOK have and no package has (check_packages.sh)."""
    return symbol.split("@")[0].startswith("moe_test_")


def check_exports(library, header, node):
    declared = declared_functions(header)
    exported = [one for one in exported_symbols(library) if not is_for_tests(one[0])]
    names = {name.split("@")[0] for name, _, _ in exported}
    for name in sorted(declared - names):
        yield f"declared but not exported: {name}"
    for name in sorted(names - declared):
        yield f"exported but not declared: {name}"
    for name, kind, binding in exported:
        if (kind, binding) != ("FUNC", "GLOBAL") or not name.endswith(f"@@{node}"):
            yield f"{name}: {kind} {binding}, expected a global function of version {node}"


def check_no_cuda_needed(library):
    """Whatever it was linked with: a machine without CUDA must be able to load it."""
    for name in needed(library):
        if re.match(r"lib(cu|nv|nccl)", name):
            yield f"needs {name}: a library of CUDA"


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


def main(library, header, version):
    node = "LIBMOE_" + ".".join(version.split(".")[:2])
    problems = [*check_exports(library, header, node), *check_name(library, version), *check_segments(library),
                *check_no_cuda_needed(library)]
    for problem in problems:
        print(f"{library}: {problem}")
    raise SystemExit(1 if problems else 0)


main(*sys.argv[1:])
