"""Checks libmoe.a: the functions of the header are global and hidden, every other name is local, and no object of the library is missing.

usage: check_archive.py ARCHIVE HEADER
"""
import sys

from header import declared_functions
from limits import readelf


def defined(archive):
    """(name, binding, visibility) of what the archive defines and others can bind to."""
    for line in readelf("--symbols", archive).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[0][:-1].isdigit() and fields[6] != "UND" and fields[4] != "LOCAL":
            yield fields[7], fields[4], fields[5]


def missing(archive):
    """Names of the library's namespace that the archive uses and does not define."""
    for line in readelf("--symbols", archive).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[6] == "UND" and fields[7].startswith(("_ZN3moe", "_ZNK3moe", "_ZTVN3moe", "_ZTIN3moe")):
            yield fields[7]


def problems(archive, header):
    declared = declared_functions(header)
    found = list(defined(archive))
    names = {name for name, _, _ in found}
    yield from (f"declared but not there: {name}" for name in sorted(declared - names))
    yield from (f"not local: {name}" for name in sorted(names - declared))
    yield from (f"used and not defined: {name}" for name in sorted(set(missing(archive))))
    for name, binding, visibility in found:
        if name in declared and (binding, visibility) != ("GLOBAL", "HIDDEN"):
            yield f"{name}: {binding} {visibility}, expected a global, hidden function"


found = list(problems(*sys.argv[1:]))
for problem in found:
    print(problem)
raise SystemExit(1 if found else 0)
