"""Compares what libmoe.so exports, version nodes included, with symbols.txt.

usage: check_symbols.py LIBRARY [--golden FILE] [--update]
check_elf.py holds the exports to the header of the same commit; this holds them to those that were released. --update adds
names and takes none away.
"""
import argparse
import pathlib
import re

from limits import readelf

GOLDEN = pathlib.Path(__file__).with_name("symbols.txt")


def exports(library):
    lines = [line.split() for line in readelf("--dyn-syms", library).splitlines()]
    found = {f"{fields[7]} {fields[3]}" for fields in lines
             if len(fields) >= 8 and re.fullmatch(r"\d+:", fields[0]) and fields[4] != "LOCAL"
             and fields[6] not in ("UND", "ABS") and not fields[7].startswith("moe_test_")}
    if not found:
        raise SystemExit(f"{library} exports nothing")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library")
    parser.add_argument("--golden", type=pathlib.Path, default=GOLDEN)
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    now = exports(args.library)
    golden = set(args.golden.read_text(encoding="utf-8").splitlines()) if args.golden.exists() else set()
    problems = [f"no longer exported: {name}" for name in sorted(golden - now)]
    if args.update and not problems:
        args.golden.write_text("".join(f"{name}\n" for name in sorted(now)), encoding="utf-8")
    elif not args.update:
        problems += [f"new, and not in {args.golden.name}: {name}" for name in sorted(now - golden)]
    for problem in problems:
        print(problem)
    raise SystemExit(1 if problems else 0)


main()
