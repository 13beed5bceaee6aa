"""Prebuilt llama.cpp: the npm package whose versions have these ggml. Nothing of it is part of this repository.

    python3 packages.py FOLDER      fetch what is not there yet, by npm
"""
import json
import pathlib
import re
import subprocess
import sys
import tarfile

PACKAGE = "@node-llama-cpp/linux-x64"
# Package to ggml: one or more of every generation of the backend interface, oldest first.
VERSIONS = {"3.14.2": "0.9.4", "3.17.1": "0.9.7", "3.19.0": "0.15.3", "3.20.0": "0.19.0", "3.21.1": "0.23.0", "3.22.1": "0.25.1"}
# Its ggml has the interface before that of 0.9.4.
TOO_OLD = "3.13.0"


def libraries(folder, version):
    return str(pathlib.Path(folder) / version / "bins" / "linux-x64")


def fetch(folder, version):
    target = pathlib.Path(folder) / version
    if (target / "package.json").exists():
        return
    target.mkdir(parents=True, exist_ok=True)
    answer = subprocess.run(["npm", "pack", "--json", "--silent", f"{PACKAGE}@{version}"], cwd=target, check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    name = re.sub(r"[@/]", lambda match: "" if match[0] == "@" else "-", json.loads(answer)[0]["filename"])
    with tarfile.open(target / name) as archive:
        for member in archive.getmembers():
            member.name = member.name.partition("/")[2]
            archive.extract(member, target, filter="data")
    (target / name).unlink()


if __name__ == "__main__":
    for each in (*VERSIONS, TOO_OLD):
        fetch(sys.argv[1], each)
