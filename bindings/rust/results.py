"""Reads what `cargo test` prints and writes which conformance cases passed, as bindings/conformance/README.md says.

usage: results.py OUT.jsonl LOG ...

The test err_01_each_status shows the case ERR-01. A case is passed when all its tests in all logs are; one whose tests were
all ignored has their reason.
"""
import json
import pathlib
import re
import sys
import tomllib

CASES = pathlib.Path(__file__).parents[1] / "conformance/cases.toml"
LINE = re.compile(r"^test (?:\w+::)*(([a-z]+)_(\d\d)_\w+) \.\.\. (ok|FAILED|ignored(?:, (.*))?)$", re.M)


def outcomes_of(logs):
    """Case -> list of (test, outcome, reason)."""
    found = {}
    for log in logs:
        for test, area, number, outcome, reason in LINE.findall(log):
            found.setdefault(f"{area.upper()}-{number}", []).append((test, outcome, reason))
    return found


def result(name, outcomes):
    failed = sorted({test for test, outcome, _ in outcomes if outcome == "FAILED"})
    if failed:
        return {"case": name, "passed": False, "reason": ", ".join(failed)}
    ignored = sorted({reason for _, outcome, reason in outcomes if outcome.startswith("ignored")})
    if ignored:
        return {"case": name, "passed": None, "reason": "; ".join(ignored)}
    return {"case": name, "passed": True}


def main():
    out, *logs = map(pathlib.Path, sys.argv[1:])
    with open(CASES, "rb") as file:
        order = [case["id"] for case in tomllib.load(file)["case"]]
    found = outcomes_of(log.read_text(encoding="utf-8") for log in logs)
    names = [name for name in order if name in found] + sorted(found.keys() - set(order))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(json.dumps(result(name, found[name])) + "\n" for name in names), encoding="utf-8")


if __name__ == "__main__":
    main()
