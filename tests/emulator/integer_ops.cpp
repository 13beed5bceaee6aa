// Implements arithmetic on integers.
#include <algorithm>
#include <type_traits>

#include "tests/emulator/lanes.hpp"

namespace emulator {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

template <class T>
constexpr auto add_of = [](T a, T b) { return static_cast<Unsigned<T>>(Unsigned<T>(a) + b); };
template <class T>
constexpr auto sub_of = [](T a, T b) { return static_cast<Unsigned<T>>(Unsigned<T>(a) - b); };
template <class T>
constexpr auto low_product_of = [](T a, T b) { return static_cast<T>(uint64_t(a) * uint64_t(b)); };
template <class T>
constexpr auto min_of = [](T a, T b) { return a < b ? a : b; };
template <class T>
constexpr auto max_of = [](T a, T b) { return a < b ? b : a; };
template <class T>
constexpr auto neg_of = [](T a) { return static_cast<T>(uint64_t{0} - uint64_t(a)); };
template <class T>
constexpr auto abs_of = [](T a) { return a < 0 ? static_cast<T>(uint64_t{0} - uint64_t(a)) : a; };

// Division by zero gives all ones, and the remainder is the dividend, which matches the hardware.
template <class T>
constexpr auto quotient_of = [](T a, T b) {
    if (b == 0) return static_cast<T>(-1);
    if constexpr (std::is_signed_v<T>)
        if (b == -1) return static_cast<T>(uint64_t{0} - uint64_t(a));
    return static_cast<T>(a / b);
};
template <class T>
constexpr auto remainder_of = [](T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>)
        if (b == -1) return T{0};
    return static_cast<T>(a % b);
};

template <class T>
T high_product(T a, T b) {
    if constexpr (sizeof(T) == 8) {
        using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
        return static_cast<T>(static_cast<Wide>(a) * b >> 64);
    } else {
        using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
        return static_cast<T>(static_cast<Wide>(a) * b >> 8 * sizeof(T));
    }
}
template <class T>
constexpr auto high_product_of = [](T a, T b) { return high_product(a, b); };

template <class T>
struct Twice;
template <>
struct Twice<int16_t> {
    using type = int32_t;
};
template <>
struct Twice<uint16_t> {
    using type = uint32_t;
};
template <>
struct Twice<int32_t> {
    using type = int64_t;
};
template <>
struct Twice<uint32_t> {
    using type = uint64_t;
};

// Calls make with a value of the C++ type, u16 to s64.
template <class F>
void with_type(Type type, F&& make) {
    switch (type) {
        case Type::u16:
        case Type::b16:
            return make(uint16_t{});
        case Type::s16:
            return make(int16_t{});
        case Type::u32:
        case Type::b32:
            return make(uint32_t{});
        case Type::s32:
            return make(int32_t{});
        case Type::u64:
        case Type::b64:
            return make(uint64_t{});
        case Type::s64:
            return make(int64_t{});
        default:
            throw UnknownForm{};
    }
}

#define EMULATOR_TWO(name, op)                                       \
    void name(Builder& b, const Statement& s) {                      \
        allow_no_modifiers(s);                                       \
        with_type(s.last_type(), [&](auto zero) {                    \
            using T = decltype(zero);                                \
            constexpr unsigned bits = 8 * sizeof(T);                 \
            decode_two(b, s, two<T, T, T, op<T>>, bits, bits, bits); \
        });                                                          \
    }

EMULATOR_TWO(whole_add, add_of)
EMULATOR_TWO(whole_sub, sub_of)
EMULATOR_TWO(whole_div, quotient_of)
EMULATOR_TWO(decode_rem, remainder_of)
EMULATOR_TWO(whole_min, min_of)
EMULATOR_TWO(whole_max, max_of)
#undef EMULATOR_TWO

void whole_neg(Builder& b, const Statement& s) {
    allow_no_modifiers(s);
    with_type(s.last_type(), [&](auto zero) {
        using T = decltype(zero);
        decode_one(b, s, one<T, T, neg_of<T>>, 8 * sizeof(T), 8 * sizeof(T));
    });
}

void whole_abs(Builder& b, const Statement& s) {
    allow_no_modifiers(s);
    with_type(s.last_type(), [&](auto zero) {
        using T = decltype(zero);
        if constexpr (std::is_signed_v<T>)
            decode_one(b, s, one<T, T, abs_of<T>>, 8 * sizeof(T), 8 * sizeof(T));
        else
            throw UnknownForm{};
    });
}

template <class T>
constexpr auto wide_product_of = [](T a, T b) {
    using Wide = typename Twice<T>::type;
    return static_cast<Wide>(static_cast<Wide>(a) * static_cast<Wide>(b));
};

void whole_mul(Builder& b, const Statement& s) {
    allow_modifiers(s, "lo", "hi", "wide");
    with_type(s.last_type(), [&](auto zero) {
        using T = decltype(zero);
        constexpr unsigned bits = 8 * sizeof(T);
        if (s.has("lo")) return decode_two(b, s, two<T, T, T, low_product_of<T>>, bits, bits, bits);
        if (s.has("hi"))
            return decode_two(b, s, two<T, T, T, high_product_of<T>>, bits, bits, bits);
        if constexpr (sizeof(T) < 8) {
            using Wide = typename Twice<T>::type;
            if (s.has("wide"))
                return decode_two(b, s, two<Wide, T, T, wide_product_of<T>>, 2 * bits, bits, bits);
        }
        throw UnknownForm{};
    });
}

template <class T>
constexpr auto low_sum_of =
    [](T a, T b, T c) { return static_cast<T>(uint64_t(a) * uint64_t(b) + uint64_t(c)); };
template <class T>
constexpr auto high_sum_of =
    [](T a, T b, T c) { return static_cast<T>(uint64_t(high_product(a, b)) + uint64_t(c)); };
template <class T>
constexpr auto wide_sum_of = [](T a, T b, typename Twice<T>::type c) {
    using Wide = typename Twice<T>::type;
    return static_cast<Wide>(uint64_t(static_cast<Wide>(a) * static_cast<Wide>(b)) + uint64_t(c));
};

void whole_mad(Builder& b, const Statement& s) {
    allow_modifiers(s, "lo", "hi", "wide");
    with_type(s.last_type(), [&](auto zero) {
        using T = decltype(zero);
        constexpr unsigned bits = 8 * sizeof(T);
        if (s.has("lo")) return decode_three(b, s, three<T, T, T, low_sum_of<T>>, bits, bits, bits);
        if (s.has("hi"))
            return decode_three(b, s, three<T, T, T, high_sum_of<T>>, bits, bits, bits);
        if constexpr (sizeof(T) < 8) {
            using Wide = typename Twice<T>::type;
            if (s.has("wide"))
                return decode_three(b, s, three<Wide, T, Wide, wide_sum_of<T>>, 2 * bits, bits,
                                    2 * bits);
        }
        throw UnknownForm{};
    });
}

template <class T>
constexpr auto distance_of = [](T a, T b, T c) {
    return static_cast<T>(c + (a < b ? uint64_t(b) - uint64_t(a) : uint64_t(a) - uint64_t(b)));
};

void decode_sad(Builder& b, const Statement& s) {
    allow_no_modifiers(s);
    with_type(s.last_type(), [&](auto zero) {
        using T = decltype(zero);
        constexpr unsigned bits = 8 * sizeof(T);
        decode_three(b, s, three<T, T, T, distance_of<T>>, bits, bits, bits);
    });
}

template <class A, class B>
uint32_t four_products(uint32_t a, uint32_t b, uint32_t c) {
    for (int i = 0; i < 32; i += 8)
        c += static_cast<uint32_t>(static_cast<A>(a >> i) * static_cast<B>(b >> i));
    return c;
}
template <class A, class B>
constexpr auto four_products_of =
    [](uint32_t a, uint32_t b, uint32_t c) { return four_products<A, B>(a, b, c); };

void decode_dp4a(Builder& b, const Statement& s) {
    allow_no_modifiers(s);
    using U = uint32_t;
    const bool first = is_signed(s.type(0)), second = is_signed(s.type(1));
    const Handler run = first ? (second ? three<U, U, U, four_products_of<int8_t, int8_t>>
                                        : three<U, U, U, four_products_of<int8_t, uint8_t>>)
                              : (second ? three<U, U, U, four_products_of<uint8_t, int8_t>>
                                        : three<U, U, U, four_products_of<uint8_t, uint8_t>>);
    decode_three(b, s, run, 32, 32, 32);
}

bool is_whole(const Statement& s) {
    const Type type = s.last_type();
    return !is_float(type) && type != Type::f16x2 && type != Type::bf16x2;
}

Decoder float_decoder(std::string_view name) {
    static const auto table = float_decoders();
    for (const DecoderEntry& entry : table)
        if (entry.name == name) return entry.decode;
    throw UnknownForm{};
}

// Integers share these names with floats.
template <Decoder whole>
void by_type(Builder& b, const Statement& s) {
    if (is_whole(s)) return whole(b, s);
    float_decoder(s.opcode[0])(b, s);
}

}  // namespace

std::vector<DecoderEntry> integer_decoders() {
    return {{"add", by_type<whole_add>}, {"sub", by_type<whole_sub>}, {"mul", by_type<whole_mul>},
            {"mad", by_type<whole_mad>}, {"div", by_type<whole_div>}, {"rem", decode_rem},
            {"min", by_type<whole_min>}, {"max", by_type<whole_max>}, {"neg", by_type<whole_neg>},
            {"abs", by_type<whole_abs>}, {"sad", decode_sad},         {"dp4a", decode_dp4a}};
}

}  // namespace emulator
