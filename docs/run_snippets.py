"""Runs the programs and commands of a page, so that what it shows works.

usage: run_snippets.py PAGE BUILD_FOLDER
A line before a fenced block says what becomes of it:
    <!-- write: NAME -->        it is saved as NAME
    <!-- run -->                it is run by the shell; the blocks of a page share one shell and one empty folder
    <!-- prints -->             each line must be in what the block before it printed; ... stands for anything
    <!-- not run: REASON -->
A block without such a line is an error. LIBMOE names the source tree, as on the pages; BUILD_FOLDER has libmoe.so and the
command moe, and stands in for an installed libmoe. Exit code 77: a command that the page needs ("needs: NAME ..." in its
first lines), or a module of Python ("python3:MODULE"), is not here.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^(?:<!-- *(?P<mark>[^\n]*?) *-->\n)?^```(?P<language>[\w+]*)\n(?P<text>.*?)^```$", re.M | re.S)
BORDER = "---- end of block "


def blocks(page):
    for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
        mark = match["mark"] or ""
        if not re.fullmatch(r"write: \S+|run|prints|not run: .+", mark):
            raise SystemExit(f"{page}: a block does not say what becomes of it:\n{match['text']}")
        yield mark, match["text"]


def pkg_config(build, folder):
    """moe.pc as an installed libmoe has it, for a library that is not installed."""
    root = pathlib.Path(__file__).resolve().parent.parent
    text = (build / "libmoe" / "moe.pc").read_text(encoding="utf-8")
    for name, path in (("libdir", build / "lib"), ("includedir", root / "include")):
        text = re.sub(rf"^{name}=.*$", f"{name}={path}", text, flags=re.M)
    folder.mkdir()
    (folder / "moe.pc").write_text(text, encoding="utf-8")
    return folder


def environment(build, folder):
    root = pathlib.Path(__file__).resolve().parent.parent
    caches = build / "snippets"
    return {**os.environ, "PATH": f"{folder / 'tools'}:{build / 'bin'}:{os.environ['PATH']}", "LIBMOE": str(root),
            "LD_LIBRARY_PATH": str(build / "lib"), "PKG_CONFIG_PATH": str(pkg_config(build, folder / "pkgconfig")),
            "MOE_LIBRARY": str(build / "lib" / "libmoe.so"), "CARGO_TARGET_DIR": str(caches / "rust"),
            "CARGO_NET_OFFLINE": "true", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "GOPROXY": "off"}


def python_with(module):
    """The interpreter of a system's packages is not always the first one."""
    for python in (shutil.which("python3"), "/usr/bin/python3"):
        if python and subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0:
            return python
    return None


def found(need, tools):
    name, _, module = need.partition(":")
    path = python_with(module) if module else shutil.which(name)
    if path and module:
        (tools / name).symlink_to(path)
    return bool(path)


def run(page, build, folder):
    """The page's commands as one script; (exit code, what each block printed, what went wrong)."""
    script, place = "set -e\n", folder / "work"
    place.mkdir()
    for i, (mark, text) in enumerate(blocks(page)):
        if mark.startswith("write: "):
            target = place / mark.removeprefix("write: ")
            target.parent.mkdir(parents=True, exist_ok=True)
            script += f"cp '{folder}/{i}' '{target}'\n"
            (folder / str(i)).write_text(text, encoding="utf-8")
        elif mark == "run":
            script += f"{text}\necho '{BORDER}{i}'\n"
    done = subprocess.run(["sh", "-c", script], cwd=place, env=environment(build, folder), capture_output=True, text=True)
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


def main(page, build):
    page, build = pathlib.Path(page), pathlib.Path(build).resolve()
    needs = re.search(r"<!-- needs: (.*?) -->", page.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        tools = pathlib.Path(folder) / "tools"
        tools.mkdir()
        missing = [need for need in (needs[1].split() if needs else ()) if not found(need, tools)]
        if missing:
            print(f"not here: {missing}")
            raise SystemExit(77)
        status, printed, errors = run(page, build, pathlib.Path(folder))
    problems = [f"{page}: exit code {status}\n{errors}"] if status else list(unmet(page, printed))
    print("\n".join(problems) or f"{page}: {len(printed)} blocks were run")
    raise SystemExit(1 if problems or not printed else 0)


main(*sys.argv[1:])
