"""Judges the committed reports of GPU runs: check_report.py ROOT [--write].

Fails when a report has a failing case, or when a family of the plan's CUDA table is launched by no case of
any report that recorded launches. Kernels whose sources have changed since are listed; that is no failure. --write also
writes the state of the reports into docs/support.md, between two marks.
"""
import fnmatch
import json
import pathlib
import re
import sys

import kernel_hashes

PAGE = "docs/support.md"
REPORTS = ("report-smoke.json", "report-full.json", "report-portable.json")
MARKS = ("<!-- gpu reports: written by tests/gpu/check_report.py --write -->\n", "<!-- end of gpu reports -->")
# The words of a row with a family: architecture, activation, family. The weight and the stage complete a kernel's name.
WORDS = re.compile(r'\{"(sm[0-9]+)", "([a-z0-9]+)", "([a-z0-9_]+)"\}')
MOST_LISTED = 8  # kernel files that changed; of more the page has the number
FORCES = ("stage/experts/row_launches/", "fp8/")  # cases with a kernel_filter of their own, under which Hopper's may run


def cuda_kernels(root):
    """Globs of the kernels that the rows of the plan's CUDA table launch."""
    text = (root / "libmoe/plan/candidates.cpp").read_text()
    return sorted({f"{arch}_*_{activation}_{family}_*" for arch, activation, family in WORDS.findall(text)})


def launched_by(reports):
    """Kernels that ran, of the reports that recorded it."""
    cases = [case for report in reports if report.get("launches_recorded") for case in report["cases"]]
    return {kernel for case in cases for kernel in case.get("launched", ())}


def missing(kernels, reports):
    """Those of a table that no case of the reports launches."""
    launched = launched_by(reports)
    return [glob for glob in kernels if not any(fnmatch.fnmatchcase(name, glob) for name in launched)]


def launch_checks(report):
    """In words, how many checks compared plans with launches: none at all must show."""
    if not report.get("launches_recorded"):
        return "launches are not recorded: nothing says which kernels ran"
    total = {key: sum(case.get(key, 0) for case in report["cases"]) for key in ("named_checked", "functions_checked")}
    return f"{total['named_checked']} kernels that plans name were launched, {total['functions_checked']} functions are of their names' family and type"


def forbidden(report):
    """Kernels that ran although the run forbade them ("-sm90_*"), but in cases with filters of their own."""
    globs = [item[1:] for item in report.get("kernel_filter", "").split(",") if item.startswith("-")]
    for case in report["cases"]:
        for name in case.get("launched", ()):
            if not case["name"].startswith(FORCES) and any(fnmatch.fnmatchcase(name, glob) for glob in globs):
                yield f"{case['name']}: {name} ran"


def failing(report):
    yield from forbidden(report)
    for case in report["cases"]:
        if not case["ok"]:
            yield f"{case['name']}: {'; '.join(case.get('failures', ['no reason given']))}"
        elif "metric" in case and not (
            case["metric"] is not None and case["metric"] <= case["limit"]
        ):
            yield f"{case['name']}: {case['metric']}, limit {case['limit']}"
    if not report["cases"]:
        yield "there are no cases"
    if report.get("launches_recorded") and report["extent"] == "full":
        for key in ("named_checked", "functions_checked"):
            if not any(case.get(key) for case in report["cases"]):
                yield f"launches are recorded, and {key} is 0 in every case"


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
    problems, reports = [], []
    for name in REPORTS:
        path = root / "tests/gpu" / name
        if not path.is_file():
            print(f"{name}: not there")
            continue
        report = json.loads(path.read_text())
        reports.append(report)
        problems += [f"{name}: {problem}" for problem in failing(report)]
        print(f"{name}: {launch_checks(report)}")
        skipped = sum("skipped" in case for case in report["cases"])
        print(
            f"{name}: {report['device']}, commit {report['commit']}, {report['date']}: "
            f"{len(report['cases'])} cases, {skipped} skipped"
        )
        for source in stale(root, report):
            print(f"{name}: {source} has changed since")
    if not reports:
        print("no GPU has reported yet")
        return 0
    kernels = cuda_kernels(root)
    if any(report.get("launches_recorded") for report in reports):
        problems += [f"no case runs {name}" for name in missing(kernels, reports)]
    if not kernels:
        problems.append("no kernel was found in the plan's CUDA table")
    for problem in problems:
        print(f"FAIL {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
