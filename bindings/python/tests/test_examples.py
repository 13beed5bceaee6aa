"""The example and the Python of the README, run on a checkpoint that the command `moe` makes."""
import os
import pathlib
import re
import subprocess
import sys

import pytest
from oracle import ROOT

import moe

PYTHON = ROOT / "bindings/python"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    command = pathlib.Path(moe.library().path).resolve().parents[1] / "bin/moe"
    if not command.exists():
        pytest.skip(f"the command {command} is not built")
    folder = tmp_path_factory.mktemp("model") / "qwen3"
    subprocess.run([command, "make-model", "qwen3-30b-a3b", folder, "--reduced"], check=True, capture_output=True)
    return folder


def run(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(PYTHON / "src")}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example(checkpoint):
    output = run(PYTHON / "examples/layer.py", checkpoint, "--tokens", "3")
    assert "qwen3_moe, layer 0" in output and "token 2: experts" in output
    assert min(float(found) for found in re.findall(r"rms of out ([\d.]+)", output)) > 0


def test_the_programs_of_the_readme(checkpoint):
    programs = re.findall(r"^```python\n(.*?)^```", (PYTHON / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    runnable = [program for program in programs if "cuda" not in program]
    assert runnable
    for program in runnable:
        assert "/tmp/qwen3" in program
        assert run("-c", program.replace("/tmp/qwen3", str(checkpoint))).strip()
