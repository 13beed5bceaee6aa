"""limits.txt, and what a file weighs and needs: shared by the checks of this folder."""
import os
import pathlib
import re
import subprocess


def limit(name):
    for line in pathlib.Path(__file__).with_name("limits.txt").read_text(encoding="utf-8").splitlines():
        fields = line.partition("#")[0].split()
        if fields and fields[0] == name:
            return fields[1]
    raise SystemExit(f"limits.txt has no line for {name}")


def readelf(option, path):
    run = subprocess.run(["readelf", "--wide", option, path], capture_output=True, text=True, check=True,
                         env={**os.environ, "LC_ALL": "C"})
    return run.stdout


def needed(path):
    return re.findall(r"\(NEEDED\).*\[(.*?)\]", readelf("--dynamic", path))


def loaded_bytes(path):
    sizes = re.findall(r"^\s+LOAD\s+\S+\s+\S+\s+\S+\s+(0x[0-9a-f]+)", readelf("--program-headers", path), flags=re.M)
    return sum(int(size, 16) for size in sizes)


def has_cuda(library):
    return ".nv_fatbin" in readelf("--section-headers", library)


def libc_floor():
    return tuple(map(int, limit("glibc").split(".")))


def wanted_symbols(path):
    """(symbol, version) of every function and variable that comes from another library under a version."""
    return re.findall(r"\bUND (\w+)@([\w.]+)", readelf("--dyn-syms", path))
