"""Puts the results of the bindings' conformance tests into one table.

usage: matrix.py [--write FILE] RESULTS.jsonl ...

Each file is called <binding>.jsonl; README.md beside this script says what its lines are. Prints the
table as Markdown. Fails when a case failed, when a case has no result, or one without a reason
where a reason is due, and when a line names no case of cases.toml.
"""
import argparse
import json
import pathlib
import sys
import tomllib

CASES = pathlib.Path(__file__).with_name("cases.toml")
BEGIN = "<!-- conformance matrix: written by bindings/conformance/matrix.py --write -->\n"
END = "<!-- end of conformance matrix -->"


def read_cases():
    with open(CASES, "rb") as file:
        cases = tomllib.load(file)["case"]
    ids = [case["id"] for case in cases]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        sys.exit(f"{CASES.name}: ids given twice: {', '.join(twice)}")
    return {case["id"]: case["says"] for case in cases}


def read_results(path):
    """The lines of one file by case; a line that cannot be read is an error with its number."""
    results = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            entry = json.loads(line)
            name, passed = entry["case"], entry["passed"]
        except (ValueError, KeyError, TypeError) as error:
            sys.exit(f"{path}:{number}: not a result: {error!r}")
        if name in results:
            sys.exit(f"{path}:{number}: {name} has a result already")
        if passed not in (True, False, None):
            sys.exit(f"{path}:{number}: passed is {passed!r}, not true, false or null")
        results[name] = (passed, entry.get("reason", ""))
    return results


def problems_of(binding, results, cases):
    for name in cases:
        if name not in results:
            yield f"{binding}: {name} has no result"
            continue
        passed, reason = results[name]
        if passed is False:
            yield f"{binding}: {name} failed: {reason or 'no reason given'}"
        if passed is None and not reason:
            yield f"{binding}: {name} was not run and no reason is given"
    for name in results.keys() - cases.keys():
        yield f"{binding}: {name} is no case of {CASES.name}"


def cell(result, notes):
    if result is None:
        return "?"
    passed, reason = result
    if passed:
        return "yes"
    if passed is False:
        return "**failed**"
    if reason not in notes:
        notes.append(reason)
    return f"- ({notes.index(reason) + 1})"


def table(bindings, cases):
    notes = []
    lines = [f"| case | {' | '.join(bindings)} | what must hold |", "|--" * (len(bindings) + 2) + "|"]
    for name, says in cases.items():
        cells = [cell(results.get(name), notes) for results in bindings.values()]
        lines.append(f"| {name} | {' | '.join(cells)} | {says} |")
    if notes:
        lines += [""] + [f"({number}) {reason}" for number, reason in enumerate(notes, 1)]
    return "\n".join(lines) + "\n"


def write(path, text):
    old = path.read_text(encoding="utf-8")
    before, begin, rest = old.partition(BEGIN)
    inside, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{path}: no place marked for the matrix")
    path.write_text(before + begin + "\n" + text + "\n" + end + after, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", type=pathlib.Path)
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    cases = read_cases()
    bindings = {path.stem: read_results(path) for path in sorted(options.results)}
    text = table(bindings, cases)
    print(text)
    if options.write:
        write(options.write, text)
    problems = [p for name, results in bindings.items() for p in problems_of(name, results, cases)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
