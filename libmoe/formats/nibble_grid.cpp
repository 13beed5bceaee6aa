// nibble_grid: codes of four bits row by row, two per byte, the even column in the low nibble, and
// a scale per group_columns columns of a row, -1 being all of them: [rows, groups]. Read only.
//   W[n, k] = value(code[n, k]) * scale[n, k / group_columns]   exact for scales of up to 16 bits,
//                                                               else one rounding
//   INT of 4 bits without a zero point: two's complement, -8 to 7 (W4AFP8); scales f32, f16, bf16
//   E2M1: FP4 in other groups than those of nvfp4 and mxfp4; the same scales, or E8M0, or E4M3
#include "libmoe/formats/grid_scaled.hpp"

namespace moe {
namespace {

struct NibbleValues {
    float e2m1[16];
    float int4[16];

    constexpr NibbleValues() : e2m1(), int4() {
        for (int code = 0; code < 16; ++code) {
            e2m1[code] = e2m1_to_f32(static_cast<uint8_t>(code));
            int4[code] = static_cast<float>(code < 8 ? code : code - 16);
        }
    }
};
constexpr NibbleValues nibble_values;

const float* values_of(moe_type type) {
    return type == MOE_TYPE_E2M1 ? nibble_values.e2m1 : nibble_values.int4;
}

uint8_t nibble_at(const std::byte* row, int64_t column) {
    return load<uint8_t>(row + column / 2) >> (column % 2 ? 4 : 0) & 15;
}

template <moe_type type, moe_type scale_type>
void decode(const Matrix& matrix, int64_t row, int64_t column, int64_t count, float* out) {
    const int64_t group = group_extent(matrix.format.group_columns);
    const std::byte* codes = matrix.data + row * matrix.row_stride;
    const RowScales scales = row_scales(matrix, row, column);
    const int64_t phase = (column + matrix.scale_column_phase) % group;
    const float* values = values_of(type);
    for (int64_t i = 0; i < count;) {
        const int64_t index = (phase + i) / group;
        const int64_t end = std::min((index + 1) * group - phase, count);
        const float scale = grid_scale<scale_type>(scales.at(index), 0);
        for (; i < end; ++i) out[i] = values[nibble_at(codes, column + i)] * scale;
    }
}

// flip: 8 takes two's complement to codes that count from the middle.
template <uint8_t flip>
void read_codes(const Matrix& matrix, int64_t row, int64_t column, int64_t count, uint8_t* out) {
    const std::byte* codes = matrix.data + row * matrix.row_stride;
    for (int64_t i = 0; i < count; ++i) out[i] = nibble_at(codes, column + i) ^ flip;
}

template <uint8_t flip>
constexpr GridParts nibble_parts{read_codes<flip>, read_grid_scale, nullptr};

constexpr moe_format format(moe_type type, moe_type scale_type) {
    moe_format format = format_of(type);
    format.bits = type == MOE_TYPE_INT ? 4 : 0;
    format.group_rows = 1;
    format.group_columns = 128;
    format.scale_type = scale_type;
    format.packing = MOE_PACKING_NIBBLE_LOW_FIRST;
    return format;
}

// Bytes are not shared by groups.
template <moe_type type, moe_type scale_type>
bool accepts(const moe_format& given) {
    moe_format plain = format(type, scale_type);
    plain.group_columns = given.group_columns;
    return same_format(plain, given) && is_group(given.group_columns) &&
           (given.group_columns < 0 || given.group_columns % 2 == 0);
}

template <moe_type type, moe_type scale_type>
constexpr FormatTraits entry(const char* name) {
    return {.name = name,
            .format = format(type, scale_type),
            .block_rows = 1,
            .block_columns = 2,
            .block_bytes = 1,
            .scale_bytes = grid_scale_bytes<scale_type>,
            .decode = decode<type, scale_type>,
            .encode = nullptr,
            .accepts = accepts<type, scale_type>,
            .parts = type == MOE_TYPE_INT ? &nibble_parts<8> : &nibble_parts<0>};
}

}  // namespace

constinit const std::array<FormatTraits, 8> nibble_grid_formats = {
    entry<MOE_TYPE_INT, MOE_TYPE_F32>("int4_grid_f32"),
    entry<MOE_TYPE_INT, MOE_TYPE_F16>("int4_grid_f16"),
    entry<MOE_TYPE_INT, MOE_TYPE_BF16>("int4_grid_bf16"),
    entry<MOE_TYPE_E2M1, MOE_TYPE_F32>("fp4_grid_f32"),
    entry<MOE_TYPE_E2M1, MOE_TYPE_F16>("fp4_grid_f16"),
    entry<MOE_TYPE_E2M1, MOE_TYPE_BF16>("fp4_grid_bf16"),
    entry<MOE_TYPE_E2M1, MOE_TYPE_F8_E8M0>("fp4_grid_e8m0"),
    entry<MOE_TYPE_E2M1, MOE_TYPE_F8_E4M3>("fp4_grid_e4m3")};

const float* e2m1_codebook() {
    return nibble_values.e2m1;
}

}  // namespace moe
