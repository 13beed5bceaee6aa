"""Judges reports of emulated runs: coverage.py ROOT REPORT...

It fails when no case of any report runs a kernel of the plan's CUDA table. It also fails when a kernel that is not Hopper's own
runs on no other device.
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tests/gpu"))

import check_report  # noqa: E402


def kernels_of(reports):
    return {kernel for report in reports for case in report["cases"] for kernel in case["kernels"]}


def main():
    reports = [json.loads(pathlib.Path(path).read_text()) for path in sys.argv[2:]]
    used = kernels_of(reports)
    elsewhere = kernels_of(report for report in reports if not report["device"].startswith("H200"))
    missing = [kernel for kernel in check_report.cuda_kernels(ROOT)
               if kernel not in (used if kernel.startswith("sm90_") else elsewhere)]
    for kernel in missing:
        print(f"FAIL no emulated case runs {kernel}{'' if kernel.startswith('sm90_') else ' on a device other than Hopper'}")
    print(f"{sum(len(report['cases']) for report in reports)} cases, {len(used)} kernels")
    return 1 if missing or not used else 0


if __name__ == "__main__":
    sys.exit(main())
