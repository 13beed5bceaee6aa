"""Prebuilt llama.cpp: the npm package whose versions have these ggml. Nothing of it is part of this repository.

    python3 packages.py FOLDER      fetch what is not there yet, by npm; exit code 77: npm did not bring it
"""
import pathlib
import subprocess
import sys
import tempfile

PACKAGE = "@node-llama-cpp/linux-x64"
# Package to ggml: one or more of every generation of the backend interface, oldest first.
VERSIONS = {"3.14.2": "0.9.4", "3.17.1": "0.9.7", "3.19.0": "0.15.3", "3.20.0": "0.19.0", "3.21.1": "0.23.0", "3.22.1": "0.25.1"}
# Its ggml has the interface before that of 0.9.4.
TOO_OLD = "3.13.0"
NOT_BROUGHT = 77
# A registry that does not answer holds npm for many minutes; a package takes some seconds.
SECONDS, TRIES = 120, 3


def libraries(folder, version):
    return str(pathlib.Path(folder) / version / "bins" / "linux-x64")


def pack(folder, version):
    command = ["npm", "pack", "--silent", f"{PACKAGE}@{version}"]
    for _ in range(TRIES):
        try:
            return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=SECONDS)
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
            print(error, file=sys.stderr)
    sys.exit(NOT_BROUGHT)


def fetch(folder, version):
    target = pathlib.Path(folder) / version
    if target.exists():
        return
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        pack(temporary, version)
        archive = next(pathlib.Path(temporary).glob("*.tgz"))
        unpacked = pathlib.Path(temporary) / "package"
        subprocess.run(["tar", "-xzf", archive.name], cwd=temporary, check=True)
        unpacked.rename(target)


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    for each in (*VERSIONS, TOO_OLD):
        fetch(sys.argv[1], each)
