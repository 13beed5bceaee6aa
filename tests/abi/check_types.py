"""Compares the types of moe.h with moe.abi, which abidw wrote, by abidiff: an independent reading of the debug information.

usage: check_types.py HEADER VERSION_SCRIPT [--golden FILE] [--update]
What is compared is a probe, a library of empty functions compiled from the header alone. libmoe.so includes the same header, so
the compiler holds its functions to these declarations; what it exports is check_symbols.py's matter. The probe needs no build,
has no private type, and is the same whatever the library was compiled with.
Every difference fails, and nothing is suppressed: told that structs may grow at their end (has_data_member_inserted_at = end),
abidiff 2.2 lets two fields of such a struct change places. What growth is legal, check_layout.py knows; update.sh asks it first.
Exit code 77: abidiff is not here.
"""
import argparse
import pathlib
import shutil
import subprocess
import tempfile

from declarations import declarations
from probe import probe_library

GOLDEN = pathlib.Path(__file__).with_name("moe.abi")


def differences(probe, golden):
    run = subprocess.run(["abidiff", "--harmless", str(golden), probe], capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr


def write(probe, golden):
    subprocess.run(["abidw", "--no-show-locs", "--no-corpus-path", "--no-comp-dir-path", "--out-file", str(golden), probe],
                   check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("header")
    parser.add_argument("version_script")
    parser.add_argument("--golden", type=pathlib.Path, default=GOLDEN)
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    if not shutil.which("abidiff"):
        print("abidiff is not here (package abigail-tools)")
        raise SystemExit(77)
    include = pathlib.Path(args.header).resolve().parent.parent
    found = declarations(args.header)
    with tempfile.TemporaryDirectory() as folder:
        probe = probe_library(found, include, folder, pathlib.Path(args.version_script).resolve())
        if args.update:
            write(probe, args.golden)
        status, text = differences(probe, args.golden)
    print(text, end="")
    raise SystemExit(1 if status else 0)


main()
