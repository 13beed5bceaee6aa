#!/usr/bin/env python3
"""scalar_reference.py ROOT: libmoe/cpu/ref is scalar code that nothing chooses by the processor."""
import re
import sys

from cpp_source import code_of, includes_of, read_tree

FOLDER = "libmoe/cpu/ref/"

# The files of the folder, and all that they include of ours, may not include these ...
INCLUDES = re.compile(r"intrin\.h$|^cpuid\.h$|^arm_|^libmoe/cpu/(simd|avx2|avx512|kernels|features|setup)\b")
# ... and may not use these.
WORDS = re.compile(r"\b_mm\d*_\w+|\b__m\d+\w*|\b__builtin_(?:ia32|cpu)_\w+|\bvector_size\b|\btarget\s*\(|\b__get_cpuid\w*"
                   r"|\bMOE_X86\b|\b__AVX\w*|\b__x86_64__\b|\b__aarch64__\b|\bArithmetic\b|\bomp\s+simd\b|\basm\b")


def reached(files, path, seen):
    """Every file of ours that `path` includes, itself among them."""
    if path not in files or path in seen:
        return
    seen.add(path)
    for name in includes_of(files[path]):
        reached(files, name, seen)


def findings(files):
    found = []
    roots = [path for path in files if path.startswith(FOLDER)]
    seen = set()
    for path in roots:
        reached(files, path, seen)
    for path in sorted(seen):
        found += [f"{path} includes {name}" for name in includes_of(files[path]) if INCLUDES.search(name)]
    for path in sorted(seen):
        if path.startswith("libmoe/cpu/"):
            found += [f"{path} says {word}" for word in sorted(set(WORDS.findall(code_of(files[path]))))]
    return found


def self_test():
    def of(**extra):
        return {FOLDER + "a.cpp": extra.get("a", ""), "libmoe/cpu/rows.hpp": extra.get("rows", ""),
                "libmoe/cpu/simd.hpp": "#include <immintrin.h>"}
    assert findings(of(a="// _mm256_add_ps is elsewhere\nfloat f();")) == []
    assert findings(of(a="#include <immintrin.h>")) == [FOLDER + "a.cpp includes immintrin.h"]
    assert findings(of(a="auto v = _mm256_add_ps(a, b);")) == [FOLDER + "a.cpp says _mm256_add_ps"]
    assert findings(of(a="make_dot(Arithmetic arithmetic);")) == [FOLDER + "a.cpp says Arithmetic"]
    indirect = of(a='#include "libmoe/cpu/rows.hpp"', rows='#include "libmoe/cpu/simd.hpp"')
    assert "libmoe/cpu/rows.hpp includes libmoe/cpu/simd.hpp" in findings(indirect)


def main():
    self_test()
    files = read_tree(sys.argv[1], "libmoe")
    n = sum(path.startswith(FOLDER) for path in files)
    assert n >= 8, f"only {n} files in {FOLDER}"
    found = findings(files)
    print("\n".join(found) or f"{n} files in {FOLDER}: scalar, and nothing chosen by the processor")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
