"""Every environment variable that a source file reads by name must be in the tables of environment.md, and every variable
there in some source file.

usage: check_environment.py SOURCE_TREE
"""
import pathlib
import re
import subprocess
import sys

READS = [re.compile(pattern) for pattern in (
    r'\bgetenv\(\s*"(\w+)"', r'\bos\.environ(?:\.get\(|\[)\s*"(\w+)"', r'\bos\.getenv\(\s*"(\w+)"', r'\bos\.Getenv\("(\w+)"',
    r'\benv::var(?:_os)?\("(\w+)"', r'\bvar(?:_os)?\("(\w+)"', r'GetEnvironmentVariable\("(\w+)"', r"\$\{(\w+):-",
    r"""\bos\.getenv\s*\(?\s*["'](\w+)["']""", r"\bENV\{(\w+)\}")]
SOURCES = {".c", ".h", ".inc", ".cpp", ".hpp", ".cu", ".cuh", ".py", ".go", ".rs", ".cs", ".i", ".java", ".lua", ".sh", ".bash",
           ".cmake", ""}


def sources(root):
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, text=True)
    if listed.returncode:
        print("not a git checkout")
        raise SystemExit(77)
    for name in listed.stdout.split("\0"):
        path = root / name
        is_source = path.suffix in SOURCES or path.name == "CMakeLists.txt"
        if name and is_source and path.is_file() and not name.startswith("docs/"):
            yield name, path.read_text(encoding="utf-8", errors="replace")


# Of a shell: arguments and variables of the script itself.
LOCAL = re.compile(r"\d|[a-z]")


def main(root):
    root = pathlib.Path(root)
    page = (root / "docs/environment.md").read_text(encoding="utf-8")
    tables = "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    documented, texts = set(re.findall(r"`(\w+)`", tables)), dict(sources(root))
    read = {name: path for path, text in texts.items() for pattern in READS for name in pattern.findall(text)
            if not LOCAL.match(name)}
    problems = [f"{path} reads {name}, which docs/environment.md does not have"
                for name, path in sorted(read.items()) if name not in documented]
    problems += [f"docs/environment.md has {name}, which no source names"
                 for name in sorted(documented) if not any(name in text for text in texts.values())]
    print("\n".join(problems) or f"{len(read)} variables are read, {len(documented)} are in the tables")
    raise SystemExit(1 if problems or not read else 0)


main(*sys.argv[1:])
