#!/usr/bin/env python3
"""Every source that a unity build compiles together with others compiles alone, too: what is shipped is built file by file.

    alone.py BUILD [part of a path]

Syntax only, with the flags of the unity file that includes it. Targets: the library, the command and the backend of ggml.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

TARGETS = re.compile(r"/(moe_objects|moe_command|ggml_libmoe)\.dir/Unity/")
INCLUDE = re.compile(r'^#include "(.+)"', re.M)


def commands(build):
    """A command and a source, for each source of each unity file."""
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        unity = pathlib.Path(entry["file"])
        if not TARGETS.search(entry["file"]) or unity.suffix != ".cxx":
            continue
        words = [word for word in shlex.split(entry["command"]) if not word.endswith("ccache")]
        flags = words[:words.index("-o")]
        for source in INCLUDE.findall(unity.read_text(encoding="utf-8")):
            yield [*flags, "-fsyntax-only", "-c", source], source, entry["directory"]


def errors(command, source, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return f"{source} does not compile alone:\n{done.stderr[:1500]}" if done.returncode else ""


def main():
    part = sys.argv[2] if len(sys.argv) > 2 else ""
    wanted = [one for one in commands(pathlib.Path(sys.argv[1])) if part in one[1]]
    if not wanted:
        return "no unity file: this build compiles every source alone"
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [text for text in pool.map(lambda one: errors(*one), wanted) if text]
    print("\n".join(found) or f"{len(wanted)} sources compile alone")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
