// Handlers of instructions that compute the same function in every lane.
#pragma once

#include "tests/emulator/builder.hpp"
#include "tests/emulator/warp.hpp"

namespace emulator {

template <class D, class A, auto op>
Step one(Warp& w, const Instruction& in) {
    const A* a = w.lanes<A>(in.a);
    D out[32];
    for (int i = 0; i < 32; ++i) out[i] = static_cast<D>(op(a[i]));
    w.store(in.d, out);
    return Step::next;
}

template <class D, class A, class B, auto op>
Step two(Warp& w, const Instruction& in) {
    const A* a = w.lanes<A>(in.a);
    const B* b = w.lanes<B>(in.b);
    D out[32];
    for (int i = 0; i < 32; ++i) out[i] = static_cast<D>(op(a[i], b[i]));
    w.store(in.d, out);
    return Step::next;
}

template <class D, class A, class C, auto op>
Step three(Warp& w, const Instruction& in) {
    const A* a = w.lanes<A>(in.a);
    const A* b = w.lanes<A>(in.b);
    const C* c = w.lanes<C>(in.c);
    D out[32];
    for (int i = 0; i < 32; ++i) out[i] = static_cast<D>(op(a[i], b[i], c[i]));
    w.store(in.d, out);
    return Step::next;
}

// Decodes arguments d, a; d, a, b; d, a, b, c of the given width.
inline void decode_one(Builder& b, const Statement& s, Handler run, unsigned d, unsigned a) {
    if (s.arguments.size() != 2) throw UnknownForm{};
    b.emit(run);
    b.write(&Instruction::d, s.arguments[0], d);
    b.read(&Instruction::a, s.arguments[1], a);
}

inline void decode_two(Builder& b, const Statement& s, Handler run, unsigned d, unsigned a,
                       unsigned second) {
    if (s.arguments.size() != 3) throw UnknownForm{};
    b.emit(run);
    b.write(&Instruction::d, s.arguments[0], d);
    b.read(&Instruction::a, s.arguments[1], a);
    b.read(&Instruction::b, s.arguments[2], second);
}

inline void decode_three(Builder& b, const Statement& s, Handler run, unsigned d, unsigned a,
                         unsigned third) {
    if (s.arguments.size() != 4) throw UnknownForm{};
    b.emit(run);
    b.write(&Instruction::d, s.arguments[0], d);
    b.read(&Instruction::a, s.arguments[1], a);
    b.read(&Instruction::b, s.arguments[2], a);
    b.read(&Instruction::c, s.arguments[3], third);
}

// Refuses every modifier that is neither a type nor listed.
template <class... Words>
void allow_modifiers(const Statement& s, Words... words) {
    for (size_t i = 1; i < s.opcode.size(); ++i) {
        if (type_named(s.opcode[i]) != Type::none) continue;
        if (!((s.opcode[i] == std::string_view(words)) || ...)) throw UnknownForm{};
    }
}

inline void allow_no_modifiers(const Statement& s) {
    allow_modifiers(s, ".");
}

}  // namespace emulator
