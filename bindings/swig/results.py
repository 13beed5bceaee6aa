"""Makes conformance results of what the tests of a language said, and looks at the explanations that they wrote.

usage: results.py LANGUAGE LOG FOLDER RESULTS.jsonl

A line of the log is "pass ID", "fail ID why", or "done ID..": cases that pass unless another line says that they failed.
"""
import json
import pathlib
import sys
import tomllib

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]

CALLBACKS = "callbacks are C's alone in what SWIG makes"
SKIPPED = {
    "LIFE-04": "handles end with the garbage, but no allocator hook of the language can count their bytes",
    "THR-02": "to have a workspace in use for sure needs a callback",
    "CALL-01": CALLBACKS,
    "CALL-02": CALLBACKS,
    "CALL-03": CALLBACKS,
    "CALL-04": CALLBACKS,
    "CALL-05": CALLBACKS,
    "CALL-06": "what a load in the background refers to must stay until it is done, which its struct cannot tell the garbage collector",
    "MEM-01": "memory that a struct refers to is a buffer of the host",
    "BAD-01": "a struct holds an address and strides, as in C: lengths are the caller's to check",
}
SKIPPED_BY = {
    "java": {"BIG-01": "a direct buffer ends at 2^31 bytes"},
    "lua": {
        "ERR-04": "a Lua state has one thread",
        "THR-01": "a Lua state has one thread",
        "VER-02": "Lua resolves every function when it loads a module, so a library without them fails before the ABI is compared",
    },
}


def read_log(path):
    failed, passed = {}, []
    for line in path.read_text(encoding="utf-8").splitlines():
        word, *rest = line.split(" ", 2)
        if rest and "-" not in rest[0] and word == "pass":
            continue  # a test of no case
        if word == "pass":
            passed.append(rest[0])
        elif word == "fail":
            failed.setdefault(rest[0], rest[1] if len(rest) > 1 else "failed")
        elif word == "done":
            passed += line.split()[1:]
    return failed, passed


def problem_of_schema(case, folder):
    text = json.loads((folder / "explain.json").read_text(encoding="utf-8"))
    schema = json.loads((ROOT / case["schema_file"]).read_text(encoding="utf-8"))
    errors = list(jsonschema.Draft202012Validator(schema).iter_errors(text))
    return errors[0].message if errors else None


def problem_of_defaults(case, folder):
    for x_type, wanted in case["defaults"].items():
        facts = json.loads((folder / f"explain-{x_type}.json").read_text(encoding="utf-8"))
        found = {name: facts["types"][name] for name in wanted}
        if found != wanted or facts["types"]["x"] != x_type or not facts["slice"]["whole"]:
            return f"{x_type}: {found}"
        if len(facts["stages"]) != 5 or not all(stage["used"] for stage in facts["stages"]):
            return f"{x_type}: not all stages"
    return None


def main():
    language, log, folder, results = sys.argv[1], *map(pathlib.Path, sys.argv[2:])
    with open(ROOT / "bindings/conformance/cases.toml", "rb") as file:
        cases = {case["id"]: case for case in tomllib.load(file)["case"]}
    failed, passed = read_log(log)
    for name, look in {"PLAN-01": problem_of_schema, "PLAN-02": problem_of_defaults}.items():
        problem = look(cases[name], folder) if name in passed else None
        if problem:
            failed[name] = problem
    skipped = SKIPPED | SKIPPED_BY[language]
    with open(results, "w", encoding="utf-8") as file:
        for name in cases:
            line = {"case": name}
            if name in failed:
                line |= {"passed": False, "reason": failed[name]}
            elif name in passed:
                line["passed"] = True
            elif name in skipped:
                line |= {"passed": None, "reason": skipped[name]}
            else:
                continue
            file.write(json.dumps(line) + "\n")
    print(f"{language}: {len(set(passed) - set(failed))} passed, {len(failed)} failed, {len(skipped)} not applicable")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
