// Implements arithmetic on 16-bit floats, alone and in pairs: exact in double, rounded once.
#include <cmath>

#include "tests/emulator/lanes.hpp"
#include "tests/emulator/small_floats.hpp"

namespace emulator {

void decode_half(Builder& b, const Statement& s);

namespace {

enum class Operation : uint8_t { add, sub, mul, fma, min, max, neg, abs };
enum Mode : uint8_t { flush = 1, saturate = 2, nan = 4, relu = 8 };

double nan_or(double a, double b, bool wants_nan, bool is_max) {
    if (std::isnan(a) || std::isnan(b)) {
        if (wants_nan || (std::isnan(a) && std::isnan(b))) return NAN;
        return std::isnan(a) ? b : a;
    }
    if (a == b) return is_max == std::signbit(a) ? b : a;
    return (is_max ? a > b : a < b) ? a : b;
}

double computed(Operation operation, double a, double b, double c, uint8_t mode) {
    switch (operation) {
        case Operation::add:
            return sum_to_odd(a, b);
        case Operation::sub:
            return sum_to_odd(a, -b);
        case Operation::mul:
            return a * b;
        case Operation::fma:
            return sum_to_odd(a * b, c);
        default:
            return nan_or(a, b, mode & nan, operation == Operation::max);
    }
}

template <bool is_bf16>
struct Value {
    static double decode(uint16_t bits) {
        return is_bf16 ? float_of_bf16(bits) : float_of_f16(bits);
    }
    static uint16_t encode(double x) { return encode_half(x, is_bf16 ? bf16_format : f16_format); }
};

template <bool is_bf16>
uint16_t one_value(Operation operation, uint16_t a, uint16_t b, uint16_t c, uint8_t mode) {
    using V = Value<is_bf16>;
    if (operation == Operation::neg) return a ^ 0x8000;
    if (operation == Operation::abs) return a & 0x7FFF;
    double x = computed(operation, V::decode(a), V::decode(b), V::decode(c), mode);
    if (mode & saturate) x = x > 0 ? (x < 1 ? x : 1.0) : 0.0;
    if ((mode & relu) && !(x > 0)) x = std::isnan(x) ? x : 0.0;
    return V::encode(x);
}

template <class T, bool is_bf16>
Step run_half(Warp& w, const Instruction& in) {
    const T *a = w.lanes<T>(in.a), *b = w.lanes<T>(in.b), *c = w.lanes<T>(in.c);
    const auto operation = static_cast<Operation>(in.count);
    T out[32];
    for (int i = 0; i < 32; ++i) {
        uint32_t value = 0;
        for (unsigned part = 0; part < 8 * sizeof(T); part += 16)
            value |= static_cast<uint32_t>(
                         one_value<is_bf16>(operation, static_cast<uint16_t>(a[i] >> part),
                                            static_cast<uint16_t>(b[i] >> part),
                                            static_cast<uint16_t>(c[i] >> part), in.mode))
                     << part;
        out[i] = static_cast<T>(value);
    }
    w.store(in.d, out);
    return Step::next;
}

Operation operation_named(std::string_view name) {
    constexpr std::pair<std::string_view, Operation> names[] = {
        {"add", Operation::add}, {"sub", Operation::sub}, {"mul", Operation::mul},
        {"fma", Operation::fma}, {"min", Operation::min}, {"max", Operation::max},
        {"neg", Operation::neg}, {"abs", Operation::abs}};
    for (const auto& [known, operation] : names)
        if (known == name) return operation;
    throw UnknownForm{};
}

}  // namespace

void decode_half(Builder& b, const Statement& s) {
    allow_modifiers(s, "rn", "NaN", "relu", "sat");
    const Type type = s.last_type();
    const bool is_bf16 = type == Type::bf16 || type == Type::bf16x2;
    const unsigned bits = bits_of(type);
    Handler run = bits == 32 ? (is_bf16 ? run_half<uint32_t, true> : run_half<uint32_t, false>)
                             : (is_bf16 ? run_half<uint16_t, true> : run_half<uint16_t, false>);
    const size_t n = s.arguments.size();
    if (n == 2)
        decode_one(b, s, run, bits, bits);
    else if (n == 3)
        decode_two(b, s, run, bits, bits, bits);
    else
        decode_three(b, s, run, bits, bits, bits);
    b.last().count = static_cast<uint8_t>(operation_named(s.opcode[0]));
    b.last().mode = static_cast<uint8_t>((s.has("sat") ? saturate : 0) | (s.has("NaN") ? nan : 0) |
                                         (s.has("relu") ? relu : 0));
}

}  // namespace emulator
