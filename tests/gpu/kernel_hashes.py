"""Hash of every kernel source with all that it includes of this tree: what exactly was tested.

Comments and white space do not count.

As a program: kernel_hashes.py ROOT HEADER writes the hashes as a C++ header, if they changed.
"""
import hashlib
import pathlib
import re
import sys

INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)

LITERAL_OR_COMMENT = re.compile(
    rb""" "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | //[^\n]* | /\*.*?\*/ """, re.DOTALL | re.VERBOSE
)


def bare(source):
    code = LITERAL_OR_COMMENT.sub(lambda m: b" " if m[0].startswith(b"/") else m[0], source)
    return b" ".join(code.split())


def included(root, path, found):
    """Adds path and, through their includes, every file of the tree that it is compiled from."""
    if path in found:
        return
    found[path] = (root / path).read_bytes()
    for match in INCLUDE.finditer(found[path]):
        name = match.group(1).decode()
        for base in (root, root / "include", (root / path).parent):
            if (base / name).is_file():
                included(root, (base / name).relative_to(root).as_posix(), found)
                break


def hash_of(root, path):
    found = {}
    included(root, path, found)
    digest = hashlib.sha256()
    for name in sorted(found):
        code = bare(found[name])
        digest.update(f"{name}\0{len(code)}\0".encode() + code)
    return digest.hexdigest()[:16]


def kernel_hashes(root):
    root = pathlib.Path(root).resolve()
    paths = sorted(p.relative_to(root).as_posix() for p in (root / "libmoe/cuda").rglob("*.cu"))
    return {path: hash_of(root, path) for path in paths}


def header(hashes):
    rows = "".join(f'    {{"{path}", "{digest}"}},\n' for path, digest in hashes.items())
    return (
        "// Written by tests/gpu/kernel_hashes.py.\n#pragma once\n\nnamespace moe_gpu {\n\n"
        "struct KernelSource {\n    const char* path;\n    const char* hash;\n};\n\n"
        "inline constexpr KernelSource kernel_sources[] = {\n"
        f"{rows}    {{nullptr, nullptr}},\n}};\n\n}}  // namespace moe_gpu\n"
    )


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[2])
    wanted = header(kernel_hashes(sys.argv[1]))
    if not target.is_file() or target.read_text() != wanted:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(wanted)
