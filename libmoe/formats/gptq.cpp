// gptq: integers of 2 to 8 bits, the matrix transposed and packed along its columns k, a
// scale and a zero point per group of columns and row. Read only.
//   codes        uint32 [columns * bits / 32, rows]: word r of column n of this table is word r of
//                row n's stream, in which the code of column k is bits [bits * k, + bits), lowest
//                first. 4 bits: nibble i of word r is k = 8 r + i. Codes of 3, 5, 6 and 7 bits
//                straddle words.
//   scales       f16, bf16 or f32 [groups, rows]
//   zero points  uint32 [groups, rows * bits / 32], the same stream along the rows n
//   group        of column k: k / group_columns (-1: one group), or permutation[k] with act_order
//   W[n, k] = (code - zero) * scale[group, n]       exact for 16-bit scales, else one rounding
// zero is what is stored (PACKED, "gptq_v2"), or one more (PACKED_MINUS_ONE, "gptq"): a stored 15
// of four bits means 16.
#include "libmoe/formats/int_codes.hpp"

namespace moe {
namespace {

constexpr bool is_width(int32_t bits) {
    return bits >= 2 && bits <= 8;
}

bool accepts(const moe_format& format) {
    moe_format plain = format;
    plain.bits = gptq_format.format.bits;
    plain.group_columns = gptq_format.format.group_columns;
    plain.scale_type = gptq_format.format.scale_type;
    plain.zero_point = gptq_format.format.zero_point;
    plain.act_order = 0;
    return same_format(plain, gptq_format.format) && is_width(format.bits) &&
           is_group(format.group_columns) && is_float_scale(format.scale_type) &&
           has_packed_zeros(format) && (format.act_order == 0 || format.act_order == 1);
}

MatrixBytes unsliceable_bytes(const moe_format& format, int64_t rows, int64_t columns) {
    require_countable(rows, columns);
    const int64_t bits = format.bits;
    const int64_t step = 32 % bits ? 32 : 32 / bits;  // codes in whole words
    require(columns % step == 0, "columns is {}, must be a multiple of {} for {}-bit gptq", columns,
            step, bits);
    require(rows % step == 0, "rows is {}, must be a multiple of {} for {}-bit gptq", rows, step,
            bits);
    const int64_t groups = column_groups(format, columns);
    return bytes_of({.code_rows = columns * bits / 32,
                     .code_row_bytes = rows * 4,
                     .scale_rows = groups,
                     .scale_row_bytes = rows * element_bytes(format.scale_type),
                     .zero_rows = groups,
                     .zero_row_bytes = rows * bits / 32 * 4});
}

struct Gptq {
    static uint32_t code(const Matrix& matrix, int64_t n, int64_t k) {
        return stream_code(matrix.data + 4 * n, matrix.row_stride, k, matrix.format.bits);
    }
    static const std::byte* scale(const Matrix& matrix, int64_t n, int64_t group) {
        return scale_in_row(matrix, group, n);
    }
    static int32_t zero(const Matrix& matrix, int64_t n, int64_t group) {
        const int32_t bits = matrix.format.bits;
        const std::byte* zeros = matrix.zero_points + group * (matrix.whole_rows * bits / 32 * 4);
        const bool is_less = matrix.format.zero_point == MOE_ZERO_POINT_PACKED_MINUS_ONE;
        return static_cast<int32_t>(stream_code(zeros, 4, n, bits)) + (is_less ? 1 : 0);
    }
};

}  // namespace

constinit const FormatTraits gptq_format = {
    .name = "gptq",
    .format = int_format(MOE_PACKING_GPTQ, 4, 128, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED_MINUS_ONE),
    .block_rows = 1,
    .block_columns = 1,
    .block_bytes = 1,
    .scale_bytes = 2,
    .decode = IntFormat<Gptq>::decode,
    .encode = nullptr,
    .accepts = accepts,
    .unsliceable_bytes = unsliceable_bytes,
    .parts = &IntFormat<Gptq>::parts};

}  // namespace moe
