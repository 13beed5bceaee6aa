"""Compares the function list of moe_dl.h with the functions that moe.h declares.

usage: check_list.py <moe.h> <moe_dl.h>
"""
import re
import sys


def declared(text):
    return re.findall(r"MOE_CALL\s+moe_(\w+)\s*\(", text)


def listed(text):
    body = re.search(r"#define MOE_DL_FUNCTIONS\(X\)(.*?[^\\])\n", text, re.S).group(1)
    return re.findall(r"X\((\w+)\)", body)


def main():
    header = open(sys.argv[1], encoding="utf-8").read()
    loader = open(sys.argv[2], encoding="utf-8").read()
    want = [name for name in declared(header) if name != "abi_version"]
    have = listed(loader)
    missing = [name for name in want if name not in have]
    unknown = [name for name in have if name not in want]
    twice = [name for name in set(have) if have.count(name) > 1]
    print(f"{len(want)} functions declared, {len(have)} listed")
    if len(want) < 40 or missing or unknown or twice:
        sys.exit(f"moe_dl.h: missing {missing}, unknown {unknown}, twice {twice}")


main()
