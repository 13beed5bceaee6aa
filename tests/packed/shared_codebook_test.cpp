// Which codebooks are bytes times one number, and which mirror themselves.
#include "libmoe/packed/shared_codebook.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "libmoe/formats/format.hpp"
#include "libmoe/weights/lower.hpp"

namespace moe {
namespace {

using Values = std::array<float, 32>;

Values values_of(const std::vector<float>& given) {
    Values values{};
    std::copy(given.begin(), given.end(), values.begin());
    return values;
}

// As it is packed.
Values built_in(const char* name) {
    const FormatTraits& traits = *find_format(name);
    Matrix source;
    source.codebook = builtin_codebook(traits.format);
    Values values{};
    packed_codebook(source, packed_type_of(traits.format), values.data());
    return values;
}

int byte_at(const ByteCodebook& codebook, size_t code) {
    return static_cast<int8_t>(codebook.values[code / 4] >> 8 * (code % 4));
}

void expect_near(const Values& values, int32_t bits) {
    const ByteCodebook codebook = byte_codebook(values, bits);
    ASSERT_NE(codebook.scale, 0.0f);
    double error = 0, squares = 0;
    for (size_t i = 0; i < size_t{1} << bits; ++i) {
        const double byte = byte_at(codebook, i) * double{codebook.scale};
        EXPECT_NEAR(byte, values[i], std::abs(values[i]) / 64) << i;
        error += std::pow(byte - values[i], 2);
        squares += std::pow(double{values[i]}, 2);
    }
    EXPECT_LE(std::sqrt(error / squares), 1.2e-3);
}

TEST(ByteCodebook, HasTheValuesOfNormalFloats) {
    expect_near(built_in("kbit2"), 2);
    expect_near(built_in("kbit3"), 3);
    expect_near(values_of({-0.6642f, -0.1964f, 0.1964f, 0.6642f}), 2);
    expect_near(
        values_of({-0.8827f, -0.5583f, -0.3141f, -0.1018f, 0.1018f, 0.3141f, 0.5583f, 0.8827f}), 3);
}

TEST(ByteCodebook, IsExactForWholeNumbers) {
    const std::vector<float> given{-127, -3, 0, 1, 7, 64, 99, 126};
    for (const float factor : {1.0f, -0.03125f, 1e20f, 1e-20f}) {
        Values values = values_of(given);
        for (float& value : values) value *= factor;
        const ByteCodebook codebook = byte_codebook(values, 3);
        for (size_t i = 0; i < 8; ++i)
            EXPECT_FLOAT_EQ(static_cast<float>(byte_at(codebook, i)) * codebook.scale, values[i])
                << factor;
    }
}

TEST(ByteCodebook, IsNoneWhereBytesAreTooCoarse) {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const auto& given :
         std::vector<std::vector<float>>{{-1, -0.003f, 0.5f, 1},  // the small one would be lost
                                         {-1, -0.0059f, 0.5f, 1},
                                         {0, 0, 0, 0},
                                         {-1, infinity, 0.5f, 1},
                                         {-1, std::nanf(""), 0.5f, 1},
                                         {1e-40f, 0, 0, 0}})
        EXPECT_EQ(byte_codebook(values_of(given), 2).scale, 0.0f) << given[1];
    // Eight uneven values: each within half a byte, together further off than bfloat16.
    EXPECT_EQ(
        byte_codebook(
            values_of({-1, -0.7123f, -0.4311f, -0.1277f, 0.1891f, 0.3517f, 0.6331f, 0.877f}), 3)
            .scale,
        0.0f);
}

TEST(ByteCodebook, LooksAtTheValuesOfItsCodesAlone) {
    Values values = values_of({-1, -0.5f, 0.25f, 1});
    values[4] = 1000.0f;
    EXPECT_NE(byte_codebook(values, 2).scale, 0.0f);
}

TEST(SignCodes, AreAllThirtyTwoAndPutOppositeValuesSixteenApart) {
    uint32_t seen = 0;
    for (uint32_t code = 0; code < 32; ++code) {
        seen |= 1u << sign_code(code);
        EXPECT_EQ(sign_code(code) ^ sign_code(31 - code), 16u) << code;
    }
    EXPECT_EQ(seen, ~0u);
    EXPECT_EQ(sign_code(16), 0u);
    EXPECT_EQ(sign_code(15), 16u);
}

TEST(SignCodes, MakeTheBuiltInCodebookItsOwnMirror) {
    for (const char* name : {"kbit5", "kbit5_f32"}) {
        Values values = built_in(name);
        EXPECT_TRUE(is_mirrored(values));
        EXPECT_GT(values[0], 0.0f);
        EXPECT_LT(values[0], values[15]);
        values[20] *= 1.0001f;  // the same in float16
        EXPECT_TRUE(is_mirrored(values));
        values[20] *= 1.01f;
        EXPECT_FALSE(is_mirrored(values));
    }
    Values ascending{};
    for (size_t i = 0; i < 32; ++i) ascending[i] = static_cast<float>(i) - 15.5f;
    EXPECT_FALSE(is_mirrored(ascending)) << "as the source has it, not as it is packed";
}

}  // namespace
}  // namespace moe
