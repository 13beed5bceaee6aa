"""Finds the library and the data, and writes which conformance cases passed.

MOE_LIBRARY names the library, else that of build/cpu or build/dev is taken. A test carries the cases that it shows:
@pytest.mark.case("ERR-01"). With --results FILE the outcome of each case is written as bindings/conformance/README.md says.

--device cuda, or MOE_TEST_DEVICE=cuda, runs the tests marked `on_device` alone, on the first GPU; results then have every case,
with the name of the GPU, and the reason where a case is none for it. Without it the same tests run on the CPU.
"""
import json
import os
import pathlib
import tomllib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
CASES_FILE = ROOT / "bindings/conformance/cases.toml"


def _find_library():
    built = [ROOT / "build" / preset / "lib/libmoe.so" for preset in ("cpu", "dev")]
    named = os.environ.get("MOE_LIBRARY")
    found = named or next((str(path) for path in built if path.exists()), None)
    if found is None:
        pytest.exit(f"no libmoe: set MOE_LIBRARY, or build the preset cpu ({built[0]})", returncode=2)
    os.environ["MOE_LIBRARY"] = found


_find_library()

with open(CASES_FILE, "rb") as _file:
    CASES = {case["id"]: case for case in tomllib.load(_file)["case"]}

# Why a case is none for a device: "" is any other.
NOT_ON_A_DEVICE = {
    "": "what it shows is the same on every device, and is shown on the CPU",
    "BIG-01": "needs 8 GiB of device memory",
    "CALL-05": "parallel_for serves plans for the CPU",
    "FWD-05": "the host tools work in host memory",
    "LIST-01": "formats are described without a device",
}
_outcomes = {}  # case -> list of (outcome, reason)


def pytest_addoption(parser):
    parser.addoption("--results", type=pathlib.Path, help="where to write the outcome of the conformance cases")
    device = os.environ.get("MOE_TEST_DEVICE", "cpu")
    parser.addoption("--device", choices=["cpu", "cuda"], default=device, help="where the tests marked on_device run")


def pytest_configure(config):
    config.addinivalue_line("markers", "case(*ids): the conformance cases that a test shows")
    config.addinivalue_line("markers", "on_device: runs on the device that --device names")
    if config.getoption("--device") == "cuda":
        _name_of("cuda")


def pytest_collection_modifyitems(config, items):
    for item in items:
        for name in cases_of(item):
            if name not in CASES:
                raise pytest.UsageError(f"{item.nodeid}: {name} is no case of {CASES_FILE.name}")
    if config.getoption("--device") == "cuda":
        others = [item for item in items if not item.get_closest_marker("on_device")]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


def cases_of(item):
    return [name for marker in item.iter_markers("case") for name in marker.args]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    report = (yield).get_result()
    if report.when != "call" and report.passed:
        return
    reason = item.name if report.failed else ""
    if report.skipped:
        reason = report.longrepr[2].removeprefix("Skipped: ")
    for name in cases_of(item):
        _outcomes.setdefault(name, []).append((report.outcome, reason))


def _result(name):
    outcomes = _outcomes[name]
    failed = [reason for outcome, reason in outcomes if outcome == "failed"]
    if failed:
        return {"case": name, "passed": False, "reason": ", ".join(failed)}
    skipped = [reason for outcome, reason in outcomes if outcome == "skipped"]
    if skipped:
        return {"case": name, "passed": None, "reason": "; ".join(skipped)}
    return {"case": name, "passed": True}


def _name_of(device):
    import moe

    try:
        return moe.device_info(device).name
    except moe.MoeError as error:
        pytest.exit(f"--device {device}: {error.message}", returncode=2)


def _results_on(device):
    """Every case, with the name of the device."""
    name = _name_of(device)
    for case in CASES.keys() - _outcomes.keys():
        _outcomes[case] = [("skipped", NOT_ON_A_DEVICE.get(case, NOT_ON_A_DEVICE[""]))]
    return [{**_result(case), "device": name} for case in CASES]


def pytest_sessionfinish(session):
    path, device = session.config.getoption("--results"), session.config.getoption("--device")
    if path and _outcomes:
        path.parent.mkdir(parents=True, exist_ok=True)
        results = [_result(name) for name in CASES if name in _outcomes] if device == "cpu" else _results_on(device)
        path.write_text("".join(json.dumps(one) + "\n" for one in results), encoding="utf-8")


@pytest.fixture(scope="session")
def device(request):
    """Where tests marked on_device run."""
    return request.config.getoption("--device")


@pytest.fixture
def case(request):
    """The data of the test's first case."""
    return CASES[cases_of(request.node)[0]]
