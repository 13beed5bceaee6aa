// FP8 (E4M3 and E5M2) and int8 under grids of scales: per tensor, per row, 1 x 32, 32 x 32, 128 x
// 128; every code under every kind of scale.
#include <gtest/gtest.h>

#include "libmoe/base/element.hpp"
#include "tests/formats/matrices.hpp"

namespace moe {
namespace {

struct Kind {
    const char* name;
    moe_type type;
    int32_t group_rows, group_columns;
    moe_type scale_type;
};

const Kind kinds[] = {
    {"fp8_tensor_f32", MOE_TYPE_F8_E4M3, -1, -1, MOE_TYPE_F32},
    {"fp8_tensor_bf16", MOE_TYPE_F8_E4M3, -1, -1, MOE_TYPE_BF16},
    {"fp8_row_f32", MOE_TYPE_F8_E4M3, 1, -1, MOE_TYPE_F32},
    {"fp8_row_bf16", MOE_TYPE_F8_E4M3, 1, -1, MOE_TYPE_BF16},
    {"fp8_row_f16", MOE_TYPE_F8_E4M3, 1, -1, MOE_TYPE_F16},
    {"mxfp8", MOE_TYPE_F8_E4M3, 1, 32, MOE_TYPE_F8_E8M0},
    {"fp8_32x32_e8m0", MOE_TYPE_F8_E4M3, 32, 32, MOE_TYPE_F8_E8M0},
    {"fp8_128x128_bf16", MOE_TYPE_F8_E4M3, 128, 128, MOE_TYPE_BF16},
    {"fp8_1x128_f32", MOE_TYPE_F8_E4M3, 1, 128, MOE_TYPE_F32},
    {"e5m2_tensor_f32", MOE_TYPE_F8_E5M2, -1, -1, MOE_TYPE_F32},
    {"e5m2_row_f16", MOE_TYPE_F8_E5M2, 1, -1, MOE_TYPE_F16},
    {"e5m2_128x128_bf16", MOE_TYPE_F8_E5M2, 128, 128, MOE_TYPE_BF16},
    {"e5m2_1x32_e8m0", MOE_TYPE_F8_E5M2, 1, 32, MOE_TYPE_F8_E8M0},
    {"int8_row", MOE_TYPE_I8, 1, -1, MOE_TYPE_F32},
    {"int8_tensor", MOE_TYPE_I8, -1, -1, MOE_TYPE_F32},
};

moe_format format_of_kind(const Kind& kind) {
    moe_format format{};
    format.struct_size = sizeof format;
    format.type = kind.type;
    format.group_rows = kind.group_rows;
    format.group_columns = kind.group_columns;
    format.scale_type = kind.scale_type;
    return format;
}

// Sign, five bits of exponent, two of mantissa.
double e5m2_value(uint8_t code) {
    const int exponent = code >> 2 & 31, mantissa = code & 3;
    if (exponent == 31 && mantissa) return NAN;
    const double magnitude = exponent == 31 ? INFINITY
                             : exponent     ? std::ldexp(4 + mantissa, exponent - 17)
                                            : std::ldexp(mantissa, -16);
    return code & 0x80 ? -magnitude : magnitude;
}

class Grid : public testing::TestWithParam<Kind> {
  protected:
    static constexpr int64_t rows = 150, columns = 301;

    void SetUp() override {
        format = format_of_kind(GetParam());
        traits = find_format(format);
        ASSERT_NE(traits, nullptr);
        bytes = matrix_bytes(*traits, format, rows, columns);
        data = test::random_bytes(bytes.data, 3);
        for (size_t i = 0; i < 256; ++i) data[i] = std::byte(i);  // every code
        scales = test::random_bytes(bytes.scales, 4);
        const size_t size = static_cast<size_t>(traits->scale_bytes);
        if (size == 1) {  // every byte, where there are as many: 0x00, 0x7F and 0xFF among them
            for (size_t i = 0; i < scales.size(); ++i) scales[i] = std::byte(i % 256);
            return;
        }
        const auto values = test::gaussian(static_cast<int64_t>(scales.size() / size), 5);
        for (size_t i = 0; i < values.size(); ++i) {
            if (format.scale_type == MOE_TYPE_F32) store(scales.data() + 4 * i, values[i]);
            if (format.scale_type == MOE_TYPE_F16)
                store(scales.data() + 2 * i, float_to_f16(values[i]));
            if (format.scale_type == MOE_TYPE_BF16)
                store(scales.data() + 2 * i, float_to_bf16(values[i]));
        }
    }
    Matrix view() const {
        Matrix matrix;
        matrix.format = format;
        matrix.traits = traits;
        matrix.data = data.data();
        matrix.scales = scales.data();
        matrix.rows = rows;
        matrix.columns = columns;
        matrix.row_stride = static_cast<int64_t>(bytes.row_stride);
        matrix.scale_row_stride = static_cast<int64_t>(bytes.scale_row_stride);
        return matrix;
    }
    static int64_t groups(int64_t count, int32_t group) {
        return group < 0 ? 1 : (count + group - 1) / group;
    }
    float value(int64_t n, int64_t k) const {
        const int64_t r = format.group_rows < 0 ? 0 : n / format.group_rows;
        const int64_t c = format.group_columns < 0 ? 0 : k / format.group_columns;
        const std::byte* place =
            scales.data() + (r * groups(columns, format.group_columns) + c) * traits->scale_bytes;
        double scale = 0;
        if (format.scale_type == MOE_TYPE_F32) scale = load<float>(place);
        if (format.scale_type == MOE_TYPE_F16) scale = f16_to_float(load<uint16_t>(place));
        if (format.scale_type == MOE_TYPE_BF16) scale = bf16_to_float(load<uint16_t>(place));
        if (format.scale_type == MOE_TYPE_F8_E8M0) {
            const int e = load<uint8_t>(place);
            scale = e == 255 ? NAN : std::ldexp(1.0, e - 127);
        }
        const std::byte* code = data.data() + n * columns + k;
        const double element = format.type == MOE_TYPE_I8        ? load<int8_t>(code)
                               : format.type == MOE_TYPE_F8_E5M2 ? e5m2_value(load<uint8_t>(code))
                                                                 : e4m3_to_f32(load<uint8_t>(code));
        return static_cast<float>(element * scale);
    }

    moe_format format{};
    const FormatTraits* traits = nullptr;
    MatrixBytes bytes{};
    std::vector<std::byte> data, scales;
};

INSTANTIATE_TEST_SUITE_P(Formats, Grid, testing::ValuesIn(kinds),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Grid, HasAsManyScalesAsGroups) {
    EXPECT_EQ(bytes.data, static_cast<uint64_t>(rows * columns));
    EXPECT_EQ(bytes.scales,
              static_cast<uint64_t>(groups(rows, format.group_rows) *
                                    groups(columns, format.group_columns) * traits->scale_bytes));
}

TEST_P(Grid, IsTheFormulaToTheBit) {
    const auto values = test::decode_all(view(), *traits);
    int64_t nonzero = 0;
    for (int64_t n = 0; n < rows; ++n)
        for (int64_t k = 0; k < columns; ++k) {
            const float got = values[static_cast<size_t>(n * columns + k)];
            nonzero += got != 0;
            ASSERT_TRUE(test::same_float(got, value(n, k))) << n << ", " << k << ": " << got;
        }
    EXPECT_GT(nonzero, rows * columns / 2);
}

TEST_P(Grid, HonoursPartsAndPhases) {
    Matrix slice = view();
    slice.rows -= 37;
    slice.columns -= 53;
    slice.data += 37 * slice.row_stride + 53;
    slice.scale_row_phase = 37;
    slice.scale_column_phase = 53;
    for (int64_t n = 0; n < slice.rows; ++n) {
        std::vector<float> out(static_cast<size_t>(slice.columns - 30 + 1), 42.0f);
        traits->decode(slice, n, 29, slice.columns - 30, out.data());
        for (int64_t k = 0; k < slice.columns - 30; ++k)
            ASSERT_TRUE(test::same_float(out[static_cast<size_t>(k)], value(n + 37, k + 82)));
        ASSERT_EQ(out.back(), 42.0f);
    }
}

TEST(GridFormats, Names) {
    const auto name = [](const Kind& kind) {
        return std::string(format_name(format_of_kind(kind)).text);
    };
    EXPECT_EQ(name(kinds[0]), "f8_e4m3 allxall f32");
    EXPECT_EQ(name(kinds[3]), "f8_e4m3 1xall bf16");
    EXPECT_EQ(name(kinds[5]), "f8_e4m3 1x32 f8_e8m0");
    EXPECT_EQ(name(kinds[9]), "f8_e5m2 allxall f32");
    EXPECT_EQ(name(kinds[13]), "i8 1xall f32");
    for (const Kind& kind : kinds)
        EXPECT_EQ(find_format(format_of_kind(kind))->encode != nullptr,
                  kind.type == MOE_TYPE_F8_E4M3);
}

TEST(GridFormats, AreNotFoundWithAWrongField) {
    for (const Kind& kind : kinds) {
        std::vector<moe_format> wrong(7, format_of_kind(kind));
        wrong[0].group_rows = 0;
        wrong[1].group_columns = -2;
        wrong[2].scale_type = MOE_TYPE_F8_E4M3;
        wrong[3].pre_quant_scale = 1;
        wrong[4].bits = 8;
        wrong[5].zero_point = MOE_ZERO_POINT_MIDDLE;
        wrong[6].packing = MOE_PACKING_BIT_STREAM;
        for (size_t i = 0; i < wrong.size(); ++i)
            EXPECT_EQ(find_format(wrong[i]), nullptr) << kind.name << " " << i;
    }
}

// W x = W' (pre x): decoding folds the scale of the activations into the columns.
TEST(Nvfp4PreQuant, IsFoldedIntoTheColumns) {
    for (const auto rule : {MOE_GLOBAL_SCALE_MULTIPLY, MOE_GLOBAL_SCALE_DIVIDE}) {
        moe_format format = find_format("nvfp4")->format;
        format.global_scale = rule;
        test::Stored plain(*find_format(format), 3, 64);
        plain.data = test::random_bytes(plain.bytes.data, 6);
        for (size_t i = 0; i < plain.scales.size(); ++i) plain.scales[i] = std::byte(0x30 + i);
        plain.global_scale = 0.37f;
        const auto pre = test::gaussian(64, 8);
        format.pre_quant_scale = 1;
        const FormatTraits* traits = find_format(format);
        ASSERT_NE(traits, nullptr);
        Matrix matrix = plain.view();
        matrix.format = format;
        matrix.pre_quant_scale = pre.data();
        const auto values = test::decode_all(matrix, *traits);
        const auto without = test::decode_all(plain);
        for (size_t i = 0; i < values.size(); ++i)
            EXPECT_EQ(values[i], without[i] * pre[i % 64]) << i;
    }
}

TEST(GridFormats, E5m2AloneIsTheUpperHalfOfAFloat16) {
    const FormatTraits& traits = *find_format(format_of(MOE_TYPE_F8_E5M2));
    test::Stored stored(traits, 1, 256);
    EXPECT_EQ(stored.bytes.scales, 0u);
    for (size_t i = 0; i < 256; ++i) stored.data[i] = std::byte(i);
    const auto values = test::decode_all(stored.view(), traits);
    for (size_t i = 0; i < 256; ++i)
        EXPECT_TRUE(
            test::same_float(values[i], static_cast<float>(e5m2_value(static_cast<uint8_t>(i)))))
            << i;
    EXPECT_STREQ(format_name(traits.format).text, "f8_e5m2");
}

}  // namespace
}  // namespace moe
