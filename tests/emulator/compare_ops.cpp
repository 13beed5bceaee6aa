// Implements setp, selp and slct.
#include <bit>

#include "tests/emulator/lanes.hpp"

namespace emulator {
namespace {

enum class Compare : uint8_t {
    eq,
    ne,
    lt,
    le,
    gt,
    ge,  // ordered, of floats
    equ,
    neu,
    ltu,
    leu,
    gtu,
    geu,
    num,
    nan,  // true if unordered, but for num
};

Compare compare_named(std::string_view name) {
    constexpr std::string_view names[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                          "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
    for (uint8_t i = 0; i < 14; ++i)
        if (names[i] == name) return static_cast<Compare>(i);
    if (name == "lo") return Compare::lt;
    if (name == "ls") return Compare::le;
    if (name == "hi") return Compare::gt;
    if (name == "hs") return Compare::ge;
    throw UnknownForm{};
}

template <class T, Compare c>
bool holds(T a, T b) {
    switch (c) {
        case Compare::eq:
            return a == b;
        case Compare::ne:  // of floats: ordered and different
            return a < b || a > b;
        case Compare::lt:
            return a < b;
        case Compare::le:
            return a <= b;
        case Compare::gt:
            return a > b;
        case Compare::ge:
            return a >= b;
        case Compare::equ:
            return !(a < b || a > b);
        case Compare::neu:
            return a != b;
        case Compare::ltu:
            return !(a >= b);
        case Compare::leu:
            return !(a > b);
        case Compare::gtu:
            return !(a <= b);
        case Compare::geu:
            return !(a < b);
        case Compare::num:
            return a == a && b == b;
        default:
            return a != a || b != b;
    }
}

enum Combine : uint8_t { plain, with_and, with_or, with_xor };

template <class T>
T flush_to_zero(T x) {
    if constexpr (sizeof(T) == 4 && std::is_floating_point_v<T>) {
        const auto bits = std::bit_cast<uint32_t>(x);
        return bits & 0x7F800000 ? x : std::bit_cast<float>(bits & 0x80000000);
    }
    return x;
}

// mode tells how to combine the result with the predicate c. e is the second result, where there is
// one. count has bit 0 for flush and bit 1 for a second result.
template <class T, Compare c>
Step run_setp(Warp& w, const Instruction& in) {
    const T *a = w.lanes<T>(in.a), *b = w.lanes<T>(in.b);
    uint32_t bits = 0;
    if (in.count & 1) {
        for (int i = 0; i < 32; ++i)
            bits |= static_cast<uint32_t>(holds<T, c>(flush_to_zero(a[i]), flush_to_zero(b[i])))
                    << i;
    } else {
        for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(holds<T, c>(a[i], b[i])) << i;
    }
    uint32_t other = ~bits;
    if (in.mode != plain) {
        const uint32_t third = w.predicate(in.c);
        const auto combined = [&](uint32_t x) {
            return in.mode == with_and ? x & third : in.mode == with_or ? x | third : x ^ third;
        };
        bits = combined(bits), other = combined(other);
    }
    w.store_predicate(in.d, bits);
    if (in.count & 2) w.store_predicate(in.e, other);
    return Step::next;
}

template <class T, uint8_t... c>
Handler setp_of(Compare compare, std::integer_sequence<uint8_t, c...>) {
    static constexpr Handler handlers[] = {run_setp<T, static_cast<Compare>(c)>...};
    if (static_cast<size_t>(compare) >= sizeof...(c)) throw UnknownForm{};
    return handlers[static_cast<size_t>(compare)];
}

template <class T>
Handler setp_of(Compare compare) {
    constexpr uint8_t n = std::is_floating_point_v<T> ? 14 : 6;
    return setp_of<T>(compare, std::make_integer_sequence<uint8_t, n>{});
}

Handler setp_of(Type type, Compare compare) {
    switch (type) {
        case Type::b16:
        case Type::u16:
            return setp_of<uint16_t>(compare);
        case Type::s16:
            return setp_of<int16_t>(compare);
        case Type::b32:
        case Type::u32:
            return setp_of<uint32_t>(compare);
        case Type::s32:
            return setp_of<int32_t>(compare);
        case Type::b64:
        case Type::u64:
            return setp_of<uint64_t>(compare);
        case Type::s64:
            return setp_of<int64_t>(compare);
        case Type::f32:
            return setp_of<float>(compare);
        case Type::f64:
            return setp_of<double>(compare);
        default:
            throw UnknownForm{};
    }
}

void decode_setp(Builder& b, const Statement& s) {
    allow_modifiers(s, s.opcode.at(1), "and", "or", "xor", "ftz");
    const Type type = s.last_type();
    const unsigned bits = bits_of(type);
    const size_t n = s.arguments.size();
    const uint8_t combine = s.has("and")   ? with_and
                            : s.has("or")  ? with_or
                            : s.has("xor") ? with_xor
                                           : plain;
    if (n != (combine == plain ? 3 : 4)) throw UnknownForm{};
    Instruction& in = b.emit(setp_of(type, compare_named(s.opcode[1])));
    in.mode = combine;
    in.count = s.has("ftz");
    const Argument& to = s.arguments[0];
    if (to.kind == Argument::Kind::pair) {
        in.count |= 2;
        b.write(&Instruction::d, to.parts[0], 1);
        b.write(&Instruction::e, to.parts[1], 1);
    } else {
        b.write(&Instruction::d, to, 1);
    }
    b.read(&Instruction::a, s.arguments[1], bits);
    b.read(&Instruction::b, s.arguments[2], bits);
    if (combine == plain) return;
    if (s.arguments[3].negated) throw UnknownForm{};
    b.read(&Instruction::c, s.arguments[3], 1);
}

template <class T>
Step run_selp(Warp& w, const Instruction& in) {
    const T *a = w.lanes<T>(in.a), *b = w.lanes<T>(in.b);
    const uint32_t p = w.predicate(in.c);
    T out[32];
    for (int i = 0; i < 32; ++i) out[i] = p >> i & 1 ? a[i] : b[i];
    w.store(in.d, out);
    return Step::next;
}

void decode_selp(Builder& b, const Statement& s) {
    allow_no_modifiers(s);
    const unsigned bits = bits_of(s.last_type());
    decode_three(b, s,
                 bits == 16   ? run_selp<uint16_t>
                 : bits == 32 ? run_selp<uint32_t>
                              : run_selp<uint64_t>,
                 bits, bits, 1);
}

template <class T, class C>
Step run_slct(Warp& w, const Instruction& in) {
    const T *a = w.lanes<T>(in.a), *b = w.lanes<T>(in.b);
    const C* c = w.lanes<C>(in.c);
    T out[32];
    for (int i = 0; i < 32; ++i) out[i] = c[i] >= 0 ? a[i] : b[i];
    w.store(in.d, out);
    return Step::next;
}

void decode_slct(Builder& b, const Statement& s) {
    allow_no_modifiers(s);
    const unsigned bits = bits_of(s.type(0));
    const bool by_float = s.type(1) == Type::f32;
    if (bits == 32)
        return decode_three(
            b, s, by_float ? run_slct<uint32_t, float> : run_slct<uint32_t, int32_t>, 32, 32, 32);
    if (bits != 64) throw UnknownForm{};
    decode_three(b, s, by_float ? run_slct<uint64_t, float> : run_slct<uint64_t, int32_t>, 64, 64,
                 32);
}

}  // namespace

std::vector<DecoderEntry> compare_decoders() {
    return {{"setp", decode_setp}, {"selp", decode_selp}, {"slct", decode_slct}};
}

}  // namespace emulator
