"""Compares what pages quote with the sources: check_excerpts.py ROOT.

A line `<!-- from: FILE -->` before a fenced block says where its lines stand, next to each other; indentation as a whole
may differ. A line of the block that is only `...` stands for any lines.
"""
import pathlib
import re
import sys
import textwrap

BLOCK = re.compile(r"^<!-- from: (\S+) -->\n```\w*\n(.*?)^```$", re.M | re.S)


def is_part_of(piece, source):
    lines, wanted = source.splitlines(), textwrap.dedent(piece).strip("\n").splitlines()
    for first in range(len(lines) - len(wanted) + 1):
        found = textwrap.dedent("\n".join(lines[first:first + len(wanted)])).splitlines()
        if [line.rstrip() for line in found] == [line.rstrip() for line in wanted]:
            return True
    return False


def problems_of(root, page):
    for name, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        source = (root / name).read_text(encoding="utf-8")
        for piece in re.split(r"^ *\.\.\.\n", text, flags=re.M):
            if not is_part_of(piece, source):
                yield f"{page.relative_to(root)}: not in {name}:\n{piece}"


def main(root):
    root = pathlib.Path(root).resolve()
    pages = sorted(root.glob("docs/**/*.md"))
    count = sum(len(BLOCK.findall(page.read_text(encoding="utf-8"))) for page in pages)
    problems = [problem for page in pages for problem in problems_of(root, page)]
    print("\n".join(problems) or f"{count} excerpts are as in their sources")
    return 1 if problems or not count else 0


sys.exit(main(sys.argv[1]))
