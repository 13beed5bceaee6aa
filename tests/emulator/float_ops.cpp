// Implements arithmetic on float32 and float64.
#include <bit>
#include <cmath>
#include <limits>

#include "tests/emulator/lanes.hpp"
#include "tests/emulator/small_floats.hpp"

namespace emulator {

void decode_half(Builder& b, const Statement& s);  // half_ops.cpp

namespace {

enum Mode : uint8_t { flush = 1, saturate = 2 };

// Computed NaNs have one bit pattern.
inline float clean(float x) {
    return x != x ? std::bit_cast<float>(0x7FFFFFFFu) : x;
}
inline double clean(double x) {
    return x != x ? std::bit_cast<double>(0x7FFFFFFFFFFFFFFFull) : x;
}
inline float flushed(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    return bits & 0x7F800000 ? x : std::bit_cast<float>(bits & 0x80000000);
}
inline double flushed(double x) {
    return x;
}

template <class T>
T finished(T x, uint8_t mode) {
    if (mode & flush) x = flushed(x);
    if (mode & saturate) x = x > 0 ? (x < 1 ? x : T{1}) : T{0};
    return x;
}

template <class T, auto op, int n, bool plain>
Step run_float(Warp& w, const Instruction& in) {
    const T *a = w.lanes<T>(in.a), *b = w.lanes<T>(in.b), *c = w.lanes<T>(in.c);
    T out[32];
    for (int i = 0; i < 32; ++i) {
        T x = a[i], y{}, z{};
        if constexpr (n > 1) y = b[i];
        if constexpr (n > 2) z = c[i];
        if constexpr (!plain) {
            if (in.mode & flush) x = flushed(x), y = flushed(y), z = flushed(z);
        }
        if constexpr (n == 1)
            out[i] = op(x);
        else if constexpr (n == 2)
            out[i] = op(x, y);
        else
            out[i] = op(x, y, z);
        if constexpr (!plain) out[i] = finished(out[i], in.mode);
    }
    w.store(in.d, out);
    return Step::next;
}

// A test per lane would be slow, so inactive lanes are computed as well.
template <class T, auto op, int n>
void decode_float(Builder& b, const Statement& s) {
    if (s.last_type() != (sizeof(T) == 4 ? Type::f32 : Type::f64)) throw UnknownForm{};
    uint8_t mode = 0;
    if (s.has("ftz") && sizeof(T) == 4) mode |= flush;
    if (s.has("sat")) mode |= saturate;
    const Handler run = mode ? run_float<T, op, n, false> : run_float<T, op, n, true>;
    constexpr unsigned bits = 8 * sizeof(T);
    if constexpr (n == 1)
        decode_one(b, s, run, bits, bits);
    else if constexpr (n == 2)
        decode_two(b, s, run, bits, bits, bits);
    else
        decode_three(b, s, run, bits, bits, bits);
    b.last().mode = mode;
}

template <class T>
constexpr auto sum = [](T a, T b) { return clean(a + b); };
template <class T>
constexpr auto difference = [](T a, T b) { return clean(a - b); };
template <class T>
constexpr auto product = [](T a, T b) { return clean(a * b); };
template <class T>
constexpr auto fused = [](T a, T b, T c) { return clean(std::fma(a, b, c)); };
template <class T>
constexpr auto quotient = [](T a, T b) { return clean(a / b); };
template <class T>
constexpr auto reciprocal = [](T a) { return clean(T{1} / a); };
template <class T>
constexpr auto root = [](T a) { return clean(std::sqrt(a)); };
template <class T>
constexpr auto inverse_root = [](T a) { return clean(T{1} / std::sqrt(a)); };
template <class T>
constexpr auto negative = [](T a) { return -a; };
template <class T>
constexpr auto magnitude = [](T a) { return std::fabs(a); };
// copysign.f32 d, a, b takes the sign of a and the magnitude of b.
template <class T>
constexpr auto with_sign = [](T a, T b) { return std::copysign(b, a); };

// Equal values differ in the sign of zero only, and -0 is the smaller.
inline float both_bits(float a, float b, bool either) {
    const auto x = std::bit_cast<uint32_t>(a), y = std::bit_cast<uint32_t>(b);
    return std::bit_cast<float>(either ? x | y : x & y);
}
inline double both_bits(double a, double b, bool either) {
    const auto x = std::bit_cast<uint64_t>(a), y = std::bit_cast<uint64_t>(b);
    return std::bit_cast<double>(either ? x | y : x & y);
}
template <class T, bool is_max>
inline T extreme(T a, T b) {
    const T chosen = (is_max ? a > b : a < b) ? a : b;
    return a == b ? both_bits(a, b, !is_max) : chosen;
}
// Returns the number if the other operand is NaN.
template <class T, bool is_max>
constexpr auto number_extreme = [](T a, T b) {
    const T value = extreme<T, is_max>(a, b);
    const T first = b != b ? a : value;
    return clean(a != a ? b : first);
};
template <class T, bool is_max>
constexpr auto nan_extreme = [](T a, T b) {
    const T value = extreme<T, is_max>(a, b);
    return clean(a != a || b != b ? a + b : value);
};

// Computes fma with a rounding direction, from the sum in double and its rounding error.
template <Rounding rounding>
float directed(float a, float b, float c) {
    const double exact = sum_to_odd(static_cast<double>(a) * b, c);
    const auto near = static_cast<float>(exact);
    if (!std::isfinite(exact) || near == exact) return clean(near);
    const bool is_negative = exact < 0;
    const bool wants_down =
        rounding == Rounding::down || (rounding == Rounding::zero && !is_negative);
    constexpr float infinity = std::numeric_limits<float>::infinity();
    if (wants_down) return near > exact ? std::nextafter(near, -infinity) : near;
    return near < exact ? std::nextafter(near, infinity) : near;
}
template <Rounding r>
constexpr auto directed_fused = [](float a, float b, float c) { return directed<r>(a, b, c); };
template <Rounding r>
constexpr auto directed_sum = [](float a, float b) { return directed<r>(a, 1.0f, b); };
template <Rounding r>
constexpr auto directed_difference = [](float a, float b) { return directed<r>(a, 1.0f, -b); };
template <Rounding r>
constexpr auto directed_product = [](float a, float b) { return directed<r>(a, b, -0.0f); };

using Modifiers = const Statement&;

bool is_double(Modifiers s) {
    return s.last_type() == Type::f64;
}
bool is_half(Modifiers s) {
    const Type type = s.last_type();
    return type == Type::f16 || type == Type::bf16 || type == Type::f16x2 || type == Type::bf16x2;
}
bool is_directed(Modifiers s) {
    return s.has("rz") || s.has("rm") || s.has("rp");
}

// Three forms of an operation, chosen by its rounding.
template <auto zero, auto down, auto up, int n>
void decode_directed(Builder& b, const Statement& s) {
    if (is_double(s)) throw UnknownForm{};
    if (s.has("rz")) return decode_float<float, zero, n>(b, s);
    if (s.has("rm")) return decode_float<float, down, n>(b, s);
    decode_float<float, up, n>(b, s);
}

#define EMULATOR_ROUNDED(name, op, other, n)                                     \
    void name(Builder& b, const Statement& s) {                                  \
        if (is_half(s)) return decode_half(b, s);                                \
        allow_modifiers(s, "rn", "rz", "rm", "rp", "ftz", "sat");                \
        if (is_directed(s))                                                      \
            return decode_directed<other<Rounding::zero>, other<Rounding::down>, \
                                   other<Rounding::up>, n>(b, s);                \
        is_double(s) ? decode_float<double, op<double>, n>(b, s)                 \
                     : decode_float<float, op<float>, n>(b, s);                  \
    }
EMULATOR_ROUNDED(decode_add, sum, directed_sum, 2)
EMULATOR_ROUNDED(decode_sub, difference, directed_difference, 2)
EMULATOR_ROUNDED(decode_mul, product, directed_product, 2)
EMULATOR_ROUNDED(decode_fma, fused, directed_fused, 3)
#undef EMULATOR_ROUNDED

// The approximate forms are computed as exactly as the host can.
#define EMULATOR_NEAREST(name, op, n)                            \
    void name(Builder& b, const Statement& s) {                  \
        allow_modifiers(s, "rn", "approx", "full", "ftz");       \
        is_double(s) ? decode_float<double, op<double>, n>(b, s) \
                     : decode_float<float, op<float>, n>(b, s);  \
    }
EMULATOR_NEAREST(decode_div, quotient, 2)
EMULATOR_NEAREST(decode_rcp, reciprocal, 1)
EMULATOR_NEAREST(decode_sqrt, root, 1)
EMULATOR_NEAREST(decode_rsqrt, inverse_root, 1)
#undef EMULATOR_NEAREST

#define EMULATOR_SIGN(name, op, n)                               \
    void name(Builder& b, const Statement& s) {                  \
        if (is_half(s)) return decode_half(b, s);                \
        allow_modifiers(s, "ftz");                               \
        is_double(s) ? decode_float<double, op<double>, n>(b, s) \
                     : decode_float<float, op<float>, n>(b, s);  \
    }
EMULATOR_SIGN(decode_neg, negative, 1)
EMULATOR_SIGN(decode_abs, magnitude, 1)
EMULATOR_SIGN(decode_copysign, with_sign, 2)
#undef EMULATOR_SIGN

template <bool is_max>
void decode_extreme(Builder& b, const Statement& s) {
    if (is_half(s)) return decode_half(b, s);
    allow_modifiers(s, "ftz", "NaN");
    if (is_double(s)) return decode_float<double, number_extreme<double, is_max>, 2>(b, s);
    if (s.has("NaN")) return decode_float<float, nan_extreme<float, is_max>, 2>(b, s);
    decode_float<float, number_extreme<float, is_max>, 2>(b, s);
}

constexpr auto power_of_two = [](float a) { return clean(std::exp2(a)); };
constexpr auto logarithm = [](float a) { return clean(std::log2(a)); };
constexpr auto sine = [](float a) { return clean(std::sin(a)); };
constexpr auto cosine = [](float a) { return clean(std::cos(a)); };
constexpr auto hyperbolic_tangent = [](float a) { return clean(std::tanh(a)); };

template <auto op>
void decode_function(Builder& b, const Statement& s) {
    if (s.last_type() != Type::f32) throw UnknownForm{};
    allow_modifiers(s, "approx", "ftz");
    decode_float<float, op, 1>(b, s);
}

bool has_property(float x, std::string_view property) {
    const int kind = std::fpclassify(x);
    if (property == "finite") return std::isfinite(x);
    if (property == "infinite") return kind == FP_INFINITE;
    if (property == "number") return kind != FP_NAN;
    if (property == "notanumber") return kind == FP_NAN;
    return property == "normal" ? kind == FP_NORMAL : kind == FP_SUBNORMAL;
}

constexpr std::string_view properties[] = {"finite",     "infinite", "number",
                                           "notanumber", "normal",   "subnormal"};

Step run_testp(Warp& w, const Instruction& in) {
    uint32_t bits = 0;
    const auto* a = w.lanes<float>(in.a);
    for (int i = 0; i < 32; ++i)
        bits |= static_cast<uint32_t>(has_property(a[i], properties[in.mode])) << i;
    w.store_predicate(in.d, bits);
    return Step::next;
}

void decode_testp(Builder& b, const Statement& s) {
    if (s.last_type() != Type::f32) throw UnknownForm{};
    for (uint8_t i = 0; i < 6; ++i) {
        if (!s.has(properties[i])) continue;
        decode_one(b, s, run_testp, 1, 32);
        b.last().mode = i;
        return;
    }
    throw UnknownForm{};
}

}  // namespace

std::vector<DecoderEntry> float_decoders() {
    return {{"add", decode_add},
            {"sub", decode_sub},
            {"mul", decode_mul},
            {"fma", decode_fma},
            {"mad", decode_fma},
            {"div", decode_div},
            {"rcp", decode_rcp},
            {"sqrt", decode_sqrt},
            {"rsqrt", decode_rsqrt},
            {"neg", decode_neg},
            {"abs", decode_abs},
            {"copysign", decode_copysign},
            {"min", decode_extreme<false>},
            {"max", decode_extreme<true>},
            {"ex2", decode_function<power_of_two>},
            {"lg2", decode_function<logarithm>},
            {"sin", decode_function<sine>},
            {"cos", decode_function<cosine>},
            {"tanh", decode_function<hyperbolic_tangent>},
            {"testp", decode_testp}};
}

}  // namespace emulator
