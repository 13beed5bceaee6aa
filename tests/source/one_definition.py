#!/usr/bin/env python3
"""one_definition.py ROOT: no two files of libmoe define one name with one signature.

Two inline functions, templates or classes of one name and different bodies are no error that a compiler or linker must find: one
of the two is used for both. Device headers are read like all others, so this needs no compiler for them.
"""
import sys

from cpp_source import read_tree
from definitions import definitions_of

# Names that are wrong today: to be mended, and then taken out of this list. An entry that is no longer true fails.
KNOWN = set()

# Files of which a build has one or the other.
ALTERNATIVES = ("libmoe/cuda/absent.cpp", "libmoe/device/absent.cpp")


def read_all(files):
    """{path: definitions} without the alternatives."""
    return {path: definitions_of(text) for path, text in files.items() if path not in ALTERNATIVES}


def collisions(definitions):
    """[(kind, name, [places])], sorted."""
    places = {}
    for path, found in definitions.items():
        for definition in found:
            places.setdefault(definition.key(), {}).setdefault(path, definition.line)
    return sorted((kind, name, [f"{path}:{line}" for path, line in where.items()])
                  for (kind, name, _), where in places.items() if len(where) > 1)


def findings(definitions, known):
    found = collisions(definitions)
    wrong = [f"{kind} {name} is defined in {' and '.join(where)}" for kind, name, where in found if (kind, name) not in known]
    there = {(kind, name) for kind, name, _ in found}
    gone = [f"{kind} {name} is defined once: take it out of KNOWN" for kind, name in sorted(known - there)]
    return wrong + gone


# Two files, and the names that both define.
SAME = [
    ("inline int f(int a) { return a; }", "inline int f(int32_t) { return 1; }", ["n::f"]),
    ("__device__ __forceinline__ float f(const M& m, int32_t e) { }", "__device__ float f(const n::M& x, int k = 3) { }", []),
    ("__device__ __forceinline__ float f(const M& m, int32_t e) { }", "__device__ float f(const M& x, int k = 3) { }", ["n::f"]),
    ("template <class T> T f(T a) { }", "template <typename Real> Real f(Real b) { }", []),
    ("template <class T> T f(T a) { }", "template <class Real> Real f(Real b) { }", ["n::f"]),
    ("template <int n> __global__ void __launch_bounds__(32 * n) f(P p) { }", "template <int m> __global__ void f(P) { }", ["n::f"]),
    ("struct S { int a; };", "struct S final : Base<int> { void g() { if (a) { } } };", ["n::S"]),
    ("template <class T> struct S<T*> { };", "template <class Real> class S<Real*> { };", ["n::S<$0*>"]),
    ("template <int n> requires(is_a(n)) struct S<n> { };", "template <int m> requires(is_a(m)) struct S<m> { };", ["n::S<$0>"]),
    ("template <class T> requires requires { typename T::A; } struct S<T> { };",
     "template <class T> requires requires { typename T::A; } struct S<T> { int a; };", ["n::S<T>"]),
    ("enum class E : uint8_t { a, b };", "// none\nenum class E { c };", ["n::E"]),
    ("inline constexpr int v = 1;", "inline constexpr int v{2};", ["n::v"]),
    ("S::S(int a) : a_{a}, b_(f(a)) { g(); }\nint h() { }", "S::S(int) : a_(1) { }\nint h() { }", ["n::S::S", "n::h"]),
    ("bool S::operator==(const S& o) const { }", "bool S::operator==(const S&) const { }", ["n::S::operator=="]),
    ("const char* t = R\"(} { )\"; int f() { }", "MOE_MAKE(float) MOE_MAKE(int)\nint f() { }", ["n::f"]),
    ("std::optional<int> f(int) { }", "std::optional<int> f(int a) { }", ["n::f"]),
    ("template <> A<1> n::g<2>(int) { }", "template <> A<1> n::g<2>(int) { }", ["n::n::g<2>"]),
    ("struct alignas(16) S { };", "struct S { };", ["n::S"]),
    ("float f(int (&a)[2]) { }", "float f(int (&b)[2]) { }", ["n::f"]),
]
# Two files that have nothing in common, whatever it looks like.
DIFFERENT = [
    ("template <int n> requires(is_a(n)) struct S<n> { };", "template <int n> requires(is_b(n)) struct S<n> { };"),
    ("inline int f(int a) { }", "inline int f(float a) { }"),
    ("int S::f() { }", "int S::f() const { }"),
    ("inline S::S() { }", "inline S::~S() { }"),
    ("static int f() { }", "static int f() { }"),
    ("namespace { int f() { } struct S { }; }", "namespace { int f() { } struct S { }; }"),
    ("struct S; int f(int); extern int v;", "struct S { }; int f(int) { } int v = 1;"),
    ("constexpr int v[] = {1, 2};", "constexpr int v[] = {1, 3};"),
    ("/* int f() { } */ int g() { }", "int f() { return '{'; } int h() { }"),
    ("template <> int f<1>() { }", "template <> int f<2>() { }"),
    ("#define F int f() { }\nint g() { }", "int f() { }"),
]


def in_namespace(text):
    return definitions_of("namespace n {\n" + text + "\n}  // namespace n\nint behind() { }\n")


def self_test():
    for a, b, names in SAME + [(*pair, []) for pair in DIFFERENT]:
        found = [name for _, name, _ in collisions({"a": in_namespace(a), "b": in_namespace(b)})]
        assert found == ["behind", *names] or found == [*names, "behind"], f"{a}\n{b}\n  wanted {names}, found {found}"


def check_planted(definitions):
    """A copy of the device header that defines most is found, name by name."""
    path = max((path for path in definitions if path.endswith(".cuh")), key=lambda path: len(definitions[path]))
    names = {(d.kind, d.name) for d in definitions[path]}
    found = {(kind, name) for kind, name, where in collisions({**definitions, "planted": definitions[path]})
             if any(place.startswith("planted:") for place in where)}
    assert len(names) > 10 and found == names, f"a copy of {path}: not found are {names - found}"


def main():
    self_test()
    definitions = read_all(read_tree(sys.argv[1], "libmoe"))
    n = sum(map(len, definitions.values()))
    assert n > 1000, f"only {n} definitions found in {len(definitions)} files"
    check_planted(definitions)
    found = findings(definitions, KNOWN)
    print("\n".join(found) or f"{n} definitions in {len(definitions)} files: none twice but for {len(KNOWN)} known names")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
