#!/usr/bin/env python3
"""catches.py ROOT: exceptions are caught in libmoe/api alone. What catches elsewhere is listed here with its reason."""
import re
import sys

from cpp_source import code_of, read_tree

# File: how many handlers it has, and why they are there. An entry that is no longer true fails, too.
ALLOWED = {
    "libmoe/base/first_failure.hpp": (1, "a thread of a team may not throw: the caller's thread throws it again"),
    "libmoe/weights/device_block.hpp": (1, "a destructor waits for copies and may run while an exception is on its way"),
    "libmoe/cuda/device_memory.hpp": (1, "a destructor in a forked child: to be replaced by a question that does not throw"),
}


def handlers(text):
    """Line numbers of catch clauses."""
    return [i for i, line in enumerate(code_of(text).split("\n"), 1) for _ in re.findall(r"\bcatch\s*\(", line)]


def findings(files, allowed):
    found = []
    for path, text in files.items():
        if path.startswith("libmoe/api/"):
            continue
        lines = handlers(text)
        count = allowed.get(path, (0, ""))[0]
        if len(lines) > count:
            where = ", ".join(map(str, lines))
            found.append(f"{path}: catches in line {where}, {count} allowed: let libmoe/api/guard.hpp catch it")
    for path, (count, _) in allowed.items():
        there = len(handlers(files.get(path, "")))
        if there < count:
            found.append(f"{path}: catches {there} times, the list of this test says {count}: shorten it")
    return found


def self_test():
    bad = {"libmoe/base/a.cpp": "void f() { try { g(); }\n catch (...) { } }"}
    good = {"libmoe/base/b.cpp": "// catch (...)\nconst char* s = \"catch (...)\"; int catcher(int);",
            "libmoe/api/c.cpp": "try { } catch (const Error& e) { }"}
    assert findings(bad, {}) == ["libmoe/base/a.cpp: catches in line 2, 0 allowed: let libmoe/api/guard.hpp catch it"]
    assert findings(bad, {"libmoe/base/a.cpp": (1, "")}) == []
    assert findings(good, {}) == []
    assert len(findings(good, {"libmoe/base/b.cpp": (1, "")})) == 1


def main():
    self_test()
    files = read_tree(sys.argv[1], "libmoe")
    assert len(files) > 100, f"only {len(files)} sources under {sys.argv[1]}/libmoe"
    found = findings(files, ALLOWED)
    print("\n".join(found) or f"{len(files)} sources: exceptions are caught in libmoe/api and in {len(ALLOWED)} listed files")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
