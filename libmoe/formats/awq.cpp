// awq: integers of 4 bits, the matrix transposed and packed along its rows n (the "GEMM" version of
// AutoAWQ), a scale and a zero point per group of columns and row. Read only.
//   codes        uint32 [columns, rows / 8]: nibble i (bits 4 i, + 4) of word (k, c) is the code of
//                column k and row 8 c + order[i], order = 0 2 4 6 1 3 5 7
//   scales       f16, bf16 or f32 [groups, rows]
//   zero points  uint32 [groups, rows / 8], nibbles in the same order, as they are
//   W[n, k] = (code - zero) * scale[k / group_columns, n]    exact for 16-bit scales, else one
//   rounding; group_columns -1 is one group
#include "libmoe/formats/int_codes.hpp"

namespace moe {
namespace {

constexpr int32_t nibble_of[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // of row 8 c + j

uint32_t nibble_at(const std::byte* words, int64_t n) {
    return load<uint32_t>(words + n / 8 * 4) >> (4 * nibble_of[n % 8]) & 15;
}

bool accepts(const moe_format& format) {
    moe_format plain = format;
    plain.group_columns = awq_format.format.group_columns;
    plain.scale_type = awq_format.format.scale_type;
    return same_format(plain, awq_format.format) && is_group(format.group_columns) &&
           is_float_scale(format.scale_type);
}

MatrixBytes unsliceable_bytes(const moe_format& format, int64_t rows, int64_t columns) {
    require_countable(rows, columns);
    require(rows % 8 == 0, "rows is {}, must be a multiple of 8 for awq", rows);
    const int64_t groups = column_groups(format, columns);
    return bytes_of({.code_rows = columns,
                     .code_row_bytes = rows / 8 * 4,
                     .scale_rows = groups,
                     .scale_row_bytes = rows * element_bytes(format.scale_type),
                     .zero_rows = groups,
                     .zero_row_bytes = rows / 8 * 4});
}

struct Awq {
    static uint32_t code(const Matrix& matrix, int64_t n, int64_t k) {
        return nibble_at(matrix.data + k * matrix.row_stride, n);
    }
    static const std::byte* scale(const Matrix& matrix, int64_t n, int64_t group) {
        return scale_in_row(matrix, group, n);
    }
    static int32_t zero(const Matrix& matrix, int64_t n, int64_t group) {
        return static_cast<int32_t>(
            nibble_at(matrix.zero_points + group * (matrix.whole_rows / 8 * 4), n));
    }
};

}  // namespace

constinit const FormatTraits awq_format = {
    .name = "awq",
    .format = int_format(MOE_PACKING_AWQ, 4, 128, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED),
    .block_rows = 1,
    .block_columns = 1,
    .block_bytes = 1,
    .scale_bytes = 2,
    .decode = IntFormat<Awq>::decode,
    .encode = nullptr,
    .accepts = accepts,
    .unsliceable_bytes = unsliceable_bytes,
    .parts = &IntFormat<Awq>::parts};

}  // namespace moe
