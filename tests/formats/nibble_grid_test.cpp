// Integers and E2M1 codes of four bits in any groups: every code under every kind of scale, parts
// that begin inside a group, and what is not such a format.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "libmoe/base/element.hpp"
#include "tests/formats/matrices.hpp"
#include "tests/formats/sources.hpp"

namespace moe {
namespace {

using test::nibble_format;

constexpr int64_t rows = 19, columns = 300;
constexpr double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

std::vector<moe_format> all_kinds() {
    std::vector<moe_format> kinds;
    for (const int32_t group : {-1, 2, 64, 128})
        for (const moe_type scale : {MOE_TYPE_F32, MOE_TYPE_F16, MOE_TYPE_BF16}) {
            kinds.push_back(nibble_format(MOE_TYPE_INT, scale, group));
            kinds.push_back(nibble_format(MOE_TYPE_E2M1, scale, group));
        }
    for (const int32_t group : {16, 64, 128})
        kinds.push_back(nibble_format(MOE_TYPE_E2M1, MOE_TYPE_F8_E8M0, group));
    for (const int32_t group : {32, 128})
        kinds.push_back(nibble_format(MOE_TYPE_E2M1, MOE_TYPE_F8_E4M3, group));
    return kinds;
}

struct NibbleMatrix {
    explicit NibbleMatrix(const moe_format& format) : traits(*find_format(format)) {
        traits.format = format;
        stored.emplace(traits, rows, columns);
        stored->data = test::random_bytes(stored->bytes.data, 3);
        stored->scales = test::random_bytes(stored->bytes.scales, 4);
        if (format.scale_type == MOE_TYPE_F8_E8M0 || format.scale_type == MOE_TYPE_F8_E4M3) return;
        const auto size = static_cast<size_t>(traits.scale_bytes);
        const auto values = test::gaussian(static_cast<int64_t>(stored->scales.size() / size), 5);
        for (size_t i = 0; i < values.size(); ++i) {
            std::byte* place = stored->scales.data() + i * size;
            if (format.scale_type == MOE_TYPE_F32) store(place, values[i]);
            if (format.scale_type == MOE_TYPE_F16) store(place, float_to_f16(values[i]));
            if (format.scale_type == MOE_TYPE_BF16) store(place, float_to_bf16(values[i]));
        }
    }
    float value(int64_t n, int64_t k) const {
        const moe_format& format = traits.format;
        const int64_t size = format.group_columns < 0 ? columns : format.group_columns;
        const int64_t groups = (columns + size - 1) / size;
        const std::byte* place =
            stored->scales.data() + (n * groups + k / size) * traits.scale_bytes;
        double scale = 0;
        if (format.scale_type == MOE_TYPE_F32) scale = load<float>(place);
        if (format.scale_type == MOE_TYPE_F16) scale = f16_to_float(load<uint16_t>(place));
        if (format.scale_type == MOE_TYPE_BF16) scale = bf16_to_float(load<uint16_t>(place));
        if (format.scale_type == MOE_TYPE_F8_E4M3) scale = e4m3_to_f32(load<uint8_t>(place));
        if (format.scale_type == MOE_TYPE_F8_E8M0) {
            const int e = load<uint8_t>(place);
            scale = e == 255 ? NAN : std::ldexp(1.0, e - 127);
        }
        const int byte = load<uint8_t>(stored->data.data() + n * columns / 2 + k / 2);
        const int code = k % 2 ? byte >> 4 : byte & 15;
        const double magnitude = e2m1[code & 7];
        const double fp4 = code & 8 ? -magnitude : magnitude;
        const double element = format.type == MOE_TYPE_INT ? (code ^ 8) - 8 : fp4;
        return static_cast<float>(element * scale);
    }
    FormatTraits traits;
    std::optional<test::Stored> stored;
};

TEST(NibbleGrid, IsTheFormulaToTheBit) {
    for (const moe_format& format : all_kinds()) {
        SCOPED_TRACE(format_name(format).text);
        ASSERT_NE(find_format(format), nullptr);
        const NibbleMatrix matrix(format);
        ASSERT_EQ(matrix.stored->bytes.data, static_cast<uint64_t>(rows * columns / 2));
        const auto values = test::decode_all(matrix.stored->view(), matrix.traits);
        int64_t nonzero = 0;
        for (int64_t n = 0; n < rows; ++n)
            for (int64_t k = 0; k < columns; ++k) {
                const float got = values[static_cast<size_t>(n * columns + k)];
                nonzero += got != 0;
                ASSERT_TRUE(test::same_float(got, matrix.value(n, k)))
                    << n << ", " << k << ": " << got << " " << matrix.value(n, k);
            }
        EXPECT_GT(nonzero, rows * columns / 2);
    }
}

TEST(NibbleGrid, PartsMayBeginInsideAGroup) {
    for (const moe_format& format : all_kinds()) {
        SCOPED_TRACE(format_name(format).text);
        const NibbleMatrix matrix(format);
        Matrix slice = matrix.stored->view();
        slice.rows -= 5;
        slice.columns -= 54;
        slice.data += 5 * slice.row_stride + 54 / 2;
        slice.scale_row_phase = 5;
        slice.scale_column_phase = 54;
        std::vector<float> out(static_cast<size_t>(slice.columns - 30 + 1), 42.0f);
        for (int64_t n = 0; n < slice.rows; ++n) {
            matrix.traits.decode(slice, n, 28, slice.columns - 30, out.data());
            for (int64_t k = 0; k < slice.columns - 30; ++k)
                ASSERT_TRUE(test::same_float(out[static_cast<size_t>(k)],
                                             matrix.value(n + 5, k + 54 + 28)));
            ASSERT_EQ(out.back(), 42.0f);
        }
    }
}

TEST(NibbleGrid, NamesAndNeighbours) {
    const auto name = [](const moe_format& format) {
        return std::string(format_name(format).text);
    };
    EXPECT_EQ(name(nibble_format(MOE_TYPE_INT, MOE_TYPE_BF16, 128)),
              "int4 nibble_low_first 1x128 bf16");
    EXPECT_EQ(name(nibble_format(MOE_TYPE_E2M1, MOE_TYPE_F8_E8M0, 128)),
              "e2m1 nibble_low_first 1x128 f8_e8m0");
    EXPECT_EQ(name(nibble_format(MOE_TYPE_E2M1, MOE_TYPE_F8_E8M0, 32)), "mxfp4");
    EXPECT_EQ(find_format(nibble_format(MOE_TYPE_INT, MOE_TYPE_F32, 3)), nullptr);
    EXPECT_EQ(find_format(nibble_format(MOE_TYPE_INT, MOE_TYPE_F32, 0)), nullptr);
    EXPECT_EQ(find_format(nibble_format(MOE_TYPE_INT, MOE_TYPE_F8_E8M0, 32)), nullptr);
    moe_format format = nibble_format(MOE_TYPE_INT, MOE_TYPE_F32, 32);
    format.zero_point = MOE_ZERO_POINT_MIDDLE;
    EXPECT_EQ(find_format(format), nullptr);
    format = nibble_format(MOE_TYPE_E2M1, MOE_TYPE_F32, 64);
    format.group_rows = -1;
    EXPECT_EQ(find_format(format), nullptr);
}

}  // namespace
}  // namespace moe
