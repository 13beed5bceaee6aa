#!/usr/bin/env python3
"""Words of an earlier, private language that no file uses any more: the field has other names for them.

    words.py ROOT

The right column of GONE has these names.
"""

import pathlib
import re
import subprocess
import sys

# The word, and the name that the field has for it.
GONE = {
    r"slabs?": "work item",
    r"grains?": "minimum split of k",
    r"books?": "codebook lookup",
    r"leftovers?": "residual scale",
    r"rebased": "block exponent",
    r"asked for": "requested, prefetched or issued",
    r"lies? whole": "not sliceable",
}
SUFFIXES = {".cu", ".cuh", ".cpp", ".hpp", ".h", ".c", ".inc", ".py", ".rs", ".go", ".cs", ".md", ".txt", ".cmake", ".sh", ".toml", ".i"}
# A released header is kept as it was.
KEPT = ("tests/abi/old/", "tests/source/words.py")


def findings(root, paths):
    word = re.compile(r"\b(?:" + "|".join(GONE) + r")\b", re.IGNORECASE)
    for path in paths:
        if path.startswith(KEPT) or pathlib.Path(path).suffix not in SUFFIXES:
            continue
        for number, line in enumerate((root / path).read_text(encoding="utf-8").splitlines(), 1):
            for match in word.finditer(line):
                said = next(name for pattern, name in GONE.items() if re.fullmatch(pattern, match.group(), re.IGNORECASE))
                yield f"{path}:{number}: {match.group()} is called {said}"


def self_test(root):
    planted = root / "planted.hpp"
    planted.write_text("// A slab of what was asked for.\n", encoding="utf-8")
    assert len(list(findings(root, ["planted.hpp"]))) == 2


def main():
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        self_test(pathlib.Path(folder))
    root = pathlib.Path(sys.argv[1])
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True)
    paths = listed.stdout.split("\n") if listed.returncode == 0 else [
        str(path.relative_to(root)) for top in ("libmoe", "include", "tests", "bench", "docs", "examples", "bindings")
        for path in (root / top).rglob("*")]
    found = list(findings(root, [path for path in paths if path and (root / path).is_file()]))
    print("\n".join(found) or f"{len(paths)} files: none of the {len(GONE)} words")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
