// pack_quantized: integers of 1 to 8 bits as compressed-tensors packs them ("pack-quantized"), a
// scale per group of columns of a row. Read only.
//   codes        uint32 [rows, ceil(columns * bits / 32)]: a row is a little-endian stream of bits,
//                the code of column k is bits [bits * k, + bits) and may straddle two words. What
//                is left of the last word means nothing.
//   scales       f16, bf16 or f32 [rows, groups]; with group_rows -1 a single row of them
//   zero points  PACKED: uint32 [ceil(rows * bits / 32), groups], for each group the same stream
//                along the rows. MIDDLE: none, the zero point is 2^(bits - 1)
//   group        of column k: k / group_columns (-1: one group), or permutation[k] with act_order
//   W[n, k] = (code - zero) * scale[n, group]       exact for 16-bit scales, else one rounding
#include "libmoe/formats/int_codes.hpp"

namespace moe {
namespace {

bool accepts(const moe_format& format) {
    moe_format plain = format;
    plain.bits = pack_quantized_format.format.bits;
    plain.group_rows = pack_quantized_format.format.group_rows;
    plain.group_columns = pack_quantized_format.format.group_columns;
    plain.scale_type = pack_quantized_format.format.scale_type;
    plain.zero_point = pack_quantized_format.format.zero_point;
    plain.act_order = 0;
    const bool known_zero = format.zero_point == MOE_ZERO_POINT_MIDDLE ||
                            (format.zero_point == MOE_ZERO_POINT_PACKED && format.group_rows == 1);
    return same_format(plain, pack_quantized_format.format) && format.bits >= 1 &&
           format.bits <= 8 && (format.group_rows == 1 || format.group_rows == -1) &&
           is_group(format.group_columns) && is_float_scale(format.scale_type) && known_zero &&
           (format.act_order == 0 || format.act_order == 1);
}

MatrixBytes whole(const moe_format& format, int64_t rows, int64_t columns) {
    require_countable(rows, columns);
    const int64_t groups = column_groups(format, columns);
    const bool zeros = has_packed_zeros(format);
    return bytes_of({.code_rows = rows,
                     .code_row_bytes = stream_words(columns, format.bits) * 4,
                     .scale_rows = format.group_rows == 1 ? rows : 1,
                     .scale_row_bytes = groups * element_bytes(format.scale_type),
                     .zero_rows = zeros ? stream_words(rows, format.bits) : 0,
                     .zero_row_bytes = zeros ? groups * 4 : 0});
}

void decode(const Matrix& matrix, int64_t row, int64_t column, int64_t count, float* out) {
    const moe_format& format = matrix.format;
    const int64_t n = matrix.row_begin + row;
    const int64_t scale_row = format.group_rows == 1 ? n : 0;
    const int64_t zero_stride = column_groups(format, matrix.whole_columns) * 4;
    const std::byte* words = matrix.data + n * matrix.row_stride;
    decode_groups(
        matrix, column, count,
        [&](int64_t group) {
            return scale_value(format.scale_type,
                               matrix.scales + scale_row * matrix.scale_row_stride, group);
        },
        [&](int64_t group) {
            if (!has_packed_zeros(format)) return 1 << (format.bits - 1);
            return static_cast<int32_t>(
                stream_code(matrix.zero_points + 4 * group, zero_stride, n, format.bits));
        },
        [&](int64_t k) { return stream_code(words, 4, k, format.bits); }, out);
}

constexpr moe_format format() {
    moe_format format = format_of(MOE_TYPE_INT);
    format.bits = 4;
    format.group_rows = 1;
    format.group_columns = 32;
    format.scale_type = MOE_TYPE_BF16;
    format.zero_point = MOE_ZERO_POINT_MIDDLE;
    format.packing = MOE_PACKING_BIT_STREAM;
    return format;
}

}  // namespace

constinit const FormatTraits pack_quantized_format = {.name = "pack_quantized",
                                                      .format = format(),
                                                      .block_rows = 1,
                                                      .block_columns = 1,
                                                      .block_bytes = 1,
                                                      .scale_bytes = 2,
                                                      .decode = decode,
                                                      .encode = nullptr,
                                                      .accepts = accepts,
                                                      .whole = whole};

}  // namespace moe
