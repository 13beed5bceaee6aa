#!/usr/bin/env python3
"""Compares the machine code of two builds of the library and ignores every symbol name.

    compare_sass.py OLD NEW [--cuobjdump PATH]

OLD and NEW are libmoe.so, object files or folders of them. Each kernel becomes a hash of its instructions, with the names
of symbols left out. The two multisets of hashes per architecture must be equal: a commit that changes names
and comments alone must pass. It needs cuobjdump of the CUDA toolkit and no GPU.
"""

import argparse
import collections
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

FUNCTION = re.compile(r"^\s*Function : (\S+)")
ARCHITECTURE = re.compile(r"^arch = (sm_\w+)")
# "        /*0010*/   MOV R1, c[0x0][0x28] ;   /* 0x... */", then a line with the upper half of the encoding alone
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(.*?;)")
ENCODING = re.compile(r"/\* (0x[0-9a-f]{16}) \*/")
SYMBOL = re.compile(r"\(_Z\w+\)|`\([^)]*\)|_Z\w+|\$\w+")


def dump(cuobjdump, path):
    lines = subprocess.run([cuobjdump, "--dump-sass", str(path)], check=True, capture_output=True, text=True).stdout
    return lines.splitlines()


def kernels_of(lines):
    """(architecture, name) -> list of instructions."""
    kernels, architecture, body, has_symbol = {}, "?", None, False
    for line in lines:
        if match := ARCHITECTURE.match(line):
            architecture, body = match.group(1), None
        elif match := FUNCTION.match(line):
            body = kernels.setdefault((architecture, match.group(1)), [])
        elif body is not None and (match := INSTRUCTION.match(line)):
            body.append(SYMBOL.sub("@", match.group(1)))
            has_symbol = body[-1] != match.group(1)
        if body and not has_symbol and (match := ENCODING.search(line)):
            body.append(match.group(1))  # stall counts and barriers of the schedule are there alone
    return kernels


def fingerprints(cuobjdump, path):
    files = sorted(path.rglob("*.cu.o")) if path.is_dir() else [path]
    found = collections.defaultdict(list)
    for file in files:
        for (architecture, name), body in kernels_of(dump(cuobjdump, file)).items():
            digest = hashlib.sha256("\n".join(body).encode()).hexdigest()
            found[architecture, digest].append((name, len(body)))
    return found


def demangled(name):
    filt = shutil.which("cu++filt") or shutil.which("c++filt")
    if not filt:
        return name
    return subprocess.run([filt, name], check=True, capture_output=True, text=True).stdout.strip()


def compare(old, new):
    """Lines about kernels that one side alone has; a kernel that is there twice must be twice in the other."""
    differences = []
    for key in sorted(set(old) | set(new)):
        surplus = len(new.get(key, [])) - len(old.get(key, []))
        if surplus == 0:
            continue
        side, names = ("new", new[key]) if surplus > 0 else ("old", old[key])
        for name, length in names[: abs(surplus)]:
            differences.append(f"only {side}: {key[0]}, {length} lines, {demangled(name)}")
    return differences


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--cuobjdump", default=os.environ.get("CUOBJDUMP") or shutil.which("cuobjdump") or "cuobjdump")
    options = parser.parse_args()
    old = fingerprints(options.cuobjdump, options.old)
    new = fingerprints(options.cuobjdump, options.new)
    if not old or not new:
        sys.exit("no kernels found in " + str(options.new if old else options.old))
    differences = compare(old, new)
    count = sum(len(names) for names in new.values())
    for line in differences:
        print(line)
    print(f"{count} kernels, {len(differences)} differences")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
