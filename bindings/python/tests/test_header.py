"""The binding against moe.h: every function wrapped, every struct laid out as a C compiler does, every enum value."""
import ctypes
import pathlib
import re
import shutil
import subprocess

import pytest
from oracle import ROOT

import moe
from moe import abi, enums
from moe.prototypes import PROTOTYPES

HEADER = (ROOT / "include/moe/moe.h").read_text(encoding="utf-8")
TEXT = re.sub(r"/\*.*?\*/", " ", HEADER, flags=re.S)
PACKAGE = pathlib.Path(moe.__file__).parent
DECLARATION = re.compile(r"MOE_API\s+([^;()]*?)\s*MOE_CALL\s+(\w+)\s*\((.*?)\)\s*MOE_NOEXCEPT;", re.S)
STRUCT = re.compile(r"typedef struct (\w+) \{(.*?)\n\} \1;", re.S)
SCALARS = {"int32_t": abi.I32, "uint32_t": abi.U32, "int64_t": abi.I64, "uint64_t": abi.U64, "moe_status": abi.I32}
STRUCTS = {one.c_name(): one for one in vars(abi).values() if isinstance(one, type) and issubclass(one, abi.Struct)}
STRUCTS.pop("moe_struct")


def declared_functions():
    return {name: (result, arguments) for result, name, arguments in DECLARATION.findall(TEXT)}


def c_type(text):
    text = " ".join(text.split())
    if "*" in text or "[" in text:
        return abi.TEXT if re.fullmatch(r"const char \*\w*", text) else abi.PTR
    kind = text.split(" ")[0]
    return SCALARS[kind] if kind in SCALARS else abi.I32  # the rest are enums


def test_every_function_has_its_prototype():
    functions = declared_functions()
    assert len(functions) >= 50
    assert set(PROTOTYPES) == set(functions)
    for name, (result, arguments) in functions.items():
        wanted_result = None if result.strip() == "void" else c_type(result)
        wanted = [] if arguments.strip() == "void" else [c_type(one) for one in arguments.split(",")]
        assert PROTOTYPES[name] == (wanted_result, tuple(wanted)), name


def not_wrapped():
    """The names in the table of README.md, each with a reason."""
    rows = re.findall(r"^\| `(moe_\w+)` \| (.+) \|$", (PACKAGE.parents[1] / "README.md").read_text(), re.M)
    assert all(reason.strip() for _, reason in rows)
    return {name for name, _ in rows}


def test_every_function_is_wrapped_or_listed_with_a_reason():
    source = "".join(path.read_text() for path in PACKAGE.glob("*.py") if path.name != "prototypes.py")
    used = set(re.findall(r"\"(moe_\w+)\"", source))
    assert not_wrapped() == set(declared_functions()) - used


def test_every_struct_has_the_fields_of_the_header():
    found = dict(STRUCT.findall(TEXT))
    assert set(found) == set(STRUCTS)
    for name, body in found.items():
        declarations = [" ".join(one.split()) for one in body.split(";") if one.strip()]
        fields = [re.search(r"\(MOE_CALL \*(\w+)\)|(\w+)(?:\[\d+\])?$", one) for one in declarations]
        assert [match[1] or match[2] for match in fields] == [one[0] for one in STRUCTS[name]._fields_], name


def layout_program():
    lines = ['#include "moe/moe.h"', "#include <stdio.h>", "int main(void) {"]
    for name, struct in STRUCTS.items():
        lines.append(f'    printf("{name} %zu\\n", sizeof({name}));')
        for field in struct._fields_:
            place = f"offsetof({name}, {field[0]}), sizeof((({name} *)0)->{field[0]})"
            lines.append(f'    printf("{name}.{field[0]} %zu %zu\\n", {place});')
    return "\n".join([*lines, "    return 0;", "}", ""])


def test_layouts_are_those_of_a_c_compiler(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("there is no C compiler")
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text(layout_program())
    subprocess.run([compiler, "-I", ROOT / "include", source, "-o", program], check=True)
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    ours = []
    for name, struct in STRUCTS.items():
        ours.append(f"{name} {ctypes.sizeof(struct)}")
        for field, *_ in struct._fields_:
            place = getattr(struct, field)
            ours.append(f"{name}.{field} {place.offset} {place.size}")
    assert len(ours) > 300
    assert output.splitlines() == ours


def header_enums():
    named = re.findall(r"typedef enum (\w+) MOE_ENUM_BASE \{(.*?)\}", TEXT, re.S)
    unnamed = [("", body) for body in re.findall(r"\nenum \{(.*?)\}", TEXT, re.S)]
    return [re.findall(r"(MOE_\w+)\s*=\s*(-?\w+)", body) for _, body in named + unnamed]


def test_every_enum_value_is_that_of_the_header():
    classes = [one for one in vars(enums).values() if isinstance(one, type) and issubclass(one, enums.OpenEnum)]
    ours = {f"{one.prefix}{member.name}": member.value for one in classes for member in one}
    ours["MOE_OK"] = ours.pop("MOE_ERROR_OK")
    wanted = {name: int(value, 0) for values in header_enums() for name, value in values}
    assert {name: value for name, value in wanted.items() if not name.endswith("FORCE_INT32")} == ours


def test_numbers_are_those_of_the_header():
    defined = dict(re.findall(r"#define (MOE_\w+) \(?(-?\d+)\)?", HEADER))
    assert abi.ABI_VERSION == int(defined["MOE_ABI_VERSION"])
    assert abi.ROLE_COUNT == int(defined["MOE_ROLE_COUNT"])
    assert abi.ALL_EXPERTS == int(defined["MOE_ALL_EXPERTS"])
    numbers = [defined[f"MOE_VERSION_{part}"] for part in ("MAJOR", "MINOR", "PATCH")]
    assert moe.__version__ == ".".join(numbers)
    assert f'version = "{moe.__version__}"' in (PACKAGE.parents[1] / "pyproject.toml").read_text()


def test_a_struct_refuses_fields_that_it_lacks():
    with pytest.raises(AttributeError, match="max_tokenz"):
        abi.PlanDesc(max_tokenz=1)
    assert abi.PlanDesc().struct_size == ctypes.sizeof(abi.PlanDesc)
