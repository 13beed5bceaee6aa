// Element codes against formulas in double precision: every code of the 8- and 4-bit types and all
// f16 codes; encoders against a search of the nearest code, ties to even.
#include "libmoe/base/element.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "tests/formats/matrices.hpp"

namespace moe {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

double small_float(int code, int exponent_bits, int mantissa_bits, int bias) {
    const int mantissa = code & ((1 << mantissa_bits) - 1);
    const int exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1);
    const double fraction = std::ldexp(mantissa, -mantissa_bits);
    const double magnitude =
        exponent ? std::ldexp(1 + fraction, exponent - bias) : std::ldexp(fraction, 1 - bias);
    return code >> (exponent_bits + mantissa_bits) & 1 ? -magnitude : magnitude;
}

double e4m3(int code) {
    return (code & 0x7F) == 0x7F ? nan : small_float(code, 4, 3, 7);
}
double e2m1(int code) {
    return small_float(code & 15, 2, 1, 1);
}
double e4m4(int code) {
    return small_float(code, 4, 4, 11);
}

double f16(int code) {
    if ((code >> 10 & 31) != 31) return small_float(code, 5, 10, 15);
    if (code & 0x3FF) return nan;
    return code & 0x8000 ? -infinity : infinity;
}

TEST(Element, DecodesEveryE4m3) {
    for (int code = 0; code < 256; ++code) {
        EXPECT_TRUE(test::same_float(e4m3_to_f32(uint8_t(code)), float(e4m3(code)))) << code;
    }
    EXPECT_EQ(e4m3_to_f32(0x7E), 448.0f);
    EXPECT_EQ(e4m3_to_f32(0xFE), -448.0f);
    EXPECT_EQ(e4m3_to_f32(0x01), 0x1p-9f);
    EXPECT_EQ(e4m3_to_f32(0x07), 7 * 0x1p-9f);
    EXPECT_EQ(e4m3_to_f32(0x08), 0x1p-6f);
    EXPECT_EQ(e4m3_to_f32(0x38), 1.0f);
    EXPECT_EQ(e4m3_to_f32(0x40), 2.0f);
    EXPECT_EQ(e4m3_to_f32(0xB8), -1.0f);
    EXPECT_TRUE(std::signbit(e4m3_to_f32(0x80)));
}

TEST(Element, DecodesEveryE8m0) {
    for (int code = 0; code < 255; ++code) {
        EXPECT_EQ(e8m0_to_f32(uint8_t(code)), float(std::ldexp(1.0, code - 127))) << code;
    }
    EXPECT_TRUE(std::isnan(e8m0_to_f32(0xFF)));
    EXPECT_EQ(e8m0_to_f32(0x7F), 1.0f);
    EXPECT_EQ(e8m0_to_f32(0x80), 2.0f);
    EXPECT_EQ(e8m0_to_f32(0x00), 0x1p-127f);
}

TEST(Element, DecodesEveryE4m4) {
    for (int code = 0; code < 256; ++code) {
        EXPECT_EQ(e4m4_to_f32(uint8_t(code)), float(e4m4(code))) << code;
    }
    EXPECT_EQ(e4m4_to_f32(0x00), 0.0f);
    EXPECT_EQ(e4m4_to_f32(0x01), 0x1p-14f);
    EXPECT_EQ(e4m4_to_f32(0x0F), 15 * 0x1p-14f);
    EXPECT_EQ(e4m4_to_f32(0x10), 0x1p-10f);
    EXPECT_EQ(e4m4_to_f32(0xB0), 1.0f);
    EXPECT_EQ(e4m4_to_f32(0xB8), 1.5f);
    EXPECT_EQ(e4m4_to_f32(0xFF), 31.0f);
}

TEST(Element, DecodesEveryE2m1) {
    const float expected[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    for (int code = 0; code < 16; ++code) {
        const float value = code < 8 ? expected[code] : -expected[code - 8];
        EXPECT_TRUE(test::same_float(e2m1_to_f32(uint8_t(code)), value)) << code;
        EXPECT_TRUE(test::same_float(e2m1_to_f32(uint8_t(code)), float(e2m1(code)))) << code;
    }
    for (int byte = 0; byte < 256; ++byte) {
        const float low = e2m1_pairs.pair[byte].low;
        const float high = e2m1_pairs.pair[byte].high;
        EXPECT_TRUE(test::same_float(low, float(e2m1(byte & 15)))) << byte;
        EXPECT_TRUE(test::same_float(high, float(e2m1(byte >> 4)))) << byte;
    }
}

TEST(Element, DecodesEveryF16AndBf16) {
    for (int code = 0; code < 65536; ++code) {
        ASSERT_TRUE(test::same_float(f16_to_float(uint16_t(code)), float(f16(code)))) << code;
        const uint32_t bits = std::bit_cast<uint32_t>(bf16_to_float(uint16_t(code)));
        ASSERT_EQ(bits, uint32_t(code) << 16);
    }
}

TEST(Element, EncodesEveryValueOfAType) {
    for (int code = 0; code < 65536; ++code) {
        const float half = f16_to_float(uint16_t(code));
        if (!std::isnan(half)) {
            ASSERT_EQ(float_to_f16(half), code);
        }
        const float brain = bf16_to_float(uint16_t(code));
        if (!std::isnan(brain)) {
            ASSERT_EQ(float_to_bf16(brain), code);
        }
    }
    for (int code = 0; code < 256; ++code) {
        if ((code & 0x7F) != 0x7F) {
            EXPECT_EQ(f32_to_e4m3(e4m3_to_f32(uint8_t(code))), code);
        }
        EXPECT_EQ(f32_to_e4m4(e4m4_to_f32(uint8_t(code))), code);
    }
    for (int code = 0; code < 16; ++code) {
        EXPECT_EQ(f32_to_e2m1(e2m1_to_f32(uint8_t(code))), code == 8 ? 0 : code);
    }
}

// Between neighbouring codes a and a + 1: the halfway value goes to the even code, values one float
// off it go to the nearer code.
template <class Encode, class Decode>
void check_halfways(Encode encode, Decode decode, int last) {
    for (int code = 0; code < last; ++code) {
        const double middle = (double(decode(code)) + double(decode(code + 1))) / 2;
        const float halfway = static_cast<float>(middle);
        ASSERT_EQ(halfway, middle);
        EXPECT_EQ(encode(halfway), code & 1 ? code + 1 : code) << middle;
        EXPECT_EQ(encode(std::nextafter(halfway, 0.0f)), code) << middle;
        EXPECT_EQ(encode(std::nextafter(halfway, INFINITY)), code + 1) << middle;
    }
}

TEST(Element, EncodesHalfwaysToEven) {
    check_halfways(
        float_to_f16, [](int code) { return f16(code); }, 0x7BFF);
    check_halfways(
        float_to_bf16, [](int code) { return bf16_to_float(uint16_t(code)); }, 0x7F7F);
    check_halfways(f32_to_e4m3, e4m3, 0x7E);
    check_halfways(f32_to_e4m4, e4m4, 0xFF);
    check_halfways(f32_to_e2m1, e2m1, 7);
}

TEST(Element, EncodesE2m1TiesByTheTable) {
    const struct {
        float value;
        float expected;
    } ties[] = {{0.25f, 0}, {0.75f, 1}, {1.25f, 1}, {1.75f, 2}, {2.5f, 2}, {3.5f, 4}, {5.0f, 4}};
    for (const auto& tie : ties) {
        EXPECT_EQ(e2m1_to_f32(f32_to_e2m1(tie.value)), tie.expected) << tie.value;
        EXPECT_EQ(e2m1_to_f32(f32_to_e2m1(-tie.value)), -tie.expected) << tie.value;
    }
    EXPECT_EQ(f32_to_e2m1(100.0f), 7);
    EXPECT_EQ(f32_to_e2m1(-INFINITY), 15);
    EXPECT_EQ(f32_to_e2m1(-0.0f), 0);
    EXPECT_EQ(f32_to_e2m1(-0.1f), 8);
}

TEST(Element, EncodesTheEdges) {
    EXPECT_EQ(float_to_f16(65519.0f), 0x7BFF);
    EXPECT_EQ(float_to_f16(65520.0f), 0x7C00);
    EXPECT_EQ(float_to_f16(-INFINITY), 0xFC00);
    EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(NAN))));
    EXPECT_EQ(float_to_bf16(INFINITY), 0x7F80);
    EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7F800001u)))));
    EXPECT_EQ(f32_to_e4m3(1e30f), 0x7E);
    EXPECT_EQ(f32_to_e4m3(-INFINITY), 0xFE);
    EXPECT_EQ(f32_to_e4m3(NAN) & 0x7F, 0x7F);
    EXPECT_EQ(f32_to_e4m4(32.0f), 0xFF);
    EXPECT_EQ(f32_to_e4m4(1e30f), 0xFF);
    EXPECT_EQ(f32_to_e4m4(0x1p-15f), 0);
    EXPECT_EQ(f32_to_e4m4(-1.0f), 0);
    EXPECT_EQ(f32_to_e4m4(NAN), 0);
    EXPECT_EQ(f32_to_e4m4(1.99f), 0xC0);  // the mantissa carries into the exponent
}

}  // namespace
}  // namespace moe
