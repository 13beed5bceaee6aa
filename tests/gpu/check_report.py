"""Judges the committed reports of GPU runs: check_report.py ROOT [--write].

Fails when a report has a failing case, or when a kernel of the plan's CUDA table is run by no case
of any report. Kernels whose sources have changed since are listed; that is no failure. --write also
writes the state of the reports into docs/support.md, between two marks.
"""
import json
import pathlib
import re
import sys

import kernel_hashes

PAGE = "docs/support.md"
REPORTS = ("report-smoke.json", "report-full.json")
MARKS = ("<!-- gpu reports: written by tests/gpu/check_report.py --write -->\n", "<!-- end of gpu reports -->")
CANDIDATE = re.compile(r'"([a-z0-9]+(?:_[a-z0-9]+)+)"\s*,\s*(?:\.stage = )?MOE_STAGE_[A-Z]+')
MOST_LISTED = 8  # kernel files that changed; of more the page has the number
OF_THE_CPU = ("cpu_", "avx2_", "avx512_")


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


def state_of(root, name):
    """The reports' state in a few lines of Markdown."""
    path = root / "tests/gpu" / name
    if not path.is_file():
        return f"- `{name}`: no report yet\n"
    report = json.loads(path.read_text())
    cases, n_bad = report["cases"], len(list(failing(report)))
    old = stale(root, report)
    lines = f"- `{name}`: {report['device']}, commit {report['commit']}, {report['date'][:10]}: {len(cases)} cases, "
    lines += f"{sum('skipped' in case for case in cases)} skipped, {n_bad} failing; "
    if not old:
        return lines + "no kernel file has changed since\n"
    if len(old) > MOST_LISTED:
        return lines + f"{len(old)} kernel files have changed since\n"
    return lines + "changed since:\n" + "".join(f"  - `{source}`\n" for source in old)


def with_state(root, text):
    """The page with the block between the marks as it should be."""
    before, begin, rest = text.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        sys.exit(f"{PAGE} lacks a mark: {MARKS[1] if begin else MARKS[0].strip()}")
    return before + begin + "".join(state_of(root, name) for name in REPORTS) + end + after


def check_page(root, rewrite):
    page = root / PAGE
    text = page.read_text()
    wanted = with_state(root, text)
    if text == wanted:
        return
    if rewrite:
        page.write_text(wanted)
    print(f"{PAGE}: rewritten" if rewrite else f"{PAGE}: the state of the reports is not today's (--write)")


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    check_page(root, "--write" in sys.argv[2:])
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
