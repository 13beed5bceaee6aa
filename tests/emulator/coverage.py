"""Judges reports of emulated runs: coverage.py ROOT REPORT...

Fails when a kernel of the plan's CUDA table is run by no case of any of them.
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "tests/gpu"))

import check_report  # noqa: E402


def main():
    reports = [json.loads(pathlib.Path(path).read_text()) for path in sys.argv[2:]]
    used = {kernel for report in reports for case in report["cases"] for kernel in case["kernels"]}
    missing = [kernel for kernel in check_report.cuda_kernels(ROOT) if kernel not in used]
    for kernel in missing:
        print(f"FAIL no emulated case runs {kernel}")
    print(f"{sum(len(report['cases']) for report in reports)} cases, {len(used)} kernels")
    return 1 if missing or not used else 0


if __name__ == "__main__":
    sys.exit(main())
