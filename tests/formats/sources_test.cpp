// GPTQ, AWQ, compressed-tensors and bitsandbytes: words and bytes with known values, and the sizes
// and formats that are refused. Random matrices are in tests/weights/sources_test.cpp.
#include "tests/formats/sources.hpp"

#include <gtest/gtest.h>

#include "libmoe/base/error.hpp"

namespace moe {
namespace {

using test::Source;

std::vector<std::byte> words(const std::vector<uint32_t>& values) {
    std::vector<std::byte> bytes(values.size() * 4);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

std::vector<std::byte> halves(size_t count, float value) {
    std::vector<std::byte> bytes(count * 2);
    for (size_t i = 0; i < count; ++i) store(bytes.data() + 2 * i, float_to_f16(value));
    return bytes;
}

Matrix matrix_of(const Source& source) {
    const FormatTraits& traits = *find_format(source.format);
    const MatrixBytes bytes = matrix_bytes(traits, source.format, source.rows, source.columns);
    EXPECT_EQ(bytes.data, source.data.size());
    EXPECT_EQ(bytes.scales, source.scales.size());
    EXPECT_EQ(bytes.zero_points, source.zero_points.size());
    Matrix matrix;
    matrix.format = source.format;
    matrix.traits = &traits;
    matrix.data = source.data.data();
    matrix.scales = source.scales.data();
    matrix.zero_points = source.zero_points.data();
    matrix.rows = matrix.whole_rows = source.rows;
    matrix.columns = matrix.whole_columns = source.columns;
    matrix.row_stride = static_cast<int64_t>(bytes.row_stride);
    matrix.scale_row_stride = static_cast<int64_t>(bytes.scale_row_stride);
    return matrix;
}

std::vector<float> decode(const Source& source) {
    const Matrix matrix = matrix_of(source);
    return test::decode_all(matrix, *matrix.traits);
}

int code(int k, int n) {
    return (3 * k + 5 * n) % 16;
}

// The words of the first four rows are given; those of the others follow the same formula.
TEST(KnownWords, Gptq) {
    std::vector<uint32_t> packed(8);
    for (int n = 0; n < 8; ++n)
        for (int k = 0; k < 8; ++k) packed[n] |= static_cast<uint32_t>(code(k, n)) << (4 * k);
    const uint32_t known[] = {0x52FC9630, 0xA741EB85, 0xFC9630DA, 0x41EB852F};
    for (int n = 0; n < 4; ++n) ASSERT_EQ(packed[n], known[n]);
    Source source;
    source.format =
        test::int_format(MOE_PACKING_GPTQ, 4, -1, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED_MINUS_ONE);
    source.rows = source.columns = 8;
    source.data = words(packed);
    source.scales = halves(8, 0.5f);
    source.zero_points = words({0xF7777770});  // 1, 8 six times, 16: what is stored plus one
    const auto values = decode(source);
    for (int n = 0; n < 8; ++n)
        for (int k = 0; k < 8; ++k)
            EXPECT_EQ(values[8 * n + k], 0.5f * (code(k, n) - (n == 0 ? 1 : n == 7 ? 16 : 8)));
    source.format.zero_point = MOE_ZERO_POINT_PACKED;
    EXPECT_EQ(decode(source)[8 * 7], 0.5f * (code(0, 7) - 15));
}

TEST(KnownWords, Awq) {
    const int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    std::vector<uint32_t> packed(8);
    for (int k = 0; k < 8; ++k)
        for (int i = 0; i < 8; ++i)
            packed[k] |= static_cast<uint32_t>(code(k, order[i])) << (4 * i);
    const uint32_t known[] = {0x39F5E4A0, 0x6C2817D3, 0x9F5B4A06, 0xC28E7D39};
    for (int k = 0; k < 4; ++k) ASSERT_EQ(packed[k], known[k]);
    Source source;
    source.format = test::int_format(MOE_PACKING_AWQ, 4, -1, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED);
    source.rows = source.columns = 8;
    source.data = words(packed);
    source.scales = halves(8, 2.0f);
    source.zero_points = words({0x75316420});  // zero n of row n
    const auto values = decode(source);
    for (int n = 0; n < 8; ++n)
        for (int k = 0; k < 8; ++k) EXPECT_EQ(values[8 * n + k], 2.0f * (code(k, n) - n));
}

TEST(KnownWords, PackQuantized) {
    Source source;
    source.format =
        test::int_format(MOE_PACKING_BIT_STREAM, 4, -1, MOE_TYPE_F16, MOE_ZERO_POINT_MIDDLE);
    source.rows = 4;
    source.columns = 8;
    source.data = words({0x52FC9630, 0xA741EB85, 0xFC9630DA, 0x41EB852F});
    source.scales = halves(4, 0.25f);
    auto values = decode(source);
    for (int n = 0; n < 4; ++n)
        for (int k = 0; k < 8; ++k) EXPECT_EQ(values[8 * n + k], 0.25f * (code(k, n) - 8));
    // Zero points lie along the rows: 1, 2, 3, 4 of the four.
    source.format.zero_point = MOE_ZERO_POINT_PACKED;
    source.zero_points = words({0x4321});
    values = decode(source);
    for (int n = 0; n < 4; ++n)
        for (int k = 0; k < 8; ++k) EXPECT_EQ(values[8 * n + k], 0.25f * (code(k, n) - (n + 1)));
}

// 3-bit codes 0 to 7 four times: 0x..FAC688 in three words, the 11th and the 22nd straddle.
TEST(KnownWords, ThreeBits) {
    Source source;
    source.format =
        test::int_format(MOE_PACKING_BIT_STREAM, 3, -1, MOE_TYPE_F16, MOE_ZERO_POINT_MIDDLE);
    source.rows = 1;
    source.columns = 32;
    source.data = words({0x88FAC688, 0xC688FAC6, 0xFAC688FA});
    source.scales = halves(1, 1.0f);
    const auto values = decode(source);
    for (int k = 0; k < 32; ++k) EXPECT_EQ(values[k], k % 8 - 4) << k;
}

// What mlx.core.quantize 0.32 made of the bfloat16 row (k * 37 % 64 - 20) / 8, k < 32, in one
// group. Codes of 3, 5 and 6 bits straddle words, and 6 bits hold every weight.
TEST(KnownWords, Affine) {
    const struct {
        int32_t bits;
        float scale, bias;
        std::vector<uint32_t> words;
    } rows[] = {
        {2, -2.6875f, 5.375f, {0x7499E267, 0x26789D22}},
        {3, -1.078125f, 5.375f, {0xB3F0D59F, 0x310D5D8A, 0x1567E1AB}},
        {4, -0.5390625f, 5.375f, {0xE81A4C6F, 0x5D7193C5, 0xA4D6092B, 0x1A3C6E82}},
        {5, -0.255859375f, 5.375f, {0x075469BF, 0x1A1B0BEC, 0x48B7571E, 0x23AA34D0, 0x150F967A}},
        {6,
         -0.125f,
         5.375f,
         {0xAB4356BF, 0xDC97F211, 0x539783A0, 0x9B0252AF, 0xD887B11D, 0x1293B363}},
    };
    for (const auto& row : rows) {
        Source source;
        source.format = test::int_format(MOE_PACKING_BIT_STREAM, row.bits, 32, MOE_TYPE_F32,
                                         MOE_ZERO_POINT_FLOAT);
        source.rows = 1;
        source.columns = 32;
        source.data = words(row.words);
        source.scales.resize(4);
        source.zero_points.resize(4);
        store(source.scales.data(), row.scale);
        store(source.zero_points.data(), row.bias);
        const auto values = decode(source);
        const float most = row.bits == 6 ? 0.0f : 0.51f * std::abs(row.scale);
        for (int k = 0; k < 32; ++k) {
            const float weight = static_cast<float>(k * 37 % 64 - 20) / 8;
            EXPECT_LE(std::abs(values[static_cast<size_t>(k)] - weight), most)
                << row.bits << " bits, column " << k;
        }
    }
}

// Every byte, so every code in either nibble; the even element is in the high one.
TEST(KnownBytes, Bnb4Bit) {
    const double nf4[16] = {
        -1,        -0.6961928, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0,
        0.0795803, 0.1609302,  0.2461123,   0.33791524,  0.44070983,  0.562617,    0.72295684,  1};
    const double fp4[8] = {0, 0.0625, 8, 12, 4, 6, 2, 3};
    for (const bool is_nf4 : {true, false}) {
        Source source;
        source.format =
            test::bnb_format(is_nf4 ? MOE_CODEBOOK_BNB_NF4 : MOE_CODEBOOK_BNB_FP4, 64, false);
        source.rows = 16;
        source.columns = 32;
        for (int byte = 0; byte < 256; ++byte) source.data.push_back(std::byte(byte));
        source.scales.resize(8 * 4);
        for (size_t i = 0; i < 8; ++i) store(source.scales.data() + 4 * i, float(i + 1));
        const auto values = decode(source);
        for (int i = 0; i < 512; ++i) {
            const int one = i % 2 ? i / 2 % 16 : i / 32;
            const double table = is_nf4 ? nf4[one] : (one < 8 ? 1 : -1) * fp4[one % 8] / 12;
            EXPECT_NEAR(values[size_t(i)], table * (i / 64 + 1), 4e-7) << i;
        }
    }
}

TEST(SourceFormats, AreFoundAndDescribed) {
    for (const moe_format& format : test::whole_formats()) {
        const FormatTraits* traits = find_format(format);
        ASSERT_NE(traits, nullptr) << format_name(format).text;
        EXPECT_NE(traits->unsliceable_bytes, nullptr);
        const bool symmetric = format.zero_point == MOE_ZERO_POINT_MIDDLE && !format.act_order &&
                               format.group_rows == 1;
        EXPECT_EQ(traits->encode != nullptr, symmetric && format.bits > 1)
            << format_name(format).text;
        EXPECT_EQ(find_format(traits->name), nullptr) << "no public name";
    }
    EXPECT_STREQ(format_name(test::int_format(MOE_PACKING_GPTQ, 4, 128, MOE_TYPE_F16,
                                              MOE_ZERO_POINT_PACKED_MINUS_ONE, true))
                     .text,
                 "int4 gptq 1x128 f16 zeros-1 act_order");
    EXPECT_STREQ(format_name(test::int_format(MOE_PACKING_BIT_STREAM, 4, 64, MOE_TYPE_BF16,
                                              MOE_ZERO_POINT_FLOAT))
                     .text,
                 "int4 bit_stream 1x64 bf16 biases (MLX affine)");
    EXPECT_STREQ(format_name(test::bnb_format(MOE_CODEBOOK_BNB_NF4, 64, true)).text,
                 "codebook4 nibble_high_first nf4 1x64 u8 nested");
}

TEST(SourceFormats, AreNotFoundWithAWrongField) {
    const auto gptq =
        test::int_format(MOE_PACKING_GPTQ, 4, 128, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED);
    const auto awq = test::int_format(MOE_PACKING_AWQ, 4, 128, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED);
    const auto packed =
        test::int_format(MOE_PACKING_BIT_STREAM, 4, 128, MOE_TYPE_F16, MOE_ZERO_POINT_MIDDLE);
    const auto bnb = test::bnb_format(MOE_CODEBOOK_BNB_NF4, 64, false);
    const auto affine =
        test::int_format(MOE_PACKING_BIT_STREAM, 4, 64, MOE_TYPE_BF16, MOE_ZERO_POINT_FLOAT);
    for (const moe_format& format : {gptq, awq, packed, bnb, affine}) {
        std::vector<moe_format> wrong(12, format);
        wrong[0].type = MOE_TYPE_I8;
        wrong[1].bits = 9;
        wrong[2].group_rows = 7;
        wrong[3].group_columns = 0;
        wrong[4].scale_type = MOE_TYPE_F64;
        wrong[5].global_scale = MOE_GLOBAL_SCALE_MULTIPLY;
        wrong[6].zero_point = format.packing == MOE_PACKING_BIT_STREAM
                                  ? MOE_ZERO_POINT_PACKED_MINUS_ONE
                                  : MOE_ZERO_POINT_FLOAT;
        wrong[7].packing = MOE_PACKING_BIT_PLANES;
        wrong[8].codebook = MOE_CODEBOOK_GIVEN;
        wrong[9].group_columns = -2;
        wrong[10].act_order = 2;
        wrong[11].pre_quant_scale = 1;
        for (size_t i = 0; i < wrong.size(); ++i)
            EXPECT_EQ(find_format(wrong[i]), nullptr) << format_name(format).text << " " << i;
    }
    auto odd = gptq;
    odd.bits = 1;
    EXPECT_EQ(find_format(odd), nullptr);
    odd = affine;
    odd.act_order = 1;
    EXPECT_EQ(find_format(odd), nullptr);
    odd = awq;
    odd.bits = 8;
    EXPECT_EQ(find_format(odd), nullptr);
    odd = bnb;
    odd.nested_scales = 1;
    EXPECT_EQ(find_format(odd), nullptr) << "nested scales are bytes";
}

TEST(SourceFormats, RefuseSizesThatDoNotFit) {
    const auto text = [](const moe_format& format, int64_t rows, int64_t columns) -> std::string {
        try {
            matrix_bytes(*find_format(format), format, rows, columns);
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), MOE_ERROR_INVALID_ARGUMENT);
            return error.what();
        }
        return "no error";
    };
    const auto gptq = [](int32_t bits) {
        return test::int_format(MOE_PACKING_GPTQ, bits, 32, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED);
    };
    const auto awq = test::int_format(MOE_PACKING_AWQ, 4, 32, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED);
    EXPECT_EQ(text(gptq(4), 16, 36), "columns is 36, must be a multiple of 8 for 4-bit gptq");
    EXPECT_EQ(text(gptq(4), 12, 32), "rows is 12, must be a multiple of 8 for 4-bit gptq");
    EXPECT_EQ(text(gptq(3), 16, 32), "rows is 16, must be a multiple of 32 for 3-bit gptq");
    EXPECT_EQ(text(awq, 12, 32), "rows is 12, must be a multiple of 8 for awq");
    EXPECT_EQ(text(awq, 16, 33), "no error");
    for (const moe_format& format : test::whole_formats()) {
        EXPECT_NE(text(format, int64_t{1} << 62, 32), "no error") << format_name(format).text;
        EXPECT_NE(text(format, 32, int64_t{1} << 62), "no error") << format_name(format).text;
        EXPECT_EQ(text(format, 0, 32), "rows is 0, must be positive");
    }
}

}  // namespace
}  // namespace moe
