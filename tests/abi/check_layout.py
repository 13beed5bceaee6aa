"""Compares moe.h, as a compiler sees it, with layout.txt: every function, struct, field, enum value and callback.

usage: check_layout.py HEADER [--golden FILE] [--update]
Anything new fails too: --update adds it, and that is the moment to think. It never changes or takes away a line of the same
MOE_ABI_VERSION, except the size of a struct that has grown at its end. The rules for structs that no compiler knows are
checked here as well: struct_size first, no hole between fields and none at the end, 32-bit enums.
"""
import argparse
import pathlib
import re
import tempfile

from declarations import declarations
from probe import layout_text

GOLDEN = pathlib.Path(__file__).with_name("layout.txt")
# The number of roles grows with the roles: arrays by role carry their length.
GROWING = ("struct ", "macro MOE_ROLE_COUNT")


def current_layout(header):
    include = pathlib.Path(header).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        return layout_text(declarations(header), include, folder)


def by_subject(text):
    """{"field moe_slice.partial": the line}; the first two words of a line are its subject."""
    return {" ".join(line.split()[:2]): line for line in text.splitlines() if line and not line.startswith("#")}


def structs(lines):
    """(name, size, [(field, offset, size, type)])"""
    for subject, line in lines.items():
        if subject.startswith("struct "):
            name = subject.split()[1]
            yield name, int(line.split()[3]), [
                (field[0], int(field[1]), int(field[2]), field[3]) for other, text in lines.items()
                for field in re.findall(rf"^field {name}\.(\w+) at (\d+) size (\d+) (.*)$", text)]


def rule_breaks(lines):
    for name, size, fields in structs(lines):
        if fields[0] != ("struct_size", 0, 4, "uint32_t"):
            yield f"{name} must begin with uint32_t struct_size"
        end = 0
        for field, offset, width, type_ in fields:
            if offset != end:
                yield f"{name}: a hole of {offset - end} bytes before {field}; name it reserved"
            if re.search(r"\b(bool|_Bool|long|size_t|unsigned|int)\b", type_):
                yield f"{name}.{field}: {type_} differs between platforms or compilers"
            end = offset + width
        if end != size:
            yield f"{name}: a hole of {size - end} bytes at the end, which a later field would fill; name it reserved"
    for subject, line in lines.items():
        if subject.startswith("enum ") and not line.endswith(" size 4"):
            yield f"{line}: enums are 32 bits wide"


def may_change(old, new):
    """A struct may grow, and nothing else of it: name, words and alignment stay."""
    numbers = re.compile(r"(?<=size )\d+|(?<=COUNT )\d+")
    return (old.startswith(GROWING) and numbers.sub("", old) == numbers.sub("", new)
            and int(numbers.search(old)[0]) < int(numbers.search(new)[0]))


def differences(golden, now):
    """(what is broken, what has only been added)"""
    broken = [f"gone: {line}" for subject, line in golden.items() if subject not in now]
    added = [f"new: {line}" for subject, line in now.items() if subject not in golden]
    grown = {name for name, _, _ in structs(golden) if f"struct {name}" in now}
    for subject, line in golden.items():
        if subject in now and now[subject] != line:
            (added if may_change(line, now[subject]) else broken).append(f"was: {line}\n  is now: {now[subject]}")
    for name in grown:
        size = int(golden[f"struct {name}"].split()[3])
        broken += [f"inside what {name} was: {line}" for subject, line in now.items()
                   if subject.startswith(f"field {name}.") and subject not in golden
                   and int(line.split()[3]) < size]
    return broken, added


def abi(lines):
    return lines.get("macro MOE_ABI_VERSION")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("header")
    parser.add_argument("--golden", type=pathlib.Path, default=GOLDEN)
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    text = current_layout(args.header)
    now = by_subject(text)
    golden = by_subject(args.golden.read_text(encoding="utf-8")) if args.golden.exists() else {}
    broken, added = differences(golden, now)
    if abi(golden) != abi(now) and args.update:
        broken = []
    problems = [*rule_breaks(now), *broken, *([] if args.update else added)]
    for problem in problems:
        print(problem)
    if args.update and not problems:
        args.golden.write_text("# moe.h on a 64-bit machine, written by check_layout.py --update.\n" + text, encoding="utf-8")
    raise SystemExit(1 if problems else 0)


if __name__ == "__main__":
    main()
