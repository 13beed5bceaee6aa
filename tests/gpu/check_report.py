"""Judges the committed reports of GPU runs: check_report.py ROOT.

Fails when a report has a failing case, or when a kernel of the plan's CUDA table is run by no case
of any report. Kernels whose sources have changed since are listed; that is no failure.
"""
import json
import pathlib
import re
import sys

import kernel_hashes

REPORTS = ("report-smoke.json", "report-full.json")
CANDIDATE = re.compile(r'"([a-z0-9]+(?:_[a-z0-9]+)+)"\s*,\s*(?:\.stage = )?MOE_STAGE_[A-Z]+')
OF_THE_CPU = ("cpu_", "avx2_", "avx512_", "amx_", "neon_")


def cuda_kernels(root):
    text = "".join(p.read_text() for p in sorted((root / "libmoe/plan").glob("*.cpp")))
    return sorted({n for n in CANDIDATE.findall(text) if not n.startswith(OF_THE_CPU)})


def failing(report):
    for case in report["cases"]:
        if not case["ok"]:
            yield f"{case['name']}: {'; '.join(case.get('failures', ['no reason given']))}"
        elif "metric" in case and not (
            case["metric"] is not None and case["metric"] <= case["limit"]
        ):
            yield f"{case['name']}: {case['metric']}, limit {case['limit']}"
    if not report["cases"]:
        yield "there are no cases"


def stale(root, report):
    now, then = kernel_hashes.kernel_hashes(root), report["sources"]
    return [path for path in sorted(now) if then.get(path) != now[path]]


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    problems, used, found = [], set(), False
    for name in REPORTS:
        path = root / "tests/gpu" / name
        if not path.is_file():
            print(f"{name}: not there")
            continue
        found = True
        report = json.loads(path.read_text())
        problems += [f"{name}: {problem}" for problem in failing(report)]
        used |= {kernel for case in report["cases"] for kernel in case["kernels"]}
        skipped = sum("skipped" in case for case in report["cases"])
        print(
            f"{name}: {report['device']}, commit {report['commit']}, {report['date']}: "
            f"{len(report['cases'])} cases, {skipped} skipped"
        )
        for source in stale(root, report):
            print(f"{name}: {source} has changed since")
    if not found:
        print("no GPU has reported yet")
        return 0
    problems += [f"no case runs {name}" for name in cuda_kernels(root) if name not in used]
    for problem in problems:
        print(f"FAIL {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
