// affine: integers of 1 to 8 bits as MLX writes them (mode "affine"), a scale and a bias per group
// of columns of a row. Read only.
//   codes        uint32 [rows, ceil(columns * bits / 32)]: a row is a little-endian stream of bits,
//                the code of column k is bits [bits * k, + bits) and may straddle two words. MLX
//                packs 8 codes of 3 bits into 3 bytes, 8 of 5 into 5 and 4 of 6 into 3, which is
//                the same stream.
//   scales       f16, bf16 or f32 [rows, groups]; may be negative
//   zero points  FLOAT: the biases, as the scales
//   group        of column k: k / group_columns (-1: one group)
//   W[n, k] = code * scale[n, group] + bias[n, group]      in float64, rounded to float32 once
#include "libmoe/formats/int_codes.hpp"

namespace moe {
namespace {

bool accepts(const moe_format& format) {
    moe_format plain = format;
    plain.bits = affine_format.format.bits;
    plain.group_columns = affine_format.format.group_columns;
    plain.scale_type = affine_format.format.scale_type;
    return same_format(plain, affine_format.format) && format.bits >= 1 && format.bits <= 8 &&
           is_group(format.group_columns) && is_float_scale(format.scale_type);
}

MatrixBytes unsliceable_bytes(const moe_format& format, int64_t rows, int64_t columns) {
    require_countable(rows, columns);
    const int64_t row_bytes = column_groups(format, columns) * element_bytes(format.scale_type);
    return bytes_of({.code_rows = rows,
                     .code_row_bytes = stream_words(columns, format.bits) * 4,
                     .scale_rows = rows,
                     .scale_row_bytes = row_bytes,
                     .zero_rows = rows,
                     .zero_row_bytes = row_bytes});
}

// Of a column of the view.
int64_t group_at(const Matrix& matrix, int64_t column) {
    return (matrix.column_begin + column) / group_extent(matrix.format.group_columns);
}

// Where the number of a row of the view and a group is, in the scales or the biases.
const std::byte* number_at(const Matrix& matrix, const std::byte* numbers, int64_t row,
                           int64_t group) {
    return numbers + (matrix.row_begin + row) * matrix.scale_row_stride +
           group * element_bytes(matrix.format.scale_type);
}

void codes(const Matrix& matrix, int64_t row, int64_t column, int64_t count, uint8_t* out) {
    const std::byte* words = matrix.data + (matrix.row_begin + row) * matrix.row_stride;
    for (int64_t i = 0; i < count; ++i)
        out[i] = static_cast<uint8_t>(
            stream_code(words, 4, matrix.column_begin + column + i, matrix.format.bits));
}

void scale(const Matrix& matrix, int64_t row, int64_t column, std::byte* out) {
    std::memcpy(out, number_at(matrix, matrix.scales, row, group_at(matrix, column)),
                static_cast<size_t>(element_bytes(matrix.format.scale_type)));
}

void bias(const Matrix& matrix, int64_t row, int64_t column, std::byte* out) {
    std::memcpy(out, number_at(matrix, matrix.zero_points, row, group_at(matrix, column)),
                static_cast<size_t>(element_bytes(matrix.format.scale_type)));
}

void decode(const Matrix& matrix, int64_t row, int64_t column, int64_t count, float* out) {
    const std::byte* words = matrix.data + (matrix.row_begin + row) * matrix.row_stride;
    const moe_type type = matrix.format.scale_type;
    int64_t known = -1;
    double factor = 0, addend = 0;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t group = group_at(matrix, column + i);
        if (group != known) {
            known = group;
            factor = scale_value(type, number_at(matrix, matrix.scales, row, group), 0);
            addend = scale_value(type, number_at(matrix, matrix.zero_points, row, group), 0);
        }
        const uint32_t code =
            stream_code(words, 4, matrix.column_begin + column + i, matrix.format.bits);
        out[i] = static_cast<float>(code * factor + addend);
    }
}

constexpr GridParts parts{codes, scale, nullptr, nullptr, bias};

}  // namespace

constinit const FormatTraits affine_format = {
    .name = "affine",
    .format = int_format(MOE_PACKING_BIT_STREAM, 4, 64, MOE_TYPE_BF16, MOE_ZERO_POINT_FLOAT),
    .block_rows = 1,
    .block_columns = 1,
    .block_bytes = 1,
    .scale_bytes = 2,
    .decode = decode,
    .encode = nullptr,
    .accepts = accepts,
    .unsliceable_bytes = unsliceable_bytes,
    .parts = &parts};

}  // namespace moe
