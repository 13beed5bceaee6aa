// Decoding against the formula of each format, element by element in double precision and rounded
// once; partial rows, strides, phases and transposed matrices.
#include <gtest/gtest.h>

#include "libmoe/base/element.hpp"
#include "tests/formats/gguf_formula.hpp"
#include "tests/formats/matrices.hpp"

namespace moe {
namespace {

using test::Stored;

double scale_value(const Stored& stored, int64_t row, int64_t column) {
    const moe_format& format = stored.traits->format;
    const int64_t group =
        row / format.group_rows * static_cast<int64_t>(stored.bytes.scale_row_stride) +
        column / format.group_columns * stored.traits->scale_bytes;
    const std::byte* place = stored.scales.data() + group;
    switch (format.scale_type) {
        case MOE_TYPE_F8_E4M3:
            return e4m3_to_f32(load<uint8_t>(place));
        case MOE_TYPE_F8_E8M0:
            return e8m0_to_f32(load<uint8_t>(place));
        case MOE_TYPE_F8_E4M4:
            return e4m4_to_f32(load<uint8_t>(place));
        default:
            return load<float>(place);
    }
}

int bit_plane_code(const std::byte* group, int64_t lane, int bits) {
    int code = 0;
    for (int b = 0; b < bits; ++b) {
        code |= static_cast<int>(load<uint32_t>(group + 4 * b) >> lane & 1) << b;
    }
    return code;
}

// Value of a code, before scales.
double code_value(const Stored& stored, int64_t row, int64_t column) {
    const moe_format& format = stored.traits->format;
    const int64_t within = column % stored.traits->block_columns;
    const std::byte* block = stored.data.data() +
                             row * static_cast<int64_t>(stored.bytes.row_stride) +
                             column / stored.traits->block_columns * stored.traits->block_bytes;
    switch (format.type) {
        case MOE_TYPE_F32:
            return load<float>(block);
        case MOE_TYPE_F16:
            return f16_to_float(load<uint16_t>(block));
        case MOE_TYPE_BF16:
            return bf16_to_float(load<uint16_t>(block));
        case MOE_TYPE_F8_E4M3:
            return e4m3_to_f32(load<uint8_t>(block));
        case MOE_TYPE_E2M1:
            return e2m1_to_f32(uint8_t(load<uint8_t>(block + within / 2) >> 4 * (within % 2)));
        case MOE_TYPE_CODEBOOK:
            return stored.view().codebook[bit_plane_code(block, within, format.bits)];
        default:
            break;
    }
    return test::gguf_value(format.block_id, block, within);
}

// Products of these significands are exact in double.
float reference(const Stored& stored, int64_t row, int64_t column) {
    double value = code_value(stored, row, column);
    if (stored.traits->scale_bytes) value *= scale_value(stored, row, column);
    if (stored.traits->format.global_scale == MOE_GLOBAL_SCALE_MULTIPLY) {
        value *= stored.global_scale;
    }
    if (stored.traits->format.global_scale == MOE_GLOBAL_SCALE_DIVIDE) value /= stored.global_scale;
    return static_cast<float>(value);
}

// Random codes; scales that are float32 or f16 are random values of moderate size.
Stored random_matrix(const FormatTraits& traits, int64_t rows, int64_t columns) {
    Stored stored(traits, rows, columns);
    stored.data = test::random_bytes(stored.bytes.data, 3);
    stored.scales = test::random_bytes(stored.bytes.scales, 4);
    stored.global_scale = 0.0123f;
    const std::vector<float> values = test::gaussian(rows * columns, 5);
    if (traits.format.scale_type == MOE_TYPE_F32) {
        std::memcpy(stored.scales.data(), values.data(), stored.scales.size());
    }
    if (traits.format.type == MOE_TYPE_F32) {
        std::memcpy(stored.data.data(), values.data(), stored.data.size());
    }
    const size_t block = static_cast<size_t>(traits.block_bytes);
    for (size_t i = 0; i < stored.data.size() / block; ++i) {
        size_t next = 2 * i;
        for (const size_t place : test::f16_places(traits.format))
            store(stored.data.data() + i * block + place, float_to_f16(values[next++]));
    }
    if (traits.format.codebook == MOE_CODEBOOK_GIVEN) {
        stored.codebook.assign(values.begin(), values.begin() + (1 << traits.format.bits));
    }
    return stored;
}

std::vector<const FormatTraits*> every_format() {
    std::vector<const FormatTraits*> formats;
    const auto add = [&formats](moe_format format) { formats.push_back(find_format(format)); };
    for (const FormatTraits& traits : all_formats()) {
        moe_format format = traits.format;
        add(format);
        if (format.type == MOE_TYPE_CODEBOOK) {
            format.codebook = MOE_CODEBOOK_GIVEN;
            add(format);
        }
    }
    moe_format divide = find_format("nvfp4")->format;
    divide.global_scale = MOE_GLOBAL_SCALE_DIVIDE;
    add(divide);
    moe_format powers = find_format("fp8_128x128")->format;
    powers.scale_type = MOE_TYPE_F8_E8M0;
    add(powers);
    moe_format alone = find_format("nvfp4_gguf")->format;
    alone.global_scale = MOE_GLOBAL_SCALE_NONE;
    add(alone);
    return formats;
}

class Decode : public testing::TestWithParam<const FormatTraits*> {
  protected:
    const FormatTraits& traits() const { return *GetParam(); }
    int64_t odd_columns() const {
        return traits().block_columns == 1 ? 301 : 3 * traits().block_columns;
    }
};

INSTANTIATE_TEST_SUITE_P(Formats, Decode, testing::ValuesIn(every_format()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(Decode, IsTheFormulaToTheBit) {
    const Stored stored = random_matrix(traits(), 131, odd_columns());
    const std::vector<float> values = test::decode_all(stored);
    int64_t nonzero = 0;
    for (int64_t row = 0; row < stored.rows; ++row) {
        for (int64_t column = 0; column < stored.columns; ++column) {
            const float value = values[size_t(row * stored.columns + column)];
            nonzero += value != 0;
            ASSERT_TRUE(test::same_float(value, reference(stored, row, column)))
                << row << ", " << column << ": " << value;
        }
    }
    EXPECT_GT(nonzero, stored.rows * stored.columns / 2);
}

TEST_P(Decode, PartsOfRowsEqualTheWhole) {
    const Stored stored = random_matrix(traits(), 3, odd_columns());
    const std::vector<float> values = test::decode_all(stored);
    const int64_t step = traits().block_columns == 1 ? 43 : traits().block_columns;
    for (int64_t from = 0; from <= stored.columns; from += step) {
        for (int64_t to = from; to <= stored.columns; to += step) {
            std::vector<float> out(size_t(to - from + 1), 42.0f);
            traits().decode(stored.view(), 2, from, to - from, out.data());
            for (int64_t i = 0; i < to - from; ++i) {
                ASSERT_TRUE(test::same_float(out[size_t(i)],
                                             values[size_t(2 * stored.columns + from + i)]));
            }
            ASSERT_EQ(out.back(), 42.0f);
        }
    }
}

// The same rows, apart in memory and not aligned.
TEST_P(Decode, HonoursStrides) {
    const Stored stored = random_matrix(traits(), 131, odd_columns());
    Matrix matrix = stored.view();
    const int64_t row_bytes = matrix.row_stride;
    const int64_t scale_row_bytes = matrix.scale_row_stride;
    matrix.row_stride += 13;
    matrix.scale_row_stride += 7;
    std::vector<std::byte> data(size_t(matrix.row_stride * 131 + 1));
    std::vector<std::byte> scales(size_t(matrix.scale_row_stride * 131 + 1));
    for (int64_t row = 0; row < 131; ++row) {
        std::memcpy(data.data() + 1 + row * matrix.row_stride, stored.data.data() + row * row_bytes,
                    size_t(row_bytes));
    }
    const int64_t scale_rows = scale_row_bytes ? int64_t(stored.bytes.scales) / scale_row_bytes : 0;
    for (int64_t row = 0; row < scale_rows; ++row) {
        std::memcpy(scales.data() + 1 + row * matrix.scale_row_stride,
                    stored.scales.data() + row * scale_row_bytes, size_t(scale_row_bytes));
    }
    matrix.data = data.data() + 1;
    matrix.scales = scales.data() + 1;
    const std::vector<float> expected = test::decode_all(stored);
    const std::vector<float> got = test::decode_all(matrix, traits());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_TRUE(test::same_float(got[i], expected[i])) << i;
}

// A slice that keeps the scales of the whole and says where it starts in them.
TEST_P(Decode, HonoursPhases) {
    const int64_t step = traits().block_columns == 1 ? 53 : traits().block_columns;
    const Stored stored = random_matrix(traits(), 300, odd_columns());
    Matrix slice = stored.view();
    slice.rows -= 37;
    slice.columns -= step;
    slice.data += 37 * slice.row_stride + step / traits().block_columns * traits().block_bytes;
    slice.scale_row_phase = 37;
    slice.scale_column_phase = int32_t(step);
    const std::vector<float> whole = test::decode_all(stored);
    const std::vector<float> part = test::decode_all(slice, traits());
    for (int64_t row = 0; row < slice.rows; ++row) {
        for (int64_t column = 0; column < slice.columns; ++column) {
            const float expected = whole[size_t((row + 37) * stored.columns + column + step)];
            ASSERT_TRUE(test::same_float(part[size_t(row * slice.columns + column)], expected))
                << row << ", " << column;
        }
    }
}

class DecodeTransposed : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Formats, DecodeTransposed, testing::Values("f32", "f16", "bf16"));

TEST_P(DecodeTransposed, ReadsColumnsApart) {
    const FormatTraits& traits = *find_format(GetParam());
    const Stored stored = random_matrix(traits, 19, 37);
    Matrix transposed = stored.view();
    transposed.rows = 37;
    transposed.columns = 19;
    transposed.row_stride = traits.block_bytes;
    transposed.column_stride = int64_t(stored.bytes.row_stride);
    const std::vector<float> expected = test::decode_all(stored);
    const std::vector<float> got = test::decode_all(transposed, traits);
    for (size_t row = 0; row < 37; ++row) {
        for (size_t column = 0; column < 19; ++column) {
            ASSERT_TRUE(test::same_float(got[row * 19 + column], expected[column * 37 + row]));
        }
    }
    float part[5];
    traits.decode(transposed, 36, 7, 5, part);
    for (size_t i = 0; i < 5; ++i) {
        EXPECT_TRUE(test::same_float(part[i], expected[(7 + i) * 37 + 36]));
    }
}

TEST(DecodeScales, ExtremesOfMxfp4) {
    Stored stored(*find_format("mxfp4"), 1, 96);
    for (std::byte& byte : stored.data) byte = std::byte{0x71};  // 0.5, 6
    stored.scales[0] = std::byte{0x00};
    stored.scales[1] = std::byte{0xFF};
    stored.scales[2] = std::byte{0xFE};
    const std::vector<float> values = test::decode_all(stored);
    EXPECT_EQ(values[0], 0x1p-128f);
    EXPECT_EQ(values[1], 6 * 0x1p-127f);
    EXPECT_TRUE(std::isnan(values[32]));
    EXPECT_EQ(values[64], 0x1p126f);
    EXPECT_TRUE(std::isinf(values[65]));
}

TEST(DecodeScales, EveryScaleByteOfNvfp4) {
    Stored stored(*find_format("nvfp4"), 16, 256);
    for (std::byte& byte : stored.data) byte = std::byte{0xE2};  // 1, -4
    for (int i = 0; i < 256; ++i) stored.scales[size_t(i)] = std::byte(i);
    stored.global_scale = 0.75f;
    const std::vector<float> values = test::decode_all(stored);
    for (int i = 0; i < 256; ++i) {
        const float scale = e4m3_to_f32(uint8_t(i));
        EXPECT_TRUE(test::same_float(values[size_t(16 * i)], scale * 0.75f)) << i;
        EXPECT_TRUE(test::same_float(values[size_t(16 * i + 1)], scale * -3.0f)) << i;
    }
}

}  // namespace
}  // namespace moe
