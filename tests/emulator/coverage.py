"""Judges reports of emulated runs: coverage.py ROOT REPORT...

It fails when no case of any report launches a kernel of the plan's CUDA table. It also fails when a kernel that is not Hopper's own
runs on no other device.
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tests/gpu"))

import check_report  # noqa: E402


def main():
    reports = [json.loads(pathlib.Path(path).read_text()) for path in sys.argv[2:]]
    elsewhere = [report for report in reports if not report["device"].startswith("H200")]
    kernels = check_report.cuda_kernels(ROOT)
    hopper = [name for name in kernels if name.startswith("sm90_")]
    portable = [name for name in kernels if name not in hopper]
    problems = [f"no emulated case runs {name}" for name in check_report.missing(hopper, reports)]
    problems += [f"no emulated case runs {name} on a device other than Hopper"
                 for name in check_report.missing(portable, elsewhere)]
    if not kernels:
        problems.append("no kernel was found in the plan's CUDA table")
    for problem in problems:
        print(f"FAIL {problem}")
    used = check_report.launched_by(reports)
    print(f"{sum(len(report['cases']) for report in reports)} cases, {len(used)} kernels")
    for path, report in zip(sys.argv[2:], reports):
        print(f"{pathlib.Path(path).name}: {check_report.launch_checks(report)}")
    return 1 if problems or not used else 0


if __name__ == "__main__":
    sys.exit(main())
