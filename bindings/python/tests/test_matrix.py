"""matrix.py prints what the result files say, and fails on holes."""
import json
import subprocess
import sys

import pytest
from conftest import CASES
from oracle import ROOT

MATRIX = ROOT / "bindings/conformance/matrix.py"


def matrix(folder, *results):
    file = folder / "python.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in results))
    return subprocess.run([sys.executable, MATRIX, file], capture_output=True, text=True)


def all_passed(**changed):
    return [{"case": name, "passed": True} | changed.get(name.replace("-", "_"), {}) for name in CASES]


def test_a_complete_file_passes(tmp_path):
    done = matrix(tmp_path, *all_passed(THR_02={"passed": None, "reason": "does not compile"}))
    assert done.returncode == 0, done.stderr
    assert "| THR-02 | - (1) |" in done.stdout and "(1) does not compile" in done.stdout
    assert done.stdout.count("| yes |") == len(CASES) - 1


@pytest.mark.parametrize(
    "results, words",
    [
        (all_passed()[1:], "ERR-01 has no result"),
        (all_passed(ERR_01={"passed": None}), "ERR-01 was not run and no reason is given"),
        (all_passed(ERR_01={"passed": False, "reason": "test_x"}), "ERR-01 failed: test_x"),
        ([*all_passed(), {"case": "NEW-01", "passed": True}], "NEW-01 is no case"),
        ([*all_passed(), {"case": "ERR-01", "passed": True}], "ERR-01 has a result already"),
        ([{"case": "ERR-01"}], "not a result"),
    ],
)
def test_holes_are_failures(tmp_path, results, words):
    done = matrix(tmp_path, *results)
    assert done.returncode == 1 and words in done.stderr
