"""The deliberate breaks of break.py: what is done, and which nets must then fail.

A header break is edits of moe.h or moe_dl.h, or a way of linking a library that is wrong. A library break is functions that are
put before those of the real libmoe.so; they do what a careless change of the library would.
"""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Break:
    name: str
    nets: frozenset              # these must fail
    edits: tuple = ()            # (text of moe.h, replacement)
    loader_edits: tuple = ()     # the same of moe_dl.h
    map_edits: tuple = ()        # the same of moe.map, for the probe library
    without: frozenset = frozenset()  # functions that the probe library lacks
    extra: str = ""              # C that is added to the probe library
    link: tuple = ()             # options that come last when it is linked
    before: tuple = ()           # edits that the golden file of types has as well
    preload: str = ""            # C of functions that come before the library's
    is_addition: bool = False    # legal, and only to be looked at: --update takes it


def broken(name, nets, *edits, **more):
    return Break(name, frozenset(nets.split()), tuple(edits), **more)


FINISH = """MOE_API moe_status MOE_CALL moe_finish(const moe_plan *plan, const moe_weights *weights, moe_workspace *workspace,
                                       const moe_finish_args *args) MOE_NOEXCEPT;"""
PAIR = ("typedef struct moe_plan moe_plan;", "typedef struct moe_plan moe_plan;\n"
        "typedef struct moe_pair { int32_t a; int32_t b; } moe_pair;\n"
        "MOE_API moe_status MOE_CALL moe_swap(moe_pair *pair) MOE_NOEXCEPT;")

SYMBOLS = [
    broken("a function leaves the library alone", "symbols elf link", without=frozenset({"moe_finish"})),
    broken("a function leaves header and library", "symbols layout types link client", (FINISH, "")),
    broken("a function is renamed", "symbols layout types link client", ("moe_finish(", "moe_complete(")),
    broken("a function is added", "symbols layout types",
           ("MOE_API uint32_t MOE_CALL moe_version(void)",
            "MOE_API uint32_t MOE_CALL moe_newest(void) MOE_NOEXCEPT;\nMOE_API uint32_t MOE_CALL moe_version(void)"),
           is_addition=True),
    broken("a function of the inside is exported", "symbols elf",
           extra="MOE_API int moe_inside(void); MOE_API int moe_inside(void) { return 0; }"),
    broken("a variable is exported", "symbols elf", extra="MOE_API extern int moe_count; MOE_API int moe_count = 1;"),
    broken("the symbols have no version", "symbols elf", map_edits=(("LIBMOE_0.1 {", "{"),)),
    broken("a symbol gets into a node of its own", "symbols elf",
           map_edits=(("LIBMOE_0.1 {", "LIBMOE_0.2 { global: moe_finish; };\nLIBMOE_0.1 {"),)),
    broken("the name of the library changes", "elf", link=("-Wl,-soname,libmoe.so.9",)),
    broken("the stack becomes executable", "elf", link=("-Wl,-z,execstack",)),
    broken("a library of C++ is needed", "libc", link=("-Wl,--no-as-needed", "-l:libstdc++.so.6")),
    broken("the library becomes large", "size", extra="char moe_bulk[9000000] = {1};"),
    broken("libmoe.a has a name of its inside", "archive", extra="int moe_inside(void); int moe_inside(void) { return 0; }"),
    broken("libmoe.a lacks a function", "archive", without=frozenset({"moe_finish"})),
    broken("libmoe.a would be exported by who links it", "archive", extra="#pragma GCC visibility push(default)\nvoid moe_other(void);"
           "void moe_other(void) {}"),
]

FUNCTIONS = [
    broken("a parameter is widened", "layout types", ("moe_checkpoint *checkpoint, int32_t index,",
                                                      "moe_checkpoint *checkpoint, int64_t index,")),
    broken("a parameter is added", "layout types client",
           ("moe_layer_validate(const moe_layer_desc *layer)", "moe_layer_validate(const moe_layer_desc *layer, int32_t how)")),
    broken("parameters change places", "layout types",
           ("moe_device_kind kind, int32_t *out_count", "int32_t *out_count, moe_device_kind kind")),
    broken("a result changes its type", "layout types", ("MOE_API uint32_t MOE_CALL moe_version(", "MOE_API uint64_t MOE_CALL moe_version(")),
    broken("a callback gets a parameter", "layout types",
           ("(MOE_CALL *moe_log_fn)(moe_log_level level,", "(MOE_CALL *moe_log_fn)(int32_t line, moe_log_level level,")),
    broken("a callback inside a struct changes", "layout types client",
           ("(MOE_CALL *allocate)(uint64_t bytes, uint64_t alignment,", "(MOE_CALL *allocate)(uint64_t bytes,")),
]

STRUCTS = [
    broken("two fields change places", "layout types client",
           ("    int32_t hidden;             /*", "    int32_t swapped;            /*"),
           ("    int32_t intermediate;       /*", "    int32_t hidden;             /*"),
           ("    int32_t swapped;            /*", "    int32_t intermediate;       /*")),
    broken("a field changes its type, not its size", "layout types", ("    float gate_limit; ", "    int32_t gate_limit; ")),
    broken("a field changes its size", "layout types", ("    int32_t block_rows;      /* smallest", "    int64_t block_rows;      /* smallest")),
    broken("a field is put in the middle", "layout types client",
           ("    int32_t top_k;              /*", "    int32_t sooner;\n    int32_t top_k;              /*")),
    broken("a field is taken away", "layout types client", ("    int32_t has_router_norm; ", "/*  int32_t has_router_norm; */"),
           ("/* RMS norm of the router input, eps router_norm_eps, no learned weight */", "")),
    broken("a field is renamed", "layout types client", ("    int32_t is_gated;           /* 1", "    int32_t gated;              /* 1")),
    broken("an array shrinks", "layout types", ("    uint64_t role_bytes[32];", "    uint64_t role_bytes[31];")),
    broken("a reserved word becomes a hole", "layout types",
           ("typedef struct moe_allocator {\n    uint32_t struct_size;\n    uint32_t reserved;",
            "typedef struct moe_allocator {\n    uint32_t struct_size;")),
    broken("struct_size is not first", "layout types client",
           ("typedef struct moe_slice {\n    uint32_t struct_size;\n    int32_t has_expert_range; ",
            "typedef struct moe_slice {\n    int32_t has_expert_range;\n    uint32_t struct_size; ")),
    broken("a struct without struct_size comes", "layout types symbols", PAIR),
    broken("a struct without struct_size grows", "layout types", (PAIR[0], PAIR[1].replace("int32_t b;", "int32_t b; int32_t c;")),
           before=(PAIR,)),
    broken("a struct grows at its end", "layout types",
           ("} moe_layer_desc;", "    int32_t newest;\n} moe_layer_desc;"),
           is_addition=True),
]

ENUMS = [
    broken("a value of an enum changes", "layout types client",
           ("MOE_ACTIVATION_SILU = 1,", "MOE_ACTIVATION_SILU = 7,")),
    broken("two values change places", "layout types client", ("MOE_ROLE_GATE = 7,", "MOE_ROLE_GATE = 9,"),
           ("MOE_ROLE_DOWN = 9,", "MOE_ROLE_DOWN = 7,")),
    broken("a value of an enum goes", "layout types", ("    MOE_SPACE_PINNED = 1, /* host memory that the device can read */\n", "")),
    broken("a value of the status changes", "layout client", ("MOE_ERROR_ABI = -13,", "MOE_ERROR_ABI = -33,")),
    broken("an enum becomes 64 bits wide", "layout types client",
           ("MOE_SCORE_FORCE_INT32 = 0x7FFFFFFF", "MOE_SCORE_FORCE_INT32 = 0x7FFFFFFFFF")),
    broken("a value is left to be counted", "layout", ("MOE_IO_READ = 1,", "MOE_IO_READ,")),
    broken("a number of the header changes", "layout", ("#define MOE_ALL_EXPERTS (-1)", "#define MOE_ALL_EXPERTS (-2)")),
    broken("a value is added to an enum", "layout types",
           ("MOE_ACTIVATION_SITU = 5,", "MOE_ACTIVATION_NEWEST = 6,\n    MOE_ACTIVATION_SITU = 5,"), is_addition=True),
]

HEADERS = [
    broken("a word of C++ is a name", "headers", ("    int32_t partial;            /*", "    int32_t private;            /*")),
    broken("a type of C23 or C++ is used", "headers", ("int32_t is_gguf;", "bool is_gguf;")),
    broken("a header of the system is included", "headers", ("#include <stddef.h>", "#include <stdbool.h>\n#include <stddef.h>")),
    broken("a struct is born in a parameter list", "headers",
           ("moe_status MOE_CALL moe_quantize(", "moe_status MOE_CALL moe_quantize(struct moe_other *other, ")),
    broken("the loader forgets a function", "list", loader_edits=(("X(quantize) ", ""),)),
    broken("the loader forgets to compare the ABI", "loader",
           loader_edits=(("api->abi_version() != MOE_ABI_VERSION", "api->abi_version() == 0u - 1u"),)),
    broken("the loader keeps a library that lacks a function", "loader",
           loader_edits=(("    if (complete) return MOE_OK;", "    return MOE_OK;"),)),
]

REAL = "#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))\n"
LIBRARY = [
    broken("the library ignores an unknown tail", "preload", preload=REAL + """
moe_status moe_layer_validate(const moe_layer_desc *given) {
    moe_layer_desc known = {0};
    memcpy(&known, given, given->struct_size < sizeof known ? given->struct_size : sizeof known);
    known.struct_size = sizeof known;
    return REAL(moe_layer_validate)(&known);
}"""),
    broken("the library reads beyond a smaller struct", "preload", preload=REAL + """
moe_status moe_layer_validate(const moe_layer_desc *given) {
    moe_layer_desc known = *given;
    known.struct_size = given->struct_size < sizeof known ? sizeof known : given->struct_size;
    return given->struct_size > sizeof known ? REAL(moe_layer_validate)(given) : REAL(moe_layer_validate)(&known);
}"""),
    broken("the library refuses a smaller struct", "preload", preload=REAL + """
moe_status moe_plan_create(moe_runtime *runtime, const moe_plan_desc *desc, moe_plan **out_plan) {
    return desc->struct_size < sizeof *desc ? MOE_ERROR_ABI : REAL(moe_plan_create)(runtime, desc, out_plan);
}"""),
    broken("the library refuses a tail of zeros", "preload", preload=REAL + """
moe_status moe_plan_create(moe_runtime *runtime, const moe_plan_desc *desc, moe_plan **out_plan) {
    return desc->struct_size > sizeof *desc ? MOE_ERROR_ABI : REAL(moe_plan_create)(runtime, desc, out_plan);
}"""),
    broken("the library writes beyond struct_size", "preload", preload=REAL + """
moe_status moe_format_get_info(const moe_format *format, moe_format_info *out_info) {
    const moe_status status = REAL(moe_format_get_info)(format, out_info);
    memset((char *)out_info + out_info->struct_size, 0, 8);
    return status;
}"""),
    broken("the library leaves old bytes in a larger output", "preload", preload=REAL + """
moe_status moe_format_get_info(const moe_format *format, moe_format_info *out_info) {
    moe_format_info known = {sizeof known, 0, 0, 0, 0, 0, 0, {0}};
    const moe_status status = REAL(moe_format_get_info)(format, &known);
    memcpy((char *)out_info + 4, (char *)&known + 4, sizeof known - 4);
    return status;
}"""),
    broken("the library changes struct_size of an output", "preload", preload=REAL + """
moe_status moe_format_get_info(const moe_format *format, moe_format_info *out_info) {
    const moe_status status = REAL(moe_format_get_info)(format, out_info);
    out_info->struct_size = sizeof *out_info + 8;
    return status;
}"""),
    broken("the library renumbers its errors", "preload", preload=REAL + """
const char *moe_status_name(moe_status status) { return REAL(moe_status_name)(status - 1); }"""),
    broken("the library says another ABI version", "preload", preload="uint32_t moe_abi_version(void) { return 2; }"),
    broken("the library is older than the client", "preload", preload="uint32_t moe_version(void) { return 999; }"),
    broken("the library's results are wrong", "preload", preload=REAL + """
moe_status moe_combine(const moe_plan *plan, moe_workspace *workspace, const moe_combine_args *args) {
    const moe_status status = REAL(moe_combine)(plan, workspace, args);
    ((float *)args->out)[0] += 1;
    return status;
}"""),
]

BREAKS = [*SYMBOLS, *FUNCTIONS, *STRUCTS, *ENUMS, *HEADERS, *LIBRARY]
