#!/usr/bin/env python3
"""Dependencies between the folders of libmoe go one way, and no header includes itself through others.

    includes.py ROOT
"""

import pathlib
import re
import sys
import tempfile

INCLUDE = re.compile(r'^#include "(libmoe/[^"]+)"', re.M)
# A folder, and the folders that it may include; a folder that is not here may include any.
MAY = {
    "base": {"base"},
    "packed": {"base", "packed"},
    "formats": {"base", "formats"},
    "layer": {"base", "layer", "formats"},
    "device": {"base", "device"},
    "cpu": {"base", "layer", "formats", "weights", "cpu", "packed"},
    "cuda": {"base", "layer", "formats", "weights", "packed", "device", "cuda"},
}
NEVER = {"plan": {"api"}, "weights": {"plan", "cuda", "cpu", "api"}, "checkpoint": {"plan", "cuda", "cpu", "api"}}


def includes_of(root):
    return {str(path.relative_to(root)): INCLUDE.findall(path.read_text(encoding="utf-8"))
            for path in sorted((root / "libmoe").rglob("*")) if path.suffix in {".hpp", ".cuh", ".h", ".cpp", ".cu", ".inc"}}


def wrong_directions(includes):
    for path, targets in includes.items():
        folder = path.split("/")[1]
        for target in targets:
            other = target.split("/")[1]
            if (folder in MAY and other not in MAY[folder]) or other in NEVER.get(folder, ()):
                yield f"{path} includes {target}: {folder}/ may not know {other}/"


def circles(includes):
    """Every circle once, as the path that closes it."""
    state, stack = {}, []

    def visit(path):
        state[path] = "open"
        stack.append(path)
        for target in includes.get(path, ()):
            if state.get(target) == "open":
                yield " -> ".join(stack[stack.index(target):] + [target])
            elif target not in state:
                yield from visit(target)
        stack.pop()
        state[path] = "done"

    for path in includes:
        if path not in state:
            yield from visit(path)


def findings(root):
    includes = includes_of(root)
    return [*wrong_directions(includes), *(f"a circle: {one}" for one in circles(includes))], len(includes)


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {"base/a.hpp": '#include "libmoe/base/b.hpp"\n', "base/b.hpp": '#include "libmoe/base/a.hpp"\n',
                           "packed/p.hpp": '#include "libmoe/formats/f.hpp"\n', "formats/f.hpp": ""}.items():
            path = root / "libmoe" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        found, _ = findings(root)
        assert len(found) == 2, found


def main():
    self_test()
    found, count = findings(pathlib.Path(sys.argv[1]))
    print("\n".join(found) or f"{count} sources: no circle, no folder that knows one above it")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
