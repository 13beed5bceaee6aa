"""All GPU cases in several processes, and one report of them.

    run.py PROGRAM [--jobs N] [--report FILE] [options of moe-gpu-test ...]

Cases of a group, the first part of their names, share a process; most of their time is the
reference's on the CPU. Prints the failures and a line for each group; 1 if a case failed.
"""
import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile

# What takes longest comes first.
FIRST = ("large", "families", "format", "layer", "models", "random", "triton", "graph")


def groups_of(program, options):
    listed = subprocess.run([program, "--list", *options], capture_output=True, text=True, check=True)
    groups = dict.fromkeys(name.split("/")[0] for name in listed.stdout.split())
    return sorted(groups, key=lambda group: FIRST.index(group) if group in FIRST else len(FIRST))


def run_group(program, options, group, report):
    command = [program, "--quiet", "--filter", f"{group}/*", "--report", str(report), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = (done.stdout + done.stderr).strip().split("\n")
    print("".join(f"{line}\n" for line in lines[:-1]) + f"{group}: {lines[-1]}", flush=True)
    return done.returncode == 0 and report.is_file()


def write_merged(reports, extent, path):
    merged = json.loads(reports[0].read_text())
    cases = [case for report in reports for case in json.loads(report.read_text())["cases"]]
    merged["extent"] = extent
    merged["cases"] = []
    head = json.dumps(merged, indent=2).rsplit("[]", 1)[0]
    rows = ",\n".join("    " + json.dumps(case) for case in cases)
    path.write_text(f"{head}[\n{rows}\n  ]\n}}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--report", type=pathlib.Path)
    arguments, options = parser.parse_known_args()
    groups = groups_of(arguments.program, [o for o in options if o == "--smoke"])
    with tempfile.TemporaryDirectory() as folder:
        reports = [pathlib.Path(folder) / f"{group}.json" for group in groups]
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            run = lambda group, report: run_group(arguments.program, options, group, report)
            good = list(pool.map(run, groups, reports))
        if arguments.report and all(report.is_file() for report in reports):
            write_merged(reports, "smoke" if "--smoke" in options else "full", arguments.report)
    print(f"{sum(good)} of {len(groups)} groups passed")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
