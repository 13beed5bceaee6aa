// What the formats of packed integers share: codes as little-endian streams of bits in 32-bit
// words, and scales of 16 or 32 bits.
#pragma once

#include <algorithm>

#include "libmoe/base/checked.hpp"
#include "libmoe/base/element.hpp"
#include "libmoe/formats/entries.hpp"

namespace moe {

// Code `index` of a stream: bits [bits * index, + bits) of words that lie `stride` bytes apart. A
// code may straddle two words.
inline uint32_t stream_code(const std::byte* words, int64_t stride, int64_t index, int32_t bits) {
    const int64_t bit = index * bits;
    const auto shift = static_cast<uint32_t>(bit % 32);
    const std::byte* word = words + bit / 32 * stride;
    uint64_t pair = load<uint32_t>(word);
    if (shift + static_cast<uint32_t>(bits) > 32)
        pair |= static_cast<uint64_t>(load<uint32_t>(word + stride)) << 32;
    return static_cast<uint32_t>(pair >> shift) & ((1u << bits) - 1);
}

// Words that hold `count` codes.
constexpr int64_t stream_words(int64_t count, int32_t bits) {
    return divide_up(count * bits, 32);
}

// One zero point and scale for every row and `group` columns.
constexpr moe_format int_format(moe_packing packing, int32_t bits, int32_t group,
                                moe_type scale_type, moe_zero_point zero_point) {
    moe_format format = format_of(MOE_TYPE_INT);
    format.bits = bits;
    format.group_rows = 1;
    format.group_columns = group;
    format.scale_type = scale_type;
    format.zero_point = zero_point;
    format.packing = packing;
    return format;
}

inline float scale_value(moe_type type, const std::byte* scales, int64_t index) {
    switch (type) {
        case MOE_TYPE_F16:
            return f16_to_float(load<uint16_t>(scales + 2 * index));
        case MOE_TYPE_BF16:
            return bf16_to_float(load<uint16_t>(scales + 2 * index));
        default:
            return load<float>(scales + 4 * index);
    }
}

// Where scale `index` of a row of the table of scales is.
inline const std::byte* scale_in_row(const Matrix& matrix, int64_t row, int64_t index) {
    return matrix.scales + row * matrix.scale_row_stride +
           index * element_bytes(matrix.format.scale_type);
}

// Scale `block` of a format of nested ones.
inline float nested_scale(const Matrix& matrix, int64_t block) {
    const float code = matrix.nested_codebook[load<uint8_t>(matrix.scales + block)];
    return code * matrix.nested_scales[block / nested_group] + matrix.nested_offset;
}

// Rounded to its type; a scale of zero divides by nothing, so it is stored as 1, and one beyond f16
// as 65504.
inline void store_float_scale(moe_type type, float scale, std::byte* address) {
    if (type == MOE_TYPE_F32) return store(address, scale > 0 ? scale : 1.0f);
    const auto narrow = [type](float value) {
        return type == MOE_TYPE_F16 ? float_to_f16(std::min(value, 65504.0f))
                                    : float_to_bf16(value);
    };
    const uint16_t half = narrow(scale);
    store(address, half ? half : narrow(1.0f));
}

constexpr bool is_float_scale(moe_type type) {
    return type == MOE_TYPE_F32 || type == MOE_TYPE_F16 || type == MOE_TYPE_BF16;
}

constexpr bool is_group(int32_t group) {
    return group == -1 || (group > 0 && group <= 1 << 30);
}

// Groups of columns of a whole matrix.
inline int64_t column_groups(const moe_format& format, int64_t columns) {
    return (columns - 1) / group_extent(format.group_columns) + 1;
}

inline int64_t group_of_column(const Matrix& matrix, int64_t column) {
    return matrix.permutation ? matrix.permutation[column]
                              : column / group_extent(matrix.format.group_columns);
}

// Bits of zero points: those of the codes, and none where the middle is meant.
constexpr bool has_packed_zeros(const moe_format& format) {
    return format.zero_point == MOE_ZERO_POINT_PACKED ||
           format.zero_point == MOE_ZERO_POINT_PACKED_MINUS_ONE;
}

// The sizes of the three buffers from their rows and the bytes of a row.
struct IntBuffers {
    int64_t code_rows, code_row_bytes;
    int64_t scale_rows, scale_row_bytes;
    int64_t zero_rows, zero_row_bytes;
};

inline MatrixBytes bytes_of(const IntBuffers& buffers) {
    const auto product = [](int64_t a, int64_t b) {
        return checked_multiply(static_cast<uint64_t>(a), static_cast<uint64_t>(b), "weights");
    };
    MatrixBytes bytes{};
    bytes.row_stride = static_cast<uint64_t>(buffers.code_row_bytes);
    bytes.data = product(buffers.code_rows, buffers.code_row_bytes);
    bytes.scale_row_stride = static_cast<uint64_t>(buffers.scale_row_bytes);
    bytes.scales = product(buffers.scale_rows, buffers.scale_row_bytes);
    bytes.zero_points = product(buffers.zero_rows, buffers.zero_row_bytes);
    require(bytes.data <= INT64_MAX && bytes.scales <= INT64_MAX && bytes.zero_points <= INT64_MAX,
            "a matrix of {} bytes of codes is too large", bytes.data);
    return bytes;
}

// Larger ones would overflow a count of bits.
inline void require_countable(int64_t rows, int64_t columns) {
    require(rows <= int64_t{1} << 40, "rows is {}, more than 2^40", rows);
    require(columns <= int64_t{1} << 40, "columns is {}, more than 2^40", columns);
}

// A format of integers from where its parts are, for row n and column k of the whole matrix:
//   Parts::code(matrix, n, k), scale(matrix, n, group) [where it is stored], zero(matrix, n,
//   group)
template <class Parts>
struct IntFormat {
    // Scale and zero point change from group to group only.
    static void decode(const Matrix& matrix, int64_t row, int64_t column, int64_t count,
                       float* out) {
        const int64_t n = matrix.row_begin + row;
        int64_t known = -1;
        float scale = 0;
        int32_t zero = 0;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t k = matrix.column_begin + column + i;
            const int64_t group = group_of_column(matrix, k);
            if (group != known) {
                known = group;
                scale = scale_value(matrix.format.scale_type, Parts::scale(matrix, n, group), 0);
                zero = Parts::zero(matrix, n, group);
            }
            const auto code = static_cast<int32_t>(Parts::code(matrix, n, k));
            out[i] = static_cast<float>(code - zero) * scale;
        }
    }

    static void codes(const Matrix& matrix, int64_t row, int64_t column, int64_t count,
                      uint8_t* out) {
        for (int64_t i = 0; i < count; ++i)
            out[i] = static_cast<uint8_t>(
                Parts::code(matrix, matrix.row_begin + row, matrix.column_begin + column + i));
    }
    static void codes_at(const Matrix& matrix, int64_t row, const uint32_t* columns, int64_t count,
                         uint8_t* out) {
        for (int64_t i = 0; i < count; ++i)
            out[i] = static_cast<uint8_t>(
                Parts::code(matrix, matrix.row_begin + row, matrix.column_begin + columns[i]));
    }
    static int64_t group(const Matrix& matrix, int64_t column) {
        return group_of_column(matrix, matrix.column_begin + column);
    }
    static void scale(const Matrix& matrix, int64_t row, int64_t column, std::byte* out) {
        const std::byte* from = Parts::scale(matrix, matrix.row_begin + row, group(matrix, column));
        std::memcpy(out, from, static_cast<size_t>(element_bytes(matrix.format.scale_type)));
    }
    static int32_t zero(const Matrix& matrix, int64_t row, int64_t column) {
        return Parts::zero(matrix, matrix.row_begin + row, group(matrix, column));
    }
    static constexpr GridParts parts{codes, scale, zero, codes_at};
};

}  // namespace moe
