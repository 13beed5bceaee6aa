"""Writes the man page moe(1) from what the command says of itself: manual.py COMMAND > moe.1

The page is kept in the tree, so that installing needs no Python; a test compares the two.
"""
import re
import subprocess
import sys

INTRODUCTION = """\
.SH DESCRIPTION
.B moe
shows, runs, times and explains the Mixture-of-Experts layers of a checkpoint, which is a folder of safetensors files, one such
file, or a GGUF file. It is a program on the C interface of libmoe, moe.h, and nothing else.
"""
ENDING = """\
.SH EXIT STATUS
0: done. 1: the command failed, and one line on standard error says why. 2: the command line is wrong.
.SH SEE ALSO
The header moe/moe.h, which documents the library.
"""


def run(*command):
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return text.splitlines()


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def section(lines, title):
    """The indented lines below a title, as [[name and type, text], ...]; long names have their text on the next line."""
    entries = []
    inside = False
    for line in lines:
        if not line.startswith(" "):
            inside = line.strip().lower() == title.lower() + ":"
        elif inside:
            entry = re.match(r"  (\S.*?)(?:\s{2,}(.*))?$", line)
            if entry:
                entries.append([entry[1], entry[2] or ""])
            else:
                entries[-1][1] = (entries[-1][1] + " " + line.strip()).strip()
    return entries


def example(lines):
    start = lines.index("Example:") + 1
    return [line[2:] for line in lines[start:] if line.startswith("  ")]


def entry(name, text):
    """`--layer INT REQUIRED` -> the name bold, its type in italics, the rest (required, excludes) as words."""
    word, _, rest = name.partition(" ")
    kind = re.match(r"[A-Z]+(?::[A-Z]+)?\b", rest)
    notes = re.sub(r"\bREQUIRED\b", "required", rest[kind.end():] if kind else rest).strip()
    notes = re.sub(r"Excludes:", "not with", notes)
    kind = kind[0].split(":")[0] if kind and word.startswith("-") else ""
    yield ".TP"
    yield ".B " + escape(word.replace(",", ", ")) + (f" \\fI{kind}\\fR" if kind else "")
    sentence = text.strip().rstrip(".") + "." if text.strip() else ""
    yield escape(" ".join(part for part in (sentence, f"({notes})" if notes else "") if part)) or "\\&"


def subcommand(command, name):
    lines = run(command, name, "--help")
    about = lines[:next(i for i, line in enumerate(lines) if line.lower().startswith("usage:") or not line)]
    usage = next(line for line in lines if line.lower().startswith("usage:"))
    yield ".SS " + escape(usage.partition(":")[2].strip())
    yield escape(" ".join(about))
    for title in ("Positionals", "Options"):
        for option, text in section(lines, title):
            if not option.startswith("-h"):
                yield from entry(option, text)
    yield from (".PP", ".nf", ".RS", *map(escape, example(lines)), ".RE", ".fi")


def manual(command):
    lines = run(command, "--help")
    version = next(line for line in run(command, "version") if line.startswith("version=")).partition("=")[2]
    about = lines[0].partition(": ")[2].rstrip(".")
    yield '.\\" Written by manual.py from the help of the command.'
    yield f'.TH MOE 1 "" "libmoe {version}" "libmoe"'
    yield from (".SH NAME", f"moe \\- {about}")
    yield from (".SH SYNOPSIS", ".B moe", ".I command", "[options]", ".br", ".B moe", ".I command", ".B \\-\\-help",
                ".br", ".B moe \\-\\-version")
    yield INTRODUCTION.rstrip()
    yield ".SH COMMANDS"
    for name, _ in section(lines, "Subcommands"):
        yield from subcommand(command, name)
    yield from (".SH EXAMPLE", ".nf", ".RS", *map(escape, example(lines)), ".RE", ".fi")
    yield ENDING.rstrip()


print("\n".join(manual(sys.argv[1])))
