// Dense copies: codes, then scales, then factors of columns, each aligned to copy_alignment.
#include "libmoe/weights/matrix_copy.hpp"

#include <algorithm>
#include <cstring>

#include "libmoe/base/checked.hpp"
#include "libmoe/formats/block.hpp"
#include "libmoe/weights/matrix_extent.hpp"

namespace moe {
namespace {

// The buffers of a format that is not sliceable, one behind the other.
struct WholeCopy {
    uint64_t data, scales, zero_points, permutation, nested_scales;

    uint64_t total() const {
        return align_up(data, copy_alignment) + align_up(scales, copy_alignment) +
               align_up(zero_points, copy_alignment) + align_up(permutation, copy_alignment) +
               align_up(nested_scales, copy_alignment);
    }
};

WholeCopy whole_copy(const FormatTraits& traits, const moe_format& format, int64_t rows,
                     int64_t columns) {
    const MatrixBytes bytes = traits.unsliceable_bytes(format, rows, columns);
    WholeCopy copy{bytes.data, bytes.scales, bytes.zero_points, 0, 0};
    if (format.act_order) copy.permutation = static_cast<uint64_t>(columns) * sizeof(int32_t);
    if (format.nested_scales)
        copy.nested_scales =
            static_cast<uint64_t>(divide_up(static_cast<int64_t>(bytes.scales), nested_group)) *
            sizeof(float);
    return copy;
}

Matrix copy_whole(const Matrix& part, std::byte* to) {
    const WholeCopy bytes =
        whole_copy(*part.traits, part.format, part.whole_rows, part.whole_columns);
    const auto append = [&to](const void* from, uint64_t size) -> const std::byte* {
        if (!size) return nullptr;
        std::memcpy(to, from, size);
        const std::byte* copied = to;
        to += align_up(size, copy_alignment);
        return copied;
    };
    Matrix copy = part;
    copy.data = append(part.data, bytes.data);
    copy.scales = append(part.scales, bytes.scales);
    copy.zero_points = append(part.zero_points, bytes.zero_points);
    copy.permutation =
        reinterpret_cast<const int32_t*>(append(part.permutation, bytes.permutation));
    copy.nested_scales =
        reinterpret_cast<const float*>(append(part.nested_scales, bytes.nested_scales));
    return copy;
}

uint64_t pre_quant_bytes(const moe_format& format, int64_t columns) {
    return format.pre_quant_scale ? static_cast<uint64_t>(columns) * sizeof(float) : 0;
}

uint64_t scale_copy_bytes(const ScaleShape& shape) {
    return checked_multiply(static_cast<uint64_t>(shape.rows), shape.row_bytes, "weights");
}

void copy_rows(const std::byte* from, int64_t from_stride, std::byte* to, uint64_t row_bytes,
               int64_t rows) {
    for (int64_t r = 0; r < rows; ++r)
        std::memcpy(to + r * static_cast<int64_t>(row_bytes), from + r * from_stride, row_bytes);
}

// Tiled scales become linear.
void copy_tiled_scales(const Matrix& from, std::byte* to, uint64_t row_bytes) {
    for (int64_t r = 0; r < from.rows; ++r) {
        const RowScales scales = row_scales(from, r, 0);
        for (uint64_t c = 0; c < row_bytes; ++c) *to++ = *scales.at(static_cast<int64_t>(c));
    }
}

// Transposes by tiles, so that neither side walks through memory element by element.
void copy_transposed(const Matrix& from, std::byte* to, uint64_t row_bytes) {
    constexpr int64_t tile = 32;
    const int64_t size = element_bytes(from.format.type);
    for (int64_t r0 = 0; r0 < from.rows; r0 += tile)
        for (int64_t k0 = 0; k0 < from.columns; k0 += tile)
            for (int64_t r = r0; r < std::min(r0 + tile, from.rows); ++r)
                for (int64_t k = k0; k < std::min(k0 + tile, from.columns); ++k)
                    std::memcpy(to + r * static_cast<int64_t>(row_bytes) + k * size,
                                from.data + r * from.row_stride + k * from.column_stride, size);
}

}  // namespace

uint64_t copy_bytes(const moe_format& format, int64_t row, int64_t rows, int64_t column,
                    int64_t columns) {
    const FormatTraits& traits = get_format(format, "a copy");
    const bool scaled = format.scale_type != MOE_TYPE_NONE;
    const int64_t row_phase = scaled ? row % group_extent(format.group_rows) : 0;
    const int64_t column_phase = scaled ? column % group_extent(format.group_columns) : 0;
    const uint64_t data = matrix_bytes(traits, format, rows, columns).data;
    const uint64_t scales =
        scale_copy_bytes(scale_shape(traits, format, row_phase, rows, column_phase, columns));
    return align_up(data, copy_alignment) + align_up(scales, copy_alignment) +
           align_up(pre_quant_bytes(format, columns), copy_alignment);
}

uint64_t whole_copy_bytes(const moe_format& format, int64_t rows, int64_t columns) {
    return whole_copy(get_format(format, "a copy"), format, rows, columns).total();
}

Matrix copy_part(const Matrix& part, std::byte* to) {
    if (part.traits->unsliceable_bytes) return copy_whole(part, to);
    const MatrixBytes bytes = matrix_bytes(*part.traits, part.format, part.rows, part.columns);
    Matrix copy = part;
    copy.data = to;
    copy.row_stride = static_cast<int64_t>(bytes.row_stride);
    copy.column_stride = 0;
    if (part.column_stride)
        copy_transposed(part, to, bytes.row_stride);
    else
        copy_rows(part.data, part.row_stride, to, bytes.row_stride, part.rows);
    if (!part.scales) return copy;
    const ScaleShape shape = scale_shape(*part.traits, part.format, part.scale_row_phase, part.rows,
                                         part.scale_column_phase, part.columns);
    std::byte* scales = to + align_up(bytes.data, copy_alignment);
    if (part.tiled.row_step)
        copy_tiled_scales(part, scales, shape.row_bytes);
    else
        copy_rows(part.scales, part.scale_row_stride, scales, shape.row_bytes, shape.rows);
    copy.tiled = {};
    copy.scales = scales;
    copy.scale_row_stride = static_cast<int64_t>(shape.row_bytes);
    if (!part.pre_quant_scale) return copy;
    std::byte* pre = scales + align_up(scale_copy_bytes(shape), copy_alignment);
    std::memcpy(pre, part.pre_quant_scale, pre_quant_bytes(part.format, part.columns));
    copy.pre_quant_scale = reinterpret_cast<const float*>(pre);
    return copy;
}

}  // namespace moe
