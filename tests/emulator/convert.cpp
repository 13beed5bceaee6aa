// Implements cvt between integers, floats and small floats, with the rounding and saturation of the
// PTX manual.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/emulator/lanes.hpp"
#include "tests/emulator/small_floats.hpp"

namespace emulator {
namespace {

enum Mode : uint8_t { flush = 1, saturate = 2, finite = 4, relu = 8 };

// ---- Fast paths: registers as wide as their types.

template <class D, class A>
constexpr auto cast_to = [](A a) { return static_cast<D>(a); };

template <class D, class A>
Handler plain_cast() {
    return one<D, A, cast_to<D, A>>;
}

template <class D>
Handler cast_from(Type from) {
    switch (from) {
        case Type::u16:
            return plain_cast<D, uint16_t>();
        case Type::s16:
            return plain_cast<D, int16_t>();
        case Type::u32:
            return plain_cast<D, uint32_t>();
        case Type::s32:
            return plain_cast<D, int32_t>();
        case Type::u64:
            return plain_cast<D, uint64_t>();
        case Type::s64:
            return plain_cast<D, int64_t>();
        default:
            return nullptr;
    }
}

constexpr auto whole_of_float = [](float a) {
    if (!(a > -2147483648.0f)) return a != a ? 0 : std::numeric_limits<int32_t>::min();
    return a >= 2147483648.0f ? std::numeric_limits<int32_t>::max() : static_cast<int32_t>(a);
};
constexpr auto limited = [](float a) { return a > 0 ? (a < 1 ? a : 1.0f) : 0.0f; };
constexpr auto truncated = [](float a) { return std::trunc(a); };

Handler fast_handler(const Statement& s, Type to, Type from) {
    const bool rounds_to_nearest = s.opcode.size() == 4 && s.opcode[1] == "rn";
    const bool is_bare = s.opcode.size() == 3;
    if (is_bare && !is_float(to) && !is_float(from)) {
        if (bits_of(to) == 16) return cast_from<uint16_t>(from);
        if (bits_of(to) == 32) return cast_from<uint32_t>(from);
        if (bits_of(to) == 64) return cast_from<uint64_t>(from);
    }
    if (rounds_to_nearest && !is_float(from)) {
        if (to == Type::f32) return cast_from<float>(from);
        if (to == Type::f64) return cast_from<double>(from);
    }
    if (rounds_to_nearest && from == Type::f32) {
        if (to == Type::bf16) return one<uint16_t, float, bf16_of>;
        if (to == Type::f16) return one<uint16_t, float, f16_of>;
    }
    if (is_bare && to == Type::f32) {
        if (from == Type::f16) return one<float, uint16_t, float_of_f16>;
        if (from == Type::bf16) return one<float, uint16_t, float_of_bf16>;
    }
    if (s.text == "cvt.rzi.s32.f32") return one<int32_t, float, whole_of_float>;
    if (s.text == "cvt.sat.f32.f32") return one<float, float, limited>;
    if (s.text == "cvt.rzi.f32.f32") return one<float, float, truncated>;
    return nullptr;
}

// ---- General path, one value at a time.

// count is the width of the source register, bytes that of the destination; e and f are the types.
struct Form {
    Type to, from;
    Rounding rounding;
    bool to_whole;  // a float is rounded to a whole value
    uint8_t mode;
};

Form form_of(const Instruction& in) {
    return {static_cast<Type>(in.e), static_cast<Type>(in.f),
            static_cast<Rounding>(in.immediate & 0xFF), (in.immediate & 0x100) != 0, in.mode};
}

uint64_t lane_bits(const Warp& w, uint32_t operand, unsigned bits, int lane) {
    switch (bits) {
        case 16:
            return w.lanes<uint16_t>(operand)[lane];
        case 32:
            return w.lanes<uint32_t>(operand)[lane];
        default:
            return w.lanes<uint64_t>(operand)[lane];
    }
}

double float_value(uint64_t bits, Type type) {
    switch (type) {
        case Type::f16:
            return float_of_f16(static_cast<uint16_t>(bits));
        case Type::bf16:
            return float_of_bf16(static_cast<uint16_t>(bits));
        case Type::f32:
            return std::bit_cast<float>(static_cast<uint32_t>(bits));
        default:
            return std::bit_cast<double>(bits);
    }
}

__int128 whole_value(uint64_t bits, Type type) {
    switch (type) {
        case Type::u8:
        case Type::b8:
            return static_cast<uint8_t>(bits);
        case Type::s8:
            return static_cast<int8_t>(bits);
        case Type::u16:
        case Type::b16:
            return static_cast<uint16_t>(bits);
        case Type::s16:
            return static_cast<int16_t>(bits);
        case Type::u32:
        case Type::b32:
            return static_cast<uint32_t>(bits);
        case Type::s32:
            return static_cast<int32_t>(bits);
        case Type::s64:
            return static_cast<int64_t>(bits);
        default:
            return bits;
    }
}

double rounded_whole(double x, Rounding rounding) {
    switch (rounding) {
        case Rounding::nearest:
            return std::nearbyint(x);
        case Rounding::zero:
            return std::trunc(x);
        case Rounding::down:
            return std::floor(x);
        case Rounding::up:
            return std::ceil(x);
        default:
            return std::round(x);
    }
}

uint64_t float_bits(double x, const Form& form) {
    if (form.to_whole) x = rounded_whole(x, form.rounding);
    if (form.mode & saturate) x = x > 0 ? (x < 1 ? x : 1.0) : 0.0;
    if ((form.mode & relu) && x < 0) x = 0;
    const bool is_finite = form.mode & finite;
    switch (form.to) {
        case Type::f16:
            return encode_small(x, f16_format, form.rounding, is_finite, 15);
        case Type::bf16:
            return encode_small(x, bf16_format, form.rounding, is_finite, 15);
        case Type::f32: {
            float y = static_cast<float>(x);
            constexpr float infinity = std::numeric_limits<float>::infinity();
            const bool is_big = std::fabs(static_cast<double>(y)) > std::fabs(x);
            if (form.rounding == Rounding::zero && is_big) y = std::nextafter(y, 0.0f);
            if (form.rounding == Rounding::down && y > x) y = std::nextafter(y, -infinity);
            if (form.rounding == Rounding::up && y < x) y = std::nextafter(y, infinity);
            if ((form.mode & flush) && std::fpclassify(y) == FP_SUBNORMAL)
                y = std::copysign(0.0f, y);
            return std::isnan(y) ? 0x7FFFFFFF : std::bit_cast<uint32_t>(y);
        }
        default:
            return std::bit_cast<uint64_t>(x);
    }
}

// A saturating conversion clamps to the range of the type.
uint64_t whole_bits(__int128 value, Type to, bool limits) {
    const unsigned bits = bits_of(to);
    if (limits) {
        const __int128 one = 1;
        const __int128 low = is_signed(to) ? -(one << (bits - 1)) : 0;
        const __int128 high = (one << (is_signed(to) ? bits - 1 : bits)) - 1;
        value = value < low ? low : value > high ? high : value;
    }
    auto out = static_cast<uint64_t>(value);
    if (bits < 64) {
        out &= (uint64_t{1} << bits) - 1;
        if (is_signed(to) && out >> (bits - 1)) out |= ~uint64_t{0} << bits;
    }
    return out;
}

uint64_t converted(uint64_t bits, const Form& form) {
    if (!is_float(form.from)) {
        const __int128 value = whole_value(bits, form.from);
        if (!is_float(form.to)) return whole_bits(value, form.to, form.mode & saturate);
        if (form.to == Type::f32 && form.rounding == Rounding::nearest)
            return std::bit_cast<uint32_t>(static_cast<float>(value));
        return float_bits(static_cast<double>(value), form);
    }
    double x = float_value(bits, form.from);
    if ((form.mode & flush) && form.from == Type::f32 && std::fabs(x) < 0x1p-126)
        x = std::copysign(0.0, x);
    if (is_float(form.to)) return float_bits(x, form);
    if (std::isnan(x)) return 0;
    x = rounded_whole(x, form.rounding);
    const double bound = 0x1p100;
    return whole_bits(static_cast<__int128>(x < -bound  ? -bound
                                            : x > bound ? bound
                                                        : x),
                      form.to, true);
}

Step run_slow(Warp& w, const Instruction& in) {
    const Form form = form_of(in);
    uint64_t out[32];
    for (int i = 0; i < 32; ++i) out[i] = converted(lane_bits(w, in.a, in.count, i), form);
    if (in.bytes == 2) {
        uint16_t narrow[32];
        for (int i = 0; i < 32; ++i) narrow[i] = static_cast<uint16_t>(out[i]);
        w.store(in.d, narrow);
    } else if (in.bytes == 4) {
        uint32_t narrow[32];
        for (int i = 0; i < 32; ++i) narrow[i] = static_cast<uint32_t>(out[i]);
        w.store(in.d, narrow);
    } else {
        w.store(in.d, out);
    }
    return Step::next;
}

Rounding rounding_of(const Statement& s) {
    if (s.has("rz") || s.has("rzi")) return Rounding::zero;
    if (s.has("rm") || s.has("rmi")) return Rounding::down;
    if (s.has("rp") || s.has("rpi")) return Rounding::up;
    if (s.has("rna")) return Rounding::away;
    return Rounding::nearest;
}

uint8_t mode_of(const Statement& s) {
    return static_cast<uint8_t>((s.has("ftz") ? flush : 0) | (s.has("sat") ? saturate : 0) |
                                (s.has("satfinite") ? finite : 0) | (s.has("relu") ? relu : 0));
}

// ---- Pairs.

const SmallFormat& format_of(Type type) {
    switch (type) {
        case Type::f16x2:
            return f16_format;
        case Type::bf16x2:
            return bf16_format;
        case Type::e4m3x2:
            return e4m3_format;
        case Type::e5m2x2:
            return e5m2_format;
        case Type::e2m1x2:
            return e2m1_format;
        default:
            throw UnknownForm{};
    }
}

int part_bits(Type pair) {
    return static_cast<int>(bits_of(pair) / 2);
}

// Computes d = {a, b}, where a is the upper half.
Step run_pack(Warp& w, const Instruction& in) {
    const Form form = form_of(in);
    const SmallFormat& format = format_of(form.to);
    const int bits = part_bits(form.to);
    const auto *a = w.lanes<float>(in.a), *b = w.lanes<float>(in.b);
    uint32_t out[32];
    for (int i = 0; i < 32; ++i) {
        const auto part = [&](float x) {
            if ((form.mode & relu) && x < 0) x = 0;
            return encode_small(x, format, form.rounding, form.mode & finite, bits - 1);
        };
        out[i] = part(a[i]) << bits | part(b[i]);
    }
    if (in.bytes == 4) {
        w.store(in.d, out);
    } else {
        uint16_t narrow[32];
        for (int i = 0; i < 32; ++i) narrow[i] = static_cast<uint16_t>(out[i]);
        w.store(in.d, narrow);
    }
    return Step::next;
}

constexpr auto pack_bf16 = [](float high, float low) {
    return static_cast<uint32_t>(bf16_of(high)) << 16 | bf16_of(low);
};
constexpr auto pack_f16 = [](float high, float low) {
    return static_cast<uint32_t>(f16_of(high)) << 16 | f16_of(low);
};

// Converts two small values of 16 (or 8) bits to two halves.
Step run_unpack(Warp& w, const Instruction& in) {
    const Form form = form_of(in);
    const SmallFormat& format = format_of(form.from);
    const int bits = part_bits(form.from);
    const auto* a = w.lanes<uint16_t>(in.a);
    const uint32_t size = (1u << (bits - 1)) - 1;
    uint32_t out[32];
    for (int i = 0; i < 32; ++i) {
        out[i] = 0;
        for (int part = 0; part < 2; ++part) {
            const uint32_t code = static_cast<uint32_t>(a[i]) >> bits * part;
            double x = decode_small(code & size, format);
            if (code >> (bits - 1) & 1) x = -x;
            if ((form.mode & relu) && x < 0) x = 0;
            out[i] |= encode_small(x, format_of(form.to), Rounding::nearest, false, 15)
                      << 16 * part;
        }
    }
    w.store(in.d, out);
    return Step::next;
}

// Converts two halves to two small values of 8 bits.
Step run_narrow(Warp& w, const Instruction& in) {
    const Form form = form_of(in);
    const auto* a = w.lanes<uint32_t>(in.a);
    uint16_t out[32];
    for (int i = 0; i < 32; ++i) {
        const auto part = [&](uint32_t half) {
            float x = float_of_f16(static_cast<uint16_t>(half));
            if ((form.mode & relu) && x < 0) x = 0;
            return encode_small(x, format_of(form.to), form.rounding, form.mode & finite, 7);
        };
        out[i] = static_cast<uint16_t>(part(a[i] >> 16) << 8 | part(a[i] & 0xFFFF));
    }
    w.store(in.d, out);
    return Step::next;
}

void set_form(Instruction& in, const Statement& s, Type to, Type from) {
    in.e = static_cast<uint32_t>(to), in.f = static_cast<uint32_t>(from);
    in.mode = mode_of(s);
    const bool to_whole = s.has("rni") || s.has("rzi") || s.has("rmi") || s.has("rpi");
    in.immediate = static_cast<int64_t>(rounding_of(s)) | (to_whole ? 0x100 : 0);
}

bool is_pair(Type type) {
    return type == Type::f16x2 || type == Type::bf16x2 || type == Type::e4m3x2 ||
           type == Type::e5m2x2 || type == Type::e2m1x2;
}

void decode_pair(Builder& b, const Statement& s, Type to, Type from) {
    const unsigned to_bits = bits_of(to) == 32 ? 32 : 16;
    if (from == Type::f32) {
        const bool is_plain = s.opcode.size() == 4 && s.opcode[1] == "rn";
        const Handler fast = is_plain && to == Type::bf16x2 ? two<uint32_t, float, float, pack_bf16>
                             : is_plain && to == Type::f16x2 ? two<uint32_t, float, float, pack_f16>
                                                             : run_pack;
        decode_two(b, s, fast, to_bits, 32, 32);
        if (fast == run_pack) set_form(b.last(), s, to, from);
    } else if (from == Type::f16x2 && bits_of(to) == 16) {
        decode_one(b, s, run_narrow, 16, 32);
        set_form(b.last(), s, to, from);
    } else if (is_pair(from) && to_bits == 32) {
        decode_one(b, s, run_unpack, 32, 16);
        set_form(b.last(), s, to, from);
    } else {
        throw UnknownForm{};
    }
    b.last().bytes = static_cast<uint8_t>(to_bits / 8);
}

void decode_cvt(Builder& b, const Statement& s) {
    allow_modifiers(s, "rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "rna", "ftz", "sat",
                    "satfinite", "relu");
    const Type to = s.type(0), from = s.type(1);
    if (to == Type::none || from == Type::none || s.type(2) != Type::none) throw UnknownForm{};
    if (is_pair(to) || is_pair(from)) return decode_pair(b, s, to, from);
    if (s.arguments.size() != 2) throw UnknownForm{};
    const unsigned to_bits = b.width(s.arguments[0]);
    unsigned from_bits = b.width(s.arguments[1]);
    if (s.arguments[1].kind == Argument::Kind::number) from_bits = std::max(bits_of(from), 16u);
    if (from_bits == 0 || to_bits < bits_of(to) || from_bits < bits_of(from)) throw UnknownForm{};
    if (to_bits == bits_of(to) && from_bits == bits_of(from))
        if (const Handler fast = fast_handler(s, to, from))
            return decode_one(b, s, fast, to_bits, from_bits);
    decode_one(b, s, run_slow, to_bits, from_bits);
    set_form(b.last(), s, to, from);
    b.last().count = static_cast<uint8_t>(from_bits);
    b.last().bytes = static_cast<uint8_t>(to_bits / 8);
}

}  // namespace

std::vector<DecoderEntry> convert_decoders() {
    return {{"cvt", decode_cvt}};
}

}  // namespace emulator
