// Conversions between float32 and the 16-bit types, against values and against the definition of
// nearest.
#include "libmoe/base/half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace moe {
namespace {

TEST(Half, KnownValues) {
    EXPECT_EQ(float_to_f16(1.0f), 0x3C00);
    EXPECT_EQ(float_to_f16(-2.0f), 0xC000);
    EXPECT_EQ(float_to_f16(65504.0f), 0x7BFF);
    EXPECT_EQ(float_to_f16(65519.996f), 0x7BFF);
    EXPECT_EQ(float_to_f16(65520.0f), 0x7C00);
    EXPECT_EQ(float_to_f16(0x1p-24f), 0x0001);
    EXPECT_EQ(float_to_f16(0x1p-25f), 0x0000);
    EXPECT_EQ(float_to_f16(0x1.000002p-25f), 0x0001);
    EXPECT_EQ(float_to_f16(0x1.ff8p-15f), 0x03FF);
    EXPECT_EQ(float_to_f16(0x1.ffcp-15f), 0x0400);
    EXPECT_EQ(float_to_f16(-0.0f), 0x8000);
    EXPECT_EQ(float_to_bf16(1.0f), 0x3F80);
    EXPECT_EQ(float_to_bf16(0x1.01p0f), 0x3F80);
    EXPECT_EQ(float_to_bf16(0x1.03p0f), 0x3F82);
    EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
    EXPECT_EQ(float_to_bf16(-std::numeric_limits<float>::infinity()), 0xFF80);
}

TEST(Half, NanStaysNan) {
    // A NaN whose payload lies only in the bits that are dropped.
    const float low = std::bit_cast<float>(0x7F800001u);
    EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(low))));
    EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(low))));
    EXPECT_TRUE(std::isnan(round_to_type(-std::nanf(""), MOE_TYPE_F16)));
}

TEST(Half, EveryPatternComesBack) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const auto half = static_cast<uint16_t>(bits);
        const float f16 = f16_to_float(half), bf16 = bf16_to_float(half);
        if (!std::isnan(f16)) {
            ASSERT_EQ(float_to_f16(f16), half);
        }
        if (!std::isnan(bf16)) {
            ASSERT_EQ(float_to_bf16(bf16), half);
        }
    }
}

// Between neighbours a < b: the middle goes to the even one, its float neighbours to the nearer.
template <class Widen, class Narrow>
void check_middles(uint16_t end, Widen widen, Narrow narrow) {
    for (uint16_t bits = 0; bits + 1 < end; bits++) {
        const auto next = static_cast<uint16_t>(bits + 1);
        const auto middle = static_cast<float>(0.5 * (double{widen(bits)} + double{widen(next)}));
        ASSERT_EQ(narrow(middle), bits % 2 == 0 ? bits : next) << bits;
        ASSERT_EQ(narrow(std::nextafter(middle, 0.0f)), bits) << bits;
        ASSERT_EQ(narrow(std::nextafter(middle, 1e30f)), next) << bits;
        ASSERT_EQ(narrow(-middle), (bits % 2 == 0 ? bits : next) | 0x8000) << bits;
    }
}

TEST(Half, NearestWithTiesToEven) {
    check_middles(0x7C00, f16_to_float, float_to_f16);
    check_middles(0x7100, bf16_to_float, float_to_bf16);  // up to about 6e29
}

TEST(Half, RoundToTypeLeavesOthers) {
    EXPECT_EQ(round_to_type(0x1.000002p0f, MOE_TYPE_NONE), 0x1.000002p0f);
    EXPECT_EQ(round_to_type(0x1.000002p0f, MOE_TYPE_F32), 0x1.000002p0f);
    EXPECT_EQ(round_to_type(0x1.000002p0f, MOE_TYPE_F16), 1.0f);
    EXPECT_EQ(round_to_type(0x1.000002p0f, MOE_TYPE_BF16), 1.0f);
}

}  // namespace
}  // namespace moe
