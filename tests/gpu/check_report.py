"""Judges the committed reports of GPU runs: check_report.py ROOT [--readme].

Fails when a report has a failing case, or when a kernel of the plan's CUDA table is launched by no case
of any report. What was launched a library knows that has the launch hook; of a report without it, what the
plans named counts in its place, and that is said. Kernels whose sources have changed since are listed; that is no failure. --readme also
writes the state of the reports into README.md, between two marks.
"""
import fnmatch
import json
import pathlib
import re
import sys

import kernel_hashes

REPORTS = ("report-smoke.json", "report-full.json")
MARKS = ("<!-- gpu reports: written by tests/gpu/check_report.py --readme -->\n", "<!-- end of gpu reports -->")
CANDIDATE = re.compile(r'"([a-z0-9]+(?:_[a-z0-9+{}]+)+)"\s*,\s*(?:\.stage = )?MOE_STAGE_([A-Z]+)')
# Stages whose names are those of kernels. The others are several kernels with names of their own: that a plan named one must do.
GEMM_STAGES = ("EXPERTS", "FINISH")
OF_THE_CPU = ("cpu_", "avx2_", "avx512_")


def cuda_kernels(root):
    """Names of the plan's CUDA table, each with whether it is launched under that name."""
    text = "".join(p.read_text() for p in sorted((root / "libmoe/plan").glob("*.cpp")))
    found = {name: stage in GEMM_STAGES for name, stage in CANDIDATE.findall(text)}
    return {name: found[name] for name in sorted(found) if not name.startswith(OF_THE_CPU)}


def kernels_of(reports, is_launched):
    """Kernels that ran; or those that plans named, for the other stages and where the library did not say what ran."""
    used = set()
    for report in reports:
        key = "launched" if is_launched and report.get("launches_recorded") else "kernels"
        used |= {kernel for case in report["cases"] for kernel in case[key]}
    return used


def ran(kernel, used):
    """A name of the table stands for kernels whose names continue it; {} in it for a part of a name."""
    pattern = kernel.replace("{}", "*")
    return any(fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, pattern + "_*") for name in used)


def missing(kernels, reports):
    """Those of a table that no case of the reports runs."""
    used = {is_launched: kernels_of(reports, is_launched) for is_launched in (False, True)}
    return [name for name, is_launched in kernels.items() if not ran(name, used[is_launched])]


def launch_checks(report):
    """In words, how many checks compared plans with launches: none at all must show."""
    if not report.get("launches_recorded"):
        return "launches are not recorded: kernels are those that plans name"
    total = {key: sum(case.get(key, 0) for case in report["cases"]) for key in ("named_checked", "functions_checked")}
    return f"{total['named_checked']} kernels that plans name were launched, {total['functions_checked']} functions are of their names' family and type"


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
    if report.get("launches_recorded") and report["extent"] == "full" and not any(
        case.get("named_checked") for case in report["cases"]
    ):
        yield "launches are recorded, and none was compared with a plan"


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
    lines += "changed since:\n" if old else "no kernel file has changed since\n"
    return lines + "".join(f"  - `{source}`\n" for source in old)


def with_state(root, text):
    """README.md with the block between the marks as it should be."""
    before, begin, rest = text.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        sys.exit(f"README.md lacks a mark: {MARKS[1] if begin else MARKS[0].strip()}")
    return before + begin + "".join(state_of(root, name) for name in REPORTS) + end + after


def check_readme(root, rewrite):
    readme = root / "README.md"
    text = readme.read_text()
    wanted = with_state(root, text)
    if text == wanted:
        return
    if rewrite:
        readme.write_text(wanted)
    print("README.md: rewritten" if rewrite else "README.md: the state of the reports is not today's (--readme)")


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    check_readme(root, "--readme" in sys.argv[2:])
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
    problems += [f"no case runs {name}" for name in missing(kernels, reports)]
    if not kernels:
        problems.append("no kernel was found in the plan's CUDA table")
    for problem in problems:
        print(f"FAIL {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
