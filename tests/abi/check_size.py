"""Holds files to their budgets in limits.txt.

usage: check_size.py [--cuda] BUDGET=FILE...      --cuda: the budgets of a build with CUDA, where they have one of their own
An ELF file is measured by what it loads, any other by its length.
"""
import os
import sys

from limits import limit, loaded_bytes


def size(path):
    with open(path, "rb") as file:
        is_elf = file.read(4) == b"\x7fELF"
    return loaded_bytes(path) if is_elf else os.path.getsize(path)


def main(arguments):
    suffix = "+cuda" if "--cuda" in arguments else ""
    too_large = False
    for pair in (argument for argument in arguments if argument != "--cuda"):
        name, _, path = pair.partition("=")
        budget, bytes_ = int(limit(name if name == "moe" else name + suffix)), size(path)
        print(f"{name}{suffix}: {bytes_} of {budget} bytes")
        too_large = too_large or not 0 < bytes_ <= budget
    raise SystemExit(1 if too_large else 0)


main(sys.argv[1:])
