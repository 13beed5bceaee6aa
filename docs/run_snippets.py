"""Runs the programs and commands of a page, so that what it shows works.

usage: run_snippets.py PAGE PREFIX
A line before a fenced block says what becomes of it:
    <!-- write: NAME -->        it is saved as NAME
    <!-- paths -->              a reader's own paths, as export LIBMOE=... (the source tree) and export PREFIX=...: those of
                                this test are put in
    <!-- run -->                it is run by the shell; the blocks of a page share one shell and one empty folder
    <!-- prints -->             each line must be in what the block before it printed; ... stands for anything
    <!-- not run: REASON -->
    <!-- from: FILE -->         it is compared with the source, by check_excerpts.py
A block without such a line is an error. libmoe is installed in PREFIX, and the shell is told so by nothing but the page: it starts
with the variables of KEPT, and a variable that is not set is an error. Exit code 77: a command that the page needs
("needs: NAME ..." in its first lines), or a module of Python ("python3:MODULE"), is not here.
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^(?:<!-- *(?P<mark>[^\n]*?) *-->\n)?^```(?P<language>[\w+]*)\n(?P<text>.*?)^```$", re.M | re.S)
PATHS = re.compile(r"export (LIBMOE|PREFIX)=\S+(?: +#.*)?")
BORDER = "---- end of block "

# Where the tools of a language are and what they may write; of libmoe they say nothing. And no tool asks the network.
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "CARGO_HOME", "CARGO_TARGET_DIR", "RUSTUP_HOME", "GOROOT", "GOPATH", "GOCACHE",
        "PYENV_ROOT", "NODE_EXTRA_CA_CERTS")
OFFLINE = {"CARGO_NET_OFFLINE": "true", "GOTOOLCHAIN": "local", "GOPROXY": "off"}


def blocks(page):
    for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
        mark = match["mark"] or ""
        if not re.fullmatch(r"write: \S+|paths|run|prints|not run: .+|from: \S+", mark):
            raise SystemExit(f"{page}: a block does not say what becomes of it:\n{match['text']}")
        yield mark, match["text"]


def environment(folder):
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {**kept, **OFFLINE, "PATH": f"{folder / 'tools'}:{os.environ['PATH']}"}


def own_paths(page, text, values):
    """The block `paths` with the paths of this test."""
    for line in text.splitlines():
        if not PATHS.fullmatch(line):
            raise SystemExit(f"{page}: not a path of the reader's own: {line}")
        name = PATHS.fullmatch(line)[1]
        yield f"export {name}={shlex.quote(str(values[name]))}\n"


def python_with(module):
    """The interpreter of a system's packages is not always the first one."""
    for python in (shutil.which("python3"), "/usr/bin/python3"):
        if python and subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0:
            return python
    return None


def found(need, tools):
    name, _, module = need.partition(":")
    path = python_with(module) if module else shutil.which(name)
    if path and module:  # a link would not be the interpreter of its virtual environment
        (tools / name).write_text(f'#!/bin/sh\nexec {shlex.quote(path)} "$@"\n', encoding="utf-8")
        (tools / name).chmod(0o755)
    return bool(path)


def run(page, prefix, folder):
    """The page's commands as one script; (exit code, what each block printed, what went wrong)."""
    script, place = "set -eu\n", folder / "work"
    place.mkdir()
    tree = folder / "libmoe"  # a new path each time: Go's cache knows packages by theirs, and would not ask pkg-config again
    tree.symlink_to(pathlib.Path(__file__).resolve().parent.parent)
    for i, (mark, text) in enumerate(blocks(page)):
        if mark.startswith("write: "):
            target = place / mark.removeprefix("write: ")
            target.parent.mkdir(parents=True, exist_ok=True)
            script += f"cp '{folder}/{i}' '{target}'\n"
            (folder / str(i)).write_text(text, encoding="utf-8")
        elif mark == "paths":
            script += "".join(own_paths(page, text, {"LIBMOE": tree, "PREFIX": prefix}))
        elif mark == "run":
            script += f"{text}\necho '{BORDER}{i}'\n"
    done = subprocess.run(["sh", "-c", script], cwd=place, env=environment(folder), capture_output=True, text=True)
    printed, last = {}, ""
    for line in done.stdout.splitlines(keepends=True):
        if line.startswith(BORDER):
            printed[int(line.removeprefix(BORDER))], last = last, ""
        else:
            last += line
    return done.returncode, printed, last + done.stderr


def unmet(page, printed):
    last = ""
    for i, (mark, text) in enumerate(blocks(page)):
        last = printed.get(i, last)
        for line in text.splitlines() if mark == "prints" else ():
            pattern = ".*".join(re.escape(part) for part in line.strip().split("..."))
            if not re.search(pattern, last):
                yield f"{page}: not printed: {line}\nbut:\n{last}"


def main(page, prefix):
    page, prefix = pathlib.Path(page), pathlib.Path(prefix).resolve()
    needs = re.search(r"<!-- needs: (.*?) -->", page.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        tools = pathlib.Path(folder) / "tools"
        tools.mkdir()
        missing = [need for need in (needs[1].split() if needs else ()) if not found(need, tools)]
        if missing:
            print(f"not here: {missing}")
            raise SystemExit(77)
        status, printed, errors = run(page, prefix, pathlib.Path(folder))
    problems = [f"{page}: exit code {status}\n{errors}"] if status else list(unmet(page, printed))
    print("\n".join(problems) or f"{page}: {len(printed)} blocks were run")
    raise SystemExit(1 if problems or not printed else 0)


main(*sys.argv[1:])
