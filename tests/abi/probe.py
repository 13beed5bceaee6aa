"""C programs made from moe.h that say what a compiler makes of it.

layout_text: offsets, sizes and values, printed by a program. probe_library: a libmoe.so of empty functions with debug
information and the version node of moe.map; it has every type of the header and is compiled in a moment.
"""
import pathlib
import subprocess

COMPILE = ["gcc", "-std=c99", "-Wall", "-Werror"]


def compiled(source, include, output, *options):
    path = pathlib.Path(output).with_suffix(".c")
    path.write_text(source, encoding="utf-8")
    command = [*COMPILE, f"-ffile-prefix-map={path.parent}=probe", f"-I{include}", str(path), "-o", str(output), *options]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(run.stderr)
    return str(output)


def signature(result, parameters):
    return f"{result} ({', '.join(type_ for type_, _ in parameters) or 'void'})"


def struct_lines(found):
    for name, fields in found.structs.items():
        yield (f'printf("struct {name} size %zu align %zu\\n", sizeof({name}), '
               f'offsetof(struct {{ char first; {name} second; }}, second));')
        for type_, field in fields:
            yield (f'printf("field {name}.{field} at %zu size %zu {type_}\\n", offsetof({name}, {field}), '
                   f'sizeof((({name} *)0)->{field}));')


def enum_lines(found):
    for name, constants in found.enums.items():
        if name:
            yield f'printf("enum {name} size %zu\\n", sizeof({name}));'
        for constant in constants:
            yield f'printf("value {constant} %lld\\n", (long long){constant});'


def other_lines(found):
    for name, type_ in found.aliases.items():
        yield f'printf("alias {name} size %zu {type_}\\n", sizeof({name}));'
    for name in found.handles:
        yield f'puts("handle {name}");'
    for name, (result, parameters) in {**found.callbacks, **found.functions}.items():
        kind = "function" if name in found.functions else "callback"
        yield f'puts("{kind} {name} {signature(result, parameters)}");'
    for name in found.macros:
        if not name.startswith("MOE_VERSION_"):
            yield f'printf("macro {name} %lld\\n", (long long)({name}));'


def layout_text(found, include, folder):
    lines = [*other_lines(found), *enum_lines(found), *struct_lines(found)]
    source = ("#include <moe/moe.h>\n#include <stdio.h>\nint main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n")
    program = compiled(source, include, pathlib.Path(folder) / "layout")
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def parameter_text(type_, name):
    if "(*)" in type_:
        return type_.replace("(*)", f"(*{name})")
    base, bracket, length = type_.partition("[")
    return f"{base} {name}{bracket}{length}"


def stub(name, result, parameters):
    text = ", ".join(parameter_text(type_, parameter) for type_, parameter in parameters) or "void"
    body = " ".join(f"(void){parameter};" for _, parameter in parameters)
    return f"MOE_API {result} MOE_CALL {name}({text}) {{ {body} {'' if result == 'void' else 'return 0;'} }}"


def probe_source(found, without=(), extra=""):
    stubs = [stub(name, *function) for name, function in found.functions.items() if name not in without]
    return "#include <moe/moe.h>\n" + "\n".join(stubs) + f"\n{extra}\n"


def probe_library(found, include, folder, version_script, *options, without=(), extra=""):
    return compiled(probe_source(found, without, extra), include, pathlib.Path(folder) / "libmoe.so", "-g", "-O0", "-fPIC",
                    "-shared", f"-Wl,--version-script={version_script}", *options)


def probe_archive(found, include, folder, without=(), extra=""):
    """What libmoe.a is to a linker: one object whose functions are global and hidden."""
    folder = pathlib.Path(folder)
    member = compiled(probe_source(found, without, extra), include, folder / "member.o", "-c", "-DMOE_STATIC",
                      "-fvisibility=hidden")
    subprocess.run(["ar", "rc", str(folder / "libmoe.a"), member], check=True)
    return str(folder / "libmoe.a")
