"""Puts the results of the bindings' conformance tests into one table.

usage: matrix.py [--write FILE | --check FILE] RESULTS.jsonl ...

Each file is called <binding>.jsonl; README.md beside this script says what its lines are. Prints the
table as Markdown. Fails when a case failed, when a case has no result, or one without a reason
where a reason is due, and when a line or a file names no case or no binding of cases.toml. With
--write and --check also when a binding has no file; --check when the table in FILE is another one.
"""
import argparse
import difflib
import json
import pathlib
import sys
import tomllib

CASES = pathlib.Path(__file__).with_name("cases.toml")
BEGIN = "<!-- conformance matrix: written by bindings/conformance/matrix.py --write -->\n"
END = "<!-- end of conformance matrix -->"


def read_cases():
    with open(CASES, "rb") as file:
        listed = tomllib.load(file)
    cases = listed["case"]
    ids = [case["id"] for case in cases]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        sys.exit(f"{CASES.name}: ids given twice: {', '.join(twice)}")
    return listed["bindings"], {case["id"]: case for case in cases}


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


def read_bindings(paths, expected):
    """Binding -> results, in the order of cases.toml; and what is wrong with the list of files."""
    files = {path.stem: path for path in paths}
    bindings = {name: read_results(files[name]) for name in expected if name in files}
    return bindings, [f"{name} is no binding of {CASES.name}" for name in sorted(files.keys() - bindings.keys())]


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
    for name, case in cases.items():
        cells = [cell(results.get(name), notes) for results in bindings.values()]
        lines.append(f"| {name} | {' | '.join(cells)} | {case['says']} |")
    if notes:
        lines += [""] + [f"({number}) {reason}" for number, reason in enumerate(notes, 1)]
    return "\n".join(lines) + "\n"


def around_table(path):
    """What stands before, between and behind the two lines that mark the table's place."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    inside, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{path}: no place marked for the matrix")
    return before + begin, inside, end + after


def write(path, text):
    before, _, after = around_table(path)
    path.write_text(f"{before}\n{text}\n{after}", encoding="utf-8")


def cells_of(table_text):
    """(case, binding) -> cell of a written table."""
    rows = [line.split(" | ") for line in table_text.splitlines() if line.startswith("| ")]
    names = rows[0][1:-1] if rows else []
    return {(row[0][2:], name): one for row in rows[1:] for name, one in zip(names, row[1:])}


def as_elsewhere(bindings, cases, written):
    """The results, but passed where a machine may lack what the case needs and the table says that it passes elsewhere."""

    def one(binding, name, result):
        lacks = result[0] is None and "may_lack" in cases.get(name, {})
        return (True, "") if lacks and written.get((name, binding)) == "yes" else result

    return {
        binding: {name: one(binding, name, result) for name, result in results.items()}
        for binding, results in bindings.items()
    }


def differences(path, bindings, cases):
    _, inside, _ = around_table(path)
    fresh = table(as_elsewhere(bindings, cases, cells_of(inside)), cases)
    lines = inside.strip("\n").splitlines(), fresh.strip("\n").splitlines()
    changed = [line for line in difflib.unified_diff(*lines, n=0, lineterm="") if line[:3] not in ("---", "+++")]
    return [f"the table in {path} is another one; matrix.py --write puts this one there:", *changed] if changed else []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", type=pathlib.Path)
    committed = parser.add_mutually_exclusive_group()
    committed.add_argument("--write", type=pathlib.Path, metavar="FILE")
    committed.add_argument("--check", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    expected, cases = read_cases()
    bindings, problems = read_bindings(options.results, expected)
    if options.write or options.check:
        problems += [f"{name} has no results" for name in expected if name not in bindings]
    is_whole = not problems
    text = table(bindings, cases)
    print(text)
    problems += [p for name, results in bindings.items() for p in problems_of(name, results, cases)]
    if options.write and not problems:
        write(options.write, text)
    if options.check and is_whole:
        problems += differences(options.check, bindings, cases)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
