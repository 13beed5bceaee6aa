"""moe.h as data: what its functions, structs, enums, callbacks and numbers are called and made of.

The compiler's preprocessor removes comments and macros; what is left of this header is simple enough for patterns. Whatever
they cannot read is an error, so that no declaration is left out of a golden file in silence.
"""
import dataclasses
import re
import subprocess


@dataclasses.dataclass
class Declarations:
    functions: dict  # name -> (result, [(type, name)])
    callbacks: dict  # likewise
    structs: dict    # name -> [(type, name)], in order
    enums: dict      # name, or "" for the nameless -> [constant]
    aliases: dict    # typedef name -> type
    handles: list    # incomplete structs
    macros: list     # names of macros with a number as value


def preprocessed(text):
    without_includes = re.sub(r"^\s*#\s*include.*$", "", text, flags=re.M)
    run = subprocess.run(["gcc", "-E", "-P", "-std=c99", "-DMOE_STATIC", "-x", "c", "-"], input=without_includes,
                         capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(run.stderr)
    return re.sub(r"\s+", " ", run.stdout)


def tidy(type_text):
    text = re.sub(r"\s*\*\s*", " * ", type_text)
    return re.sub(r"\* (?=\*)", "*", re.sub(r"\s+", " ", text)).strip()


def split_declarator(text):
    """("const void *const *", "data") of a field or parameter; an array's length goes to the type."""
    callback = re.fullmatch(r"(.*?)\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)", text.strip())
    if callback:
        parameters = ", ".join(type_ for type_, _ in parameter_list(callback[3]))
        return f"{tidy(callback[1])} (*)({parameters})", callback[2]
    plain = re.fullmatch(r"(.*[\s*])(\w+)\s*(\[\d+\])?", text.strip())
    if not plain:
        raise SystemExit(f"cannot read the declaration: {text}")
    return tidy(plain[1]) + (" " + plain[3] if plain[3] else ""), plain[2]


def parameter_list(text):
    if text.strip() == "void":
        return []
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [split_declarator(part) for part in parts]


def statements(text):
    """Declarations at file scope, one by one, without their semicolon."""
    depth, begin = 0, 0
    for i, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if character == ";" and depth == 0:
            yield text[begin:i].strip()
            begin = i + 1
    if text[begin:].strip():
        raise SystemExit(f"not a declaration: {text[begin:].strip()[:80]}")


PATTERNS = [
    ("handles", re.compile(r"typedef struct (\w+) (\w+)")),
    ("structs", re.compile(r"typedef struct (\w+) \{(.*)\} (\w+)")),
    ("enums", re.compile(r"typedef enum (\w+) \{(.*)\} (\w+)")),
    ("nameless", re.compile(r"enum \{(.*)\}")),
    ("callbacks", re.compile(r"typedef ([\w *]+?)\s*\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)")),
    ("aliases", re.compile(r"typedef ([\w ]+) (\w+)")),
    ("functions", re.compile(r"([\w *]+?)(\w+)\s*\((.*)\)")),
]


def constants(body):
    written = [part.partition("=") for part in body.split(",") if part.strip()]
    without = [name.strip() for name, equals, _ in written if not equals]
    if without:
        raise SystemExit(f"every constant needs its value written down: {without}")
    return [name.strip() for name, _, _ in written]


def add(found, kind, match):
    if kind == "handles":
        found.handles.append(match[2])
    elif kind == "structs":
        found.structs[match[3]] = [split_declarator(field) for field in match[2].split(";") if field.strip()]
    elif kind == "enums":
        found.enums[match[3]] = constants(match[2])
    elif kind == "nameless":
        found.enums.setdefault("", []).extend(constants(match[1]))
    elif kind == "aliases":
        found.aliases[match[2]] = tidy(match[1])
    else:
        getattr(found, kind)[match[2]] = (tidy(match[1]), parameter_list(match[3]))


def declarations(header):
    with open(header, encoding="utf-8") as file:
        text = file.read()
    found = Declarations({}, {}, {}, {}, {}, [], re.findall(r"^#define (MOE_\w+) \(?-?\d+\)?$", text, flags=re.M))
    for statement in statements(preprocessed(text)):
        for kind, pattern in PATTERNS:
            match = pattern.fullmatch(statement)
            if match:
                add(found, kind, match)
                break
        else:
            raise SystemExit(f"{header}: cannot read: {statement[:200]}")
    if not (found.functions and found.structs and found.enums and found.handles):
        raise SystemExit(f"{header}: no function, struct, enum or handle; the patterns are out of date")
    return found
