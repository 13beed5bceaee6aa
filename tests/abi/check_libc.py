"""Checks that files need nothing but libc, libm and the loader, and no newer libc than limits.txt says.

usage: check_libc.py [--also LIBRARY] FILE...      LIBRARY: one more that they may need
"""
import argparse
import re

from limits import libc_floor, needed, wanted_symbols

SYSTEM = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def problems(path, allowed):
    for name in needed(path):
        if name not in allowed:
            yield f"needs {name}, which is not libc, libm or the loader"
    floor = libc_floor()
    symbols = wanted_symbols(path)
    if not symbols:
        yield "has no symbol of libc; the pattern is out of date"
    for symbol, version in symbols:
        glibc = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", version)
        if glibc and (int(glibc[1]), int(glibc[2])) > floor:
            yield f"needs {symbol} of {version}, newer than {floor[0]}.{floor[1]}"
        elif not glibc and not version.startswith("LIBMOE_"):
            yield f"needs {symbol} of {version}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--also", action="append", default=[])
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    found = [f"{path}: {problem}" for path in args.files for problem in problems(path, SYSTEM | set(args.also))]
    for problem in found:
        print(problem)
    raise SystemExit(1 if found else 0)


main()
