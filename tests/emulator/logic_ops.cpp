// Implements operations on bits: logic, shifts, fields, counts.
#include <bit>

#include "tests/emulator/lanes.hpp"

namespace emulator {
namespace {

template <class T>
constexpr auto and_of = [](T a, T b) { return static_cast<T>(a & b); };
template <class T>
constexpr auto or_of = [](T a, T b) { return static_cast<T>(a | b); };
template <class T>
constexpr auto xor_of = [](T a, T b) { return static_cast<T>(a ^ b); };
template <class T>
constexpr auto not_of = [](T a) { return static_cast<T>(~a); };
template <class T>
constexpr auto cnot_of = [](T a) { return static_cast<T>(a == 0); };

template <auto op>
Step on_predicates(Warp& w, const Instruction& in) {
    w.store_predicate(in.d, op(w.predicate(in.a), w.predicate(in.b)));
    return Step::next;
}

Step not_predicate(Warp& w, const Instruction& in) {
    w.store_predicate(in.d, ~w.predicate(in.a));
    return Step::next;
}

#define EMULATOR_LOGIC(name, op)                                                                 \
    void name(Builder& b, const Statement& s) {                                                  \
        allow_no_modifiers(s);                                                                   \
        using P = uint32_t;                                                                      \
        switch (bits_of(s.last_type())) {                                                        \
            case 1:                                                                              \
                return decode_two(b, s, on_predicates<op<P>>, 1, 1, 1);                          \
            case 16:                                                                             \
                return decode_two(b, s, two<uint16_t, uint16_t, uint16_t, op<uint16_t>>, 16, 16, \
                                  16);                                                           \
            case 32:                                                                             \
                return decode_two(b, s, two<P, P, P, op<P>>, 32, 32, 32);                        \
            default:                                                                             \
                return decode_two(b, s, two<uint64_t, uint64_t, uint64_t, op<uint64_t>>, 64, 64, \
                                  64);                                                           \
        }                                                                                        \
    }

EMULATOR_LOGIC(decode_and, and_of)
EMULATOR_LOGIC(decode_or, or_of)
EMULATOR_LOGIC(decode_xor, xor_of)
#undef EMULATOR_LOGIC

void decode_not(Builder& b, const Statement& s) {
    switch (bits_of(s.last_type())) {
        case 1:
            return decode_one(b, s, not_predicate, 1, 1);
        case 16:
            return decode_one(b, s, one<uint16_t, uint16_t, not_of<uint16_t>>, 16, 16);
        case 32:
            return decode_one(b, s, one<uint32_t, uint32_t, not_of<uint32_t>>, 32, 32);
        default:
            return decode_one(b, s, one<uint64_t, uint64_t, not_of<uint64_t>>, 64, 64);
    }
}

void decode_cnot(Builder& b, const Statement& s) {
    switch (bits_of(s.last_type())) {
        case 16:
            return decode_one(b, s, one<uint16_t, uint16_t, cnot_of<uint16_t>>, 16, 16);
        case 32:
            return decode_one(b, s, one<uint32_t, uint32_t, cnot_of<uint32_t>>, 32, 32);
        default:
            return decode_one(b, s, one<uint64_t, uint64_t, cnot_of<uint64_t>>, 64, 64);
    }
}

// A shift by the width or more gives zero, or copies of the sign.
template <class T>
constexpr auto left_of =
    [](T a, uint32_t n) { return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << n); };
template <class T>
constexpr auto right_of = [](T a, uint32_t n) {
    constexpr uint32_t bits = 8 * sizeof(T);
    if constexpr (std::is_signed_v<T>)
        return static_cast<T>(a >> (n >= bits ? bits - 1 : n));
    else
        return n >= bits ? T{0} : static_cast<T>(a >> n);
};

void decode_shl(Builder& b, const Statement& s) {
    allow_no_modifiers(s);
    const unsigned bits = bits_of(s.last_type());
    const Handler run = bits == 16   ? two<uint16_t, uint16_t, uint32_t, left_of<uint16_t>>
                        : bits == 32 ? two<uint32_t, uint32_t, uint32_t, left_of<uint32_t>>
                                     : two<uint64_t, uint64_t, uint32_t, left_of<uint64_t>>;
    decode_two(b, s, run, bits, bits, 32);
}

template <class T>
constexpr Handler right_shift = two<T, T, uint32_t, right_of<T>>;

void decode_shr(Builder& b, const Statement& s) {
    allow_no_modifiers(s);
    const Type type = s.last_type();
    const unsigned bits = bits_of(type);
    Handler run = nullptr;
    if (is_signed(type))
        run = bits == 16   ? right_shift<int16_t>
              : bits == 32 ? right_shift<int32_t>
                           : right_shift<int64_t>;
    else
        run = bits == 16   ? right_shift<uint16_t>
              : bits == 32 ? right_shift<uint32_t>
                           : right_shift<uint64_t>;
    decode_two(b, s, run, bits, bits, 32);
}

uint32_t amount(uint32_t n, bool wraps) {
    return wraps ? n & 31 : n > 32 ? 32 : n;
}
template <bool wraps>
constexpr auto funnel_left = [](uint32_t low, uint32_t high, uint32_t n) {
    const uint64_t both = uint64_t{high} << 32 | low;
    return static_cast<uint32_t>(both << amount(n, wraps) >> 32);
};
template <bool wraps>
constexpr auto funnel_right = [](uint32_t low, uint32_t high, uint32_t n) {
    const uint64_t both = uint64_t{high} << 32 | low;
    return static_cast<uint32_t>(both >> amount(n, wraps));
};

void decode_shf(Builder& b, const Statement& s) {
    allow_modifiers(s, "l", "r", "wrap", "clamp");
    using U = uint32_t;
    const bool wraps = s.has("wrap");
    const Handler run =
        s.has("l")
            ? (wraps ? three<U, U, U, funnel_left<true>> : three<U, U, U, funnel_left<false>>)
            : (wraps ? three<U, U, U, funnel_right<true>> : three<U, U, U, funnel_right<false>>);
    decode_three(b, s, run, 32, 32, 32);
}

template <class T>
T field(T value, uint32_t at, uint32_t n) {
    constexpr uint32_t bits = 8 * sizeof(T);
    using U = std::make_unsigned_t<T>;
    at &= 0xFF, n &= 0xFF;
    if (n == 0) return 0;
    const uint32_t top = std::min(at + n - 1, bits - 1);
    U found = at >= bits ? U{0} : static_cast<U>(static_cast<U>(value) >> at);
    if (n < bits) found &= (U{1} << n) - 1;
    if constexpr (std::is_signed_v<T>) {
        const bool sign = static_cast<U>(value) >> top & 1;
        const uint32_t kept = at >= bits ? 0 : std::min(n, bits - at);
        if (sign && kept < bits) found |= ~U{0} << kept;
    }
    return static_cast<T>(found);
}
template <class T>
Step run_bfe(Warp& w, const Instruction& in) {
    const T* a = w.lanes<T>(in.a);
    const auto *at = w.lanes<uint32_t>(in.b), *n = w.lanes<uint32_t>(in.c);
    T out[32];
    for (int i = 0; i < 32; ++i) out[i] = field(a[i], at[i], n[i]);
    w.store(in.d, out);
    return Step::next;
}

void decode_bfe(Builder& b, const Statement& s) {
    allow_no_modifiers(s);
    if (s.arguments.size() != 4) throw UnknownForm{};
    const Type type = s.last_type();
    const unsigned bits = bits_of(type);
    b.emit(bits == 32 ? (is_signed(type) ? run_bfe<int32_t> : run_bfe<uint32_t>)
                      : (is_signed(type) ? run_bfe<int64_t> : run_bfe<uint64_t>));
    b.write(&Instruction::d, s.arguments[0], bits);
    b.read(&Instruction::a, s.arguments[1], bits);
    b.read(&Instruction::b, s.arguments[2], 32);
    b.read(&Instruction::c, s.arguments[3], 32);
}

template <class T>
Step run_bfi(Warp& w, const Instruction& in) {
    constexpr uint32_t bits = 8 * sizeof(T);
    const T *a = w.lanes<T>(in.a), *b = w.lanes<T>(in.b);
    const auto *at = w.lanes<uint32_t>(in.c), *n = w.lanes<uint32_t>(in.e);
    T out[32];
    for (int i = 0; i < 32; ++i) {
        const uint32_t from = at[i] & 0xFF, count = n[i] & 0xFF;
        const T ones = count >= bits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << count) - 1);
        const T mask = from >= bits ? T{0} : static_cast<T>(ones << from);
        const T moved = from >= bits ? T{0} : static_cast<T>(a[i] << from);
        out[i] = static_cast<T>((b[i] & ~mask) | (moved & mask));
    }
    w.store(in.d, out);
    return Step::next;
}

void decode_bfi(Builder& b, const Statement& s) {
    allow_no_modifiers(s);
    if (s.arguments.size() != 5) throw UnknownForm{};
    const unsigned bits = bits_of(s.last_type());
    b.emit(bits == 32 ? run_bfi<uint32_t> : run_bfi<uint64_t>);
    b.write(&Instruction::d, s.arguments[0], bits);
    b.read(&Instruction::a, s.arguments[1], bits);
    b.read(&Instruction::b, s.arguments[2], bits);
    b.read(&Instruction::c, s.arguments[3], 32);
    b.read(&Instruction::e, s.arguments[4], 32);
}

template <class T>
constexpr auto highest_bit = [](T a) {
    using U = std::make_unsigned_t<T>;
    const U value = static_cast<U>(a < 0 ? ~a : a);
    return value ? static_cast<uint32_t>(std::bit_width(value) - 1) : ~0u;
};
template <class T>
constexpr auto shift_to_top = [](T a) {
    using U = std::make_unsigned_t<T>;
    const U value = static_cast<U>(a < 0 ? ~a : a);
    return value ? static_cast<uint32_t>(8 * sizeof(T) - std::bit_width(value)) : ~0u;
};

template <class T>
Handler bfind_of(bool shift) {
    return shift ? one<uint32_t, T, shift_to_top<T>> : one<uint32_t, T, highest_bit<T>>;
}

void decode_bfind(Builder& b, const Statement& s) {
    allow_modifiers(s, "shiftamt");
    const bool shift = s.has("shiftamt");
    const Type type = s.last_type();
    const unsigned bits = bits_of(type);
    const Handler run =
        bits == 32 ? (is_signed(type) ? bfind_of<int32_t>(shift) : bfind_of<uint32_t>(shift))
                   : (is_signed(type) ? bfind_of<int64_t>(shift) : bfind_of<uint64_t>(shift));
    decode_one(b, s, run, 32, bits);
}

template <class T>
T reversed(T value) {
    T out = 0;
    for (size_t i = 0; i < 8 * sizeof(T); ++i) out |= (value >> i & 1) << (8 * sizeof(T) - 1 - i);
    return out;
}
template <class T>
constexpr auto reverse_of = [](T a) { return reversed(a); };
template <class T>
constexpr auto zeros_of = [](T a) { return static_cast<uint32_t>(std::countl_zero(a)); };
template <class T>
constexpr auto ones_of = [](T a) { return static_cast<uint32_t>(std::popcount(a)); };

void decode_brev(Builder& b, const Statement& s) {
    if (bits_of(s.last_type()) == 32)
        return decode_one(b, s, one<uint32_t, uint32_t, reverse_of<uint32_t>>, 32, 32);
    decode_one(b, s, one<uint64_t, uint64_t, reverse_of<uint64_t>>, 64, 64);
}

void decode_clz(Builder& b, const Statement& s) {
    if (bits_of(s.last_type()) == 32)
        return decode_one(b, s, one<uint32_t, uint32_t, zeros_of<uint32_t>>, 32, 32);
    decode_one(b, s, one<uint32_t, uint64_t, zeros_of<uint64_t>>, 32, 64);
}

void decode_popc(Builder& b, const Statement& s) {
    if (bits_of(s.last_type()) == 32)
        return decode_one(b, s, one<uint32_t, uint32_t, ones_of<uint32_t>>, 32, 32);
    decode_one(b, s, one<uint32_t, uint64_t, ones_of<uint64_t>>, 32, 64);
}

// Each four bits of the selector name a byte of the eight, or copies of its sign.
uint32_t permuted(uint32_t a, uint32_t b, uint32_t selector) {
    const uint64_t both = uint64_t{b} << 32 | a;
    uint32_t out = 0;
    for (int i = 0; i < 4; ++i) {
        const uint32_t s = selector >> 4 * i;
        const auto byte = static_cast<uint32_t>(both >> 8 * (s & 7)) & 0xFF;
        const uint32_t value = s & 8 ? (byte & 0x80 ? 0xFF : 0) : byte;
        out |= value << 8 * i;
    }
    return out;
}
constexpr auto permute = [](uint32_t a, uint32_t b, uint32_t c) { return permuted(a, b, c); };

void decode_prmt(Builder& b, const Statement& s) {
    allow_no_modifiers(s);
    decode_three(b, s, three<uint32_t, uint32_t, uint32_t, permute>, 32, 32, 32);
}

Step run_lop3(Warp& w, const Instruction& in) {
    const auto *a = w.lanes<uint32_t>(in.a), *b = w.lanes<uint32_t>(in.b);
    const auto* c = w.lanes<uint32_t>(in.c);
    uint32_t out[32] = {};
    for (uint32_t row = 0; row < 8; ++row) {
        if (!(in.immediate >> row & 1)) continue;
        const uint32_t fa = row & 4 ? 0 : ~0u, fb = row & 2 ? 0 : ~0u, fc = row & 1 ? 0 : ~0u;
        for (int i = 0; i < 32; ++i) out[i] |= (a[i] ^ fa) & (b[i] ^ fb) & (c[i] ^ fc);
    }
    w.store(in.d, out);
    return Step::next;
}

void decode_lop3(Builder& b, const Statement& s) {
    allow_no_modifiers(s);
    if (s.arguments.size() != 5) throw UnknownForm{};
    b.emit(run_lop3).immediate = static_cast<int64_t>(s.arguments[4].bits);
    b.write(&Instruction::d, s.arguments[0], 32);
    b.read(&Instruction::a, s.arguments[1], 32);
    b.read(&Instruction::b, s.arguments[2], 32);
    b.read(&Instruction::c, s.arguments[3], 32);
}

}  // namespace

std::vector<DecoderEntry> logic_decoders() {
    return {{"and", decode_and},  {"or", decode_or},       {"xor", decode_xor},
            {"not", decode_not},  {"cnot", decode_cnot},   {"shl", decode_shl},
            {"shr", decode_shr},  {"shf", decode_shf},     {"bfe", decode_bfe},
            {"bfi", decode_bfi},  {"bfind", decode_bfind}, {"brev", decode_brev},
            {"clz", decode_clz},  {"popc", decode_popc},   {"prmt", decode_prmt},
            {"lop3", decode_lop3}};
}

}  // namespace emulator
