"""Writes src/generated from moe.h: enums, structs, functions, and the two classes whose fields are a struct's.

usage: generate.py [--check]      --check writes nothing and fails when a file is not what would be written
"""
import pathlib
import re
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
HEADER = HERE.parents[1] / "include/moe/moe.h"
OUT = HERE / "src/generated"

# C# names where the one that follows from moe.h is taken by the base class library or says too little.
NAMES = {"moe_type": "ElementType", "moe_io": "CheckpointIO"}
# The enums without a name of their own, by their prefix.
UNNAMED = {"MOE_ERROR_": "Status", "MOE_FINISH_": "FinishParts", "MOE_FAULT_": "Faults"}
FLAGS = {"Stage", "FinishParts", "Faults"}
SCALARS = {"int32_t": "int", "uint32_t": "uint", "int64_t": "long", "uint64_t": "ulong", "uint8_t": "byte", "float": "float",
           "double": "double"}
HANDLES = {f"moe_{name}": f"{name.capitalize()}Handle" for name in "runtime checkpoint plan weights workspace loading".split()}
KEYWORDS = {"out", "in", "params", "ref"}
# Structs that are classes of their own here, field by field.
CLASSES = {"moe_layer_desc": "LayerDesc", "moe_format": "Format"}
TOP = "// Written by generate.py from include/moe/moe.h; change those.\n"


def pascal(name):
    return "".join(part[:1].upper() + part[1:].lower() for part in name.split("_"))


def member_name(enum, name):
    """F8_E4M3 stays F8E4M3: letters beside digits are an abbreviation in the names of element types."""
    keeps = enum == "ElementType"
    return "".join(part if keeps and re.search(r"\d", part) else pascal(part) for part in name.split("_"))


def type_name(c_name):
    return NAMES.get(c_name) or pascal(c_name.removeprefix("moe_"))


def escaped(name):
    return "@" + name if name in KEYWORDS else name


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def plain(comment):
    words = " ".join(line.strip().lstrip("*") for line in comment.strip("/*").splitlines())
    return " ".join(words.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def doc(comment, indent):
    """A summary in the lines of a source that is 120 wide."""
    if not comment:
        return ""
    begin = " " * indent + "/// "
    lines = textwrap.wrap(f"<summary>{comment}</summary>", 118 - len(begin))
    return "".join(begin + line + "\n" for line in lines)


def comment_before(header, position):
    """The comment that ends right above a declaration."""
    found = re.search(r"/\*((?:(?!\*/).)*)\*/\s*$", header[:position], flags=re.S)
    return plain(found.group(1)) if found and "----" not in found.group(1) else ""


# --- enums -------------------------------------------------------------------------------------------------------


def enums(header):
    for match in re.finditer(r"(?:typedef enum (\w+) MOE_ENUM_BASE|^enum) \{(.*?)\n\}", header, flags=re.S | re.M):
        c_name, body = match.groups()
        values = re.findall(r"(MOE_\w+) = (-?\w+)(?: / 1)?,?[ \t]*(?:/\*(.*?)\*/)?", body, flags=re.S)
        if c_name:
            prefix = next(name for name, value, _ in values if value == "0x7FFFFFFF").removesuffix("FORCE_INT32")
            name = type_name(c_name)
        else:
            prefix = next(one for one in UNNAMED if one in body)
            name = UNNAMED[prefix]
        members = [(one.removeprefix(prefix) if one != "MOE_OK" else "OK", value, plain(comment))
                   for one, value, comment in values if value != "0x7FFFFFFF"]
        yield name, c_name, members, comment_before(header, match.start())


def enums_file(header):
    text = TOP + "using System;\n\nnamespace Moe\n{\n"
    for index, (name, c_name, members, comment) in enumerate(enums(header)):
        if c_name is None and not comment:
            comment = {"Status": "Outcome of a call: 0 good, negative an error. Open: new values may come.",
                       "Faults": "What went wrong in calls that have finished; bits."}[name]
        text += ("\n" if index else "") + doc(comment, 4)
        if name in FLAGS:
            text += "    [Flags]\n"
        text += f"    public enum {name}\n    {{\n"
        if name in FLAGS and all(value != "0" for _, value, _ in members):
            text += "        None = 0,\n"
        for member, value, note in members:
            text += doc(note, 8) + f"        {member_name(name, member)} = {value},\n"
        text += "    }\n"
    return text + "}\n"


# --- structs -----------------------------------------------------------------------------------------------------


def structs(header):
    for match in re.finditer(r"^typedef struct (\w+) \{(.*?)\n\} \1;", header, flags=re.S | re.M):
        yield match.group(1), match.group(2)


def fields(body):
    """Type in C#, name and length of an array; a pointer of any kind is an IntPtr."""
    for one in without_comments(body).split(";"):
        one = " ".join(one.split())
        if not one:
            continue
        function = re.search(r"\(MOE_CALL \*(\w+)\)", one)
        if function:
            yield "IntPtr", function.group(1), None
            continue
        kind, name, length = re.fullmatch(r"(.*?[ *])(\w+)(?:\[(\d+)\])?", one).groups()
        kind = kind.strip()
        if "*" in kind or kind.endswith("_fn"):
            yield "IntPtr", name, None
        elif length:
            yield {"char": "byte"}.get(kind) or SCALARS[kind], name, length
        else:
            yield SCALARS.get(kind) or type_name(kind), name, None


def constants(header):
    text = "    /// <summary>Constants of moe.h.</summary>\n    internal static class Header\n    {\n"
    for kind, name in (("uint", "ABI_VERSION"), ("uint", "VERSION_NUMBER"), ("int", "ROLE_COUNT"), ("int", "ALL_EXPERTS")):
        value = re.search(rf"#define MOE_{name} \(?(-?\d+)\)?$", header, flags=re.M).group(1)
        text += f"        public const {kind} {pascal(name)} = {value};\n"
    return text + "    }\n"


def structs_file(header):
    text = TOP + "using System;\nusing System.Runtime.InteropServices;\n\nnamespace Moe\n{\n" + constants(header)
    for name, body in structs(header):
        text += f"\n    [StructLayout(LayoutKind.Sequential)]\n    internal unsafe struct {name}\n    {{\n"
        for kind, field, length in fields(body):
            array = f"fixed {kind} {field}[{length}]" if length else f"{kind} {escaped(field)}"
            text += f"        public {array};\n"
        text += "    }\n"
    return text + "}\n"


# --- functions ---------------------------------------------------------------------------------------------------


def parameter(text):
    """A parameter as C# declares it, passes it on, and takes it."""
    text = " ".join(text.split())
    kind, name = re.fullmatch(r"(.*?[ *])(\w+)(?:\[16\])?", text).groups()
    kind, name = kind.replace("const ", "").replace(" ", ""), escaped(name)
    if text.endswith("[16]"):
        return "byte*", name, ""
    if kind.endswith("*") and kind[:-1] in HANDLES:
        return HANDLES[kind[:-1]], name, ""
    if kind.endswith("**") and kind[:-2] in HANDLES:
        return HANDLES[kind[:-2]], name, "out "
    if kind.endswith("*") and kind[:-1].startswith("moe_") and not is_enum(kind[:-1]):
        return kind, name, ""
    if kind.endswith("*") and (kind[:-1] in SCALARS or is_enum(kind[:-1])) and name.startswith("out_") and name != "out_formats":
        return SCALARS.get(kind[:-1]) or type_name(kind[:-1]), name, "out "
    if kind == "char**":
        return "IntPtr", name, "out "
    if "*" in kind:
        return "IntPtr", name, ""
    return "Status" if kind == "moe_status" else SCALARS.get(kind) or type_name(kind), name, ""


ENUMS = set()


def is_enum(c_name):
    return c_name in ENUMS


def functions(header):
    for match in re.finditer(r"MOE_API\s+([^;()]*?)\s*MOE_CALL\s+(\w+)\s*\(([^;]*?)\) MOE_NOEXCEPT;", without_comments(header)):
        kind, name, arguments = match.groups()
        kind = {"const char *": "IntPtr", "moe_status": "Status"}.get(kind.strip()) or SCALARS.get(kind.strip(), "void")
        parts = [] if arguments.strip() == "void" else [parameter(one) for one in arguments.split(",")]
        if name.endswith("_destroy") and kind == "void":  # of a handle
            parts = [("IntPtr", parts[0][1], "")]
        yield kind, name, parts


def joined(begin, parts, end, indent):
    """One line, or as few as hold it."""
    line = begin + ", ".join(parts) + end
    if len(line) + indent <= 120:
        return " " * indent + line + "\n"
    line = begin + ", ".join(part if "(" in part else part.replace(" ", "\xa0") for part in parts) + end
    line = line.replace("out ", "out\xa0")
    return textwrap.fill(line, 120, initial_indent=" " * indent, subsequent_indent=" " * (indent + 4),
                         break_long_words=False, break_on_hyphens=False).replace("\xa0", " ") + "\n"


def declared(parts):
    return [f"{by}{kind} {one}" for kind, one, by in parts]


def imports_file(header):
    found = list(functions(header))
    text = TOP + "using System;\nusing System.Runtime.InteropServices;\n\nnamespace Moe\n{\n"
    text += "    /// <summary>The functions as they are. The library must be open.</summary>\n"
    text += "    internal static unsafe partial class Imports\n    {\n"
    text += "        /// <summary>All of them, in the order of moe.h.</summary>\n        public static readonly string[] Names =\n        {\n"
    text += "".join(f'            "{name}",\n' for _, name, _ in found) + "        };\n"
    for attribute, modifier in (("LibraryImport(Loader.Name)", "partial"),
                                ("DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)",
                                 "extern")):
        text += "\n#if MOE_LIBRARY_IMPORT\n" if modifier == "partial" else "\n#else\n"
        for kind, name, parts in found:
            text += f"\n        [{attribute}]\n"
            text += joined(f"public static {modifier} {kind} {name}(", declared(parts), ");", 8)
    return text + "\n#endif\n    }\n}\n"


def calls_file(header):
    text = TOP + "using System;\nusing System.Runtime.CompilerServices;\n\nnamespace Moe\n{\n"
    text += doc("The functions with failures thrown. Library.Native is the only way to one: the library is loaded before any of "
                "these methods is compiled, which is when Mono binds what it imports; so none may be inlined.", 4)
    text += "    internal sealed unsafe class Native\n    {\n"
    for index, (kind, name, parts) in enumerate(functions(header)):
        if kind == "void" or name in ("moe_last_error", "moe_last_error_copy"):
            continue
        call = f"Imports.{name}({', '.join(by + one for _, one, by in parts)})"
        text += "\n" if index else ""
        text += "        [MethodImpl(MethodImplOptions.NoInlining)]\n"
        text += joined(f"public {'void' if kind == 'Status' else kind} {name}(", declared(parts), ")", 8)
        text += "        {\n"
        if kind == "Status":
            text += joined(f'MoeException.Check("{name}", ', [call], ");", 12)
        else:
            text += joined("return ", [call], ";", 12)
        text += "        }\n"
    return text + "    }\n}\n"


# --- classes whose fields are a struct's --------------------------------------------------------------------------


def is_flag(kind, name):
    return kind == "int" and (re.match(r"(has|is|round|shared_is|shared_has)_|has_", name)
                              or name in ("act_order", "nested_scales", "pre_quant_scale", "expert_norm_weight_first"))


def field_notes(body):
    """The comment on each field's own line, and lines that only go on with it."""
    notes, last = {}, None
    for match in re.finditer(r"(\w+);\s*/\*(.*?)\*/", body, flags=re.S):
        notes[match.group(1)] = plain(match.group(2))
    return notes


def class_text(c_name, body, comment):
    name, notes = CLASSES[c_name], field_notes(body)
    members = [(kind, field) for kind, field, _ in fields(body) if field != "struct_size"]
    text = doc(comment, 4) + f"    public sealed unsafe partial class {name}\n    {{\n"
    for kind, field in members:
        shown = "bool" if is_flag(kind, field) else kind
        text += doc(notes.get(field, ""), 8) + f"        public {shown} {pascal(field)} {{ get; set; }}\n"
    text += f"\n        internal {c_name} ToNative()\n        {{\n            var made = default({c_name});\n"
    text += f"            made.struct_size = (uint)sizeof({c_name});\n"
    for kind, field in members:
        value = f"{pascal(field)} ? 1 : 0" if is_flag(kind, field) else pascal(field)
        text += f"            made.{field} = {value};\n"
    text += f"            return made;\n        }}\n\n        internal static {name} FromNative({c_name} from)\n        {{\n"
    text += f"            var made = new {name}();\n"
    for kind, field in members:
        value = f"from.{field} != 0" if is_flag(kind, field) else f"from.{field}"
        text += f"            made.{pascal(field)} = {value};\n"
    return text + "            return made;\n        }\n    }\n"


def classes_file(header):
    says = {"moe_layer_desc": "The mathematics of a layer: moe_layer_desc, field by field. A value without its Has must be zero.",
            "moe_format": "How the bytes of a matrix are to be read: moe_format, field by field. By name, from a checkpoint, or by hand."}
    bodies = dict(structs(header))
    parts = [class_text(c_name, bodies[c_name], says[c_name]) for c_name in CLASSES]
    return TOP + "namespace Moe\n{\n" + "\n".join(parts) + "}\n"


def main():
    header = HEADER.read_text(encoding="utf-8")
    ENUMS.update(re.findall(r"typedef enum (\w+)", header))
    files = {"Enums.cs": enums_file, "Structs.cs": structs_file, "Imports.cs": imports_file, "Native.cs": calls_file,
             "Descriptions.cs": classes_file}
    stale = []
    for name, make in files.items():
        text, path = make(header), OUT / name
        if "--check" in sys.argv[1:]:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(name)
        else:
            OUT.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.exit(f"not what {HEADER.name} gives: {', '.join(stale)}; run {pathlib.Path(__file__).name}")


if __name__ == "__main__":
    main()
