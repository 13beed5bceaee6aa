// pack_quantized: integers of 1 to 8 bits as compressed-tensors packs them ("pack-quantized"), a
// scale per group of columns of a row.
//   codes        uint32 [rows, ceil(columns * bits / 32)]: a row is a little-endian stream of bits,
//                the code of column k is bits [bits * k, + bits) and may straddle two words. What
//                is left of the last word means nothing.
//   scales       f16, bf16 or f32 [rows, groups]; with group_rows -1 a single row of them
//   zero points  PACKED: uint32 [ceil(rows * bits / 32), groups], for each group the same stream
//                along the rows. MIDDLE: none, the zero point is 2^(bits - 1)
//   group        of column k: k / group_columns (-1: one group), or permutation[k] with act_order
//   W[n, k] = (code - zero) * scale[n, group]       exact for 16-bit scales, else one rounding
// Encoding, for MIDDLE without act_order and from 2 bits on: scale = amax / (2^(bits - 1) - 1/2),
// no more than what keeps the lowest code finite, rounded to its type (1 where that is 0, 65504
// beyond f16), code = w / scale rounded, ties to even, + 2^(bits - 1), within the codes. The rest
// is read only, and so is 1 bit, where rounding would leave nothing but zeros.
#include <cmath>

#include "libmoe/formats/block.hpp"
#include "libmoe/formats/int_codes.hpp"

namespace moe {
namespace {

// What fits both entries, the numbers apart.
bool accepts_numbers(const moe_format& format) {
    const moe_format& own = pack_quantized_formats[0].format;
    moe_format plain = format;
    plain.bits = own.bits;
    plain.group_rows = own.group_rows;
    plain.group_columns = own.group_columns;
    plain.scale_type = own.scale_type;
    plain.zero_point = own.zero_point;
    plain.act_order = own.act_order;
    return same_format(plain, own) && format.bits >= 1 && format.bits <= 8 &&
           (format.group_rows == 1 || format.group_rows == -1) && is_group(format.group_columns) &&
           is_float_scale(format.scale_type) && (format.act_order == 0 || format.act_order == 1);
}

bool is_written(const moe_format& format) {
    return format.zero_point == MOE_ZERO_POINT_MIDDLE && format.act_order == 0 &&
           format.group_rows == 1 && format.bits > 1;
}

bool accepts_written(const moe_format& format) {
    return accepts_numbers(format) && is_written(format);
}

bool accepts_others(const moe_format& format) {
    const bool known_zero = format.zero_point == MOE_ZERO_POINT_MIDDLE ||
                            (format.zero_point == MOE_ZERO_POINT_PACKED && format.group_rows == 1);
    return accepts_numbers(format) && known_zero && !is_written(format);
}

MatrixBytes unsliceable_bytes(const moe_format& format, int64_t rows, int64_t columns) {
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

struct PackQuantized {
    static uint32_t code(const Matrix& matrix, int64_t n, int64_t k) {
        return stream_code(matrix.data + n * matrix.row_stride, 4, k, matrix.format.bits);
    }
    static const std::byte* scale(const Matrix& matrix, int64_t n, int64_t group) {
        return scale_in_row(matrix, matrix.format.group_rows == 1 ? n : 0, group);
    }
    static int32_t zero(const Matrix& matrix, int64_t n, int64_t group) {
        const moe_format& format = matrix.format;
        if (!has_packed_zeros(format)) return 1 << (format.bits - 1);
        const int64_t stride = column_groups(format, matrix.whole_columns) * 4;
        return static_cast<int32_t>(
            stream_code(matrix.zero_points + 4 * group, stride, n, format.bits));
    }
};

void store_code(std::byte* row, int64_t index, int32_t bits, uint32_t code) {
    for (int64_t bit = index * bits, end = bit + bits; bit < end; ++bit, code >>= 1)
        row[bit / 8] |= static_cast<std::byte>((code & 1u) << (bit % 8));
}

// Of the types of scales that reach as far as float32, the one with the smallest end.
constexpr float largest_bf16 = 0x1.FEp127f;

// Codes [first, first + count) of a row, under one scale.
void encode_group(const float* values, int64_t first, int64_t count, const moe_format& format,
                  std::byte* scale_place, std::byte* row) {
    const auto half = static_cast<float>(1 << (format.bits - 1));
    const float largest = largest_magnitude(values + first, count);
    const float scale_wanted = std::min(largest / (half - 0.5f), largest_bf16 / half);
    store_float_scale(format.scale_type, scale_wanted, scale_place);
    const float scale = scale_value(format.scale_type, scale_place, 0);
    for (int64_t k = first; k < first + count; ++k) {
        const float code = std::nearbyint(values[k] / scale) + half;
        store_code(row, k, format.bits,
                   static_cast<uint32_t>(std::clamp(code, 0.0f, 2 * half - 1)));
    }
}

void encode(const FormatTraits& traits, const float* source, int64_t rows, int64_t columns,
            const EncodeTarget& target) {
    require_finite(traits, source, rows, columns);
    const moe_format& format = target.format ? *target.format : traits.format;
    const MatrixBytes bytes = unsliceable_bytes(format, rows, columns);
    const int64_t group = group_extent(format.group_columns);
    std::memset(target.data, 0, bytes.data);
    std::byte* scales = target.scales;
    for (int64_t n = 0; n < rows; ++n) {
        std::byte* codes = target.data + n * static_cast<int64_t>(bytes.row_stride);
        for (int64_t k = 0; k < columns; k += group) {
            encode_group(source + n * columns, k, std::min(group, columns - k), format, scales,
                         codes);
            scales += element_bytes(format.scale_type);
        }
    }
}

constexpr FormatTraits entry(const char* name, bool written) {
    return {.name = name,
            .format = int_format(MOE_PACKING_BIT_STREAM, 4, 32, MOE_TYPE_BF16,
                                 written ? MOE_ZERO_POINT_MIDDLE : MOE_ZERO_POINT_PACKED),
            .block_rows = 1,
            .block_columns = 1,
            .block_bytes = 1,
            .scale_bytes = 2,
            .decode = IntFormat<PackQuantized>::decode,
            .encode = written ? encode : nullptr,
            .accepts = written ? accepts_written : accepts_others,
            .unsliceable_bytes = unsliceable_bytes,
            .parts = &IntFormat<PackQuantized>::parts};
}

}  // namespace

constinit const std::array<FormatTraits, 2> pack_quantized_formats = {
    entry("pack_quantized", true), entry("pack_quantized_zeros", false)};

}  // namespace moe
