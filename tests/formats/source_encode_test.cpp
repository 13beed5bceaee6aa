// moe_quantize to FP8 under grids and to integers in groups: known codes, and the error on Gaussian
// weights against that of an independent implementation.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "libmoe/base/element.hpp"
#include "tests/formats/sources.hpp"

namespace moe {
namespace {

using test::Source;

Source quantised(const moe_format& format, const std::vector<float>& weights, int64_t rows,
                 int64_t columns) {
    Source source;
    source.format = format;
    source.rows = rows;
    source.columns = columns;
    uint64_t data = 0, scales = 0;
    EXPECT_EQ(moe_format_size(&format, rows, columns, &data, &scales), MOE_OK);
    source.data.resize(data, std::byte{0xA5});
    source.scales.resize(scales, std::byte{0xA5});
    moe_quantize_args args{};
    args.struct_size = sizeof args;
    args.format = &format;
    args.rows = rows;
    args.columns = columns;
    args.source = weights.data();
    args.data = source.data.data();
    args.data_bytes = data;
    args.scales = source.scales.data();
    args.scale_bytes = scales;
    EXPECT_EQ(moe_quantize(&args), MOE_OK) << moe_last_error();
    return source;
}

std::vector<float> dequantised(const Source& source) {
    std::vector<float> out(static_cast<size_t>(source.rows * source.columns), NAN);
    const moe_tensor tensor = source.tensor();
    EXPECT_EQ(moe_dequantize(&tensor, 0, out.data(), out.size()), MOE_OK) << moe_last_error();
    return out;
}

moe_format fp8(int32_t rows, int32_t columns, moe_type scale_type) {
    moe_format format{};
    format.struct_size = sizeof format;
    format.type = MOE_TYPE_F8_E4M3;
    format.group_rows = rows;
    format.group_columns = columns;
    format.scale_type = scale_type;
    return format;
}

moe_format ints(int32_t bits, int32_t group, moe_type scale_type = MOE_TYPE_BF16) {
    return test::int_format(MOE_PACKING_BIT_STREAM, bits, group, scale_type, MOE_ZERO_POINT_MIDDLE);
}

// The figures are of Gaussian weights, quantised elsewhere by the same rules.
TEST(SourceEncode, ErrorsAreThoseOfTheFormat) {
    const struct {
        moe_format format;
        double error;
    } cases[] = {{fp8(-1, -1, MOE_TYPE_F32), 0.0265},
                 {fp8(-1, -1, MOE_TYPE_BF16), 0.0265},
                 {fp8(1, -1, MOE_TYPE_F32), 0.0265},
                 {fp8(1, -1, MOE_TYPE_F16), 0.0265},
                 {fp8(1, 32, MOE_TYPE_F8_E8M0), 0.0266},
                 {fp8(128, 128, MOE_TYPE_F8_E8M0), 0.0266},
                 {fp8(128, 128, MOE_TYPE_BF16), 0.0265},
                 {ints(4, 32), 0.0946},
                 {ints(4, 64), 0.1027},
                 {ints(4, 128), 0.1107},
                 {ints(4, 32, MOE_TYPE_F32), 0.0946},
                 {ints(8, -1, MOE_TYPE_F32), 0.0078}};
    for (const auto& c : cases) {
        SCOPED_TRACE(format_name(c.format).text);
        const auto weights = test::gaussian(200 * 1280);
        const double error =
            test::relative_error(weights, dequantised(quantised(c.format, weights, 200, 1280)));
        EXPECT_LT(error, 1.25 * c.error);
        EXPECT_GT(error, 0.5 * c.error);
    }
}

TEST(SourceEncode, KnownCodes) {
    // amax 7.5 makes the scale 1: 0.5 and 1.5 go to even, 7.5 to the largest code.
    const std::vector<float> weights = {7.5f, -7.5f, 0.5f, 1.5f, -0.5f, 0, 3, -8 + 0.51f};
    const Source four = quantised(ints(4, -1), weights, 1, 8);
    EXPECT_EQ(load<uint32_t>(four.data.data()), 0x1B88A80Fu);
    EXPECT_EQ(bf16_to_float(load<uint16_t>(four.scales.data())), 1.0f);
    EXPECT_EQ(dequantised(four), (std::vector<float>{7, -8, 0, 2, 0, 0, 3, -7}));
    // 448 at the scale 2; -1 is 0xB0 there, half of it.
    const Source eight = quantised(fp8(1, -1, MOE_TYPE_F32), {896.0f, -1.0f, 2.0f}, 1, 3);
    EXPECT_EQ(load<float>(eight.scales.data()), 2.0f);
    EXPECT_EQ(eight.data,
              (std::vector<std::byte>{std::byte{0x7E}, std::byte{0xB0}, std::byte{0x38}}));
    // MXFP8: floor(log2 3) = 1, so 2^(1 - 8).
    const Source mx = quantised(fp8(1, 32, MOE_TYPE_F8_E8M0), {3.0f, 1.0f}, 1, 2);
    EXPECT_EQ(load<uint8_t>(mx.scales.data()), 127 - 7);
    EXPECT_EQ(dequantised(mx), (std::vector<float>{3, 1}));
}

TEST(SourceEncode, ZerosStayZeros) {
    for (const moe_format& format :
         {fp8(-1, -1, MOE_TYPE_F32), fp8(1, -1, MOE_TYPE_BF16), fp8(1, 32, MOE_TYPE_F8_E8M0),
          ints(4, 32), ints(3, -1, MOE_TYPE_F16)})
        for (const float value : dequantised(quantised(format, std::vector<float>(96), 2, 48)))
            EXPECT_EQ(value, 0.0f) << format_name(format).text;
}

// Scales beyond f16 are its largest, and codes what that leaves of the weights.
TEST(SourceEncode, ScalesBeyondF16AreItsLargest) {
    for (const auto& [format, largest] : {std::pair{fp8(1, -1, MOE_TYPE_F16), 448.0f},
                                          std::pair{ints(4, -1, MOE_TYPE_F16), 7.0f}}) {
        const Source source = quantised(format, {3e38f, -3e38f, 0.0f, 65504.0f}, 1, 4);
        EXPECT_EQ(load<uint16_t>(source.scales.data()), 0x7BFF) << format_name(format).text;
        const auto values = dequantised(source);
        EXPECT_EQ(values[0], largest * 65504.0f);
        EXPECT_LE(values[1], -values[0]);
        EXPECT_EQ(values[2], 0.0f);
        EXPECT_EQ(values[3], 65504.0f);
    }
}

TEST(SourceEncode, EveryWidthHoldsItsOwnValues) {
    for (int32_t bits = 2; bits <= 8; ++bits) {
        const moe_format format = ints(bits, 48, MOE_TYPE_F32);
        const int32_t half = 1 << (bits - 1);
        std::vector<float> weights;
        for (int32_t i = 0; i < 2 * 96; ++i)
            weights.push_back(static_cast<float>(i % (2 * half - 1) - half + 1));
        const auto once = dequantised(quantised(format, weights, 2, 96));
        const auto twice = dequantised(quantised(format, once, 2, 96));
        EXPECT_LT(test::relative_error(weights, once), 1.0 / half) << bits;
        EXPECT_LT(test::relative_error(once, twice), 1.0 / half) << bits;
    }
}

// Zero and the negative of one scale: rounding knows no weight but zero.
TEST(SourceEncode, OneBitIsOnlyRead) {
    const moe_format format = ints(1, 32);
    moe_format_info info{};
    info.struct_size = sizeof info;
    ASSERT_EQ(moe_format_get_info(&format, &info), MOE_OK);
    EXPECT_EQ(info.has_decode, 1);
    EXPECT_EQ(info.has_encode, 0);
    moe_quantize_args args{};
    args.struct_size = sizeof args;
    args.format = &format;
    args.rows = args.columns = 32;
    EXPECT_EQ(moe_quantize(&args), MOE_ERROR_UNSUPPORTED);
    EXPECT_NE(std::string(moe_last_error()).find("is not written"), std::string::npos);
}

TEST(SourceEncode, LargestWeightsStayFinite) {
    constexpr float most = std::numeric_limits<float>::max();
    for (int32_t bits = 2; bits <= 8; ++bits)
        for (const moe_type type : {MOE_TYPE_F32, MOE_TYPE_BF16, MOE_TYPE_F16}) {
            const auto values =
                dequantised(quantised(ints(bits, -1, type), {most, -most, 0.0f, -most}, 1, 4));
            for (const float value : values) ASSERT_TRUE(std::isfinite(value)) << bits;
            EXPECT_LT(values[1], 0.0f);
            EXPECT_GT(values[0], 0.0f);
            EXPECT_EQ(values[2], 0.0f);
        }
}

TEST(SourceEncode, OthersAreRefusedByName) {
    moe_format format = ints(4, 32);
    format.zero_point = MOE_ZERO_POINT_PACKED;
    moe_quantize_args args{};
    args.struct_size = sizeof args;
    args.format = &format;
    args.rows = args.columns = 32;
    EXPECT_EQ(moe_quantize(&args), MOE_ERROR_UNSUPPORTED);
    EXPECT_NE(std::string(moe_last_error()).find("is not written"), std::string::npos);
}

}  // namespace
}  // namespace moe
