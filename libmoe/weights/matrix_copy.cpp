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

Matrix view_whole(const Matrix& like, const std::byte* at) {
    const MatrixBytes of_matrix =
        like.traits->unsliceable_bytes(like.format, like.whole_rows, like.whole_columns);
    const WholeCopy bytes =
        whole_copy(*like.traits, like.format, like.whole_rows, like.whole_columns);
    const auto next = [&at](uint64_t size) -> const std::byte* {
        if (!size) return nullptr;
        const std::byte* begin = at;
        at += align_up(size, copy_alignment);
        return begin;
    };
    Matrix view = like;
    view.data = next(bytes.data);
    view.row_stride = static_cast<int64_t>(of_matrix.row_stride);
    view.scales = next(bytes.scales);
    view.scale_row_stride = static_cast<int64_t>(of_matrix.scale_row_stride);
    view.zero_points = next(bytes.zero_points);
    view.permutation = reinterpret_cast<const int32_t*>(next(bytes.permutation));
    view.nested_scales = reinterpret_cast<const float*>(next(bytes.nested_scales));
    return view;
}

// Copies `bytes` bytes to where a view of the copy at `to` has them.
void fill(const void* in_view, const void* from, uint64_t bytes, std::byte* to) {
    if (bytes) std::memcpy(to + (static_cast<const std::byte*>(in_view) - to), from, bytes);
}

Matrix copy_whole(const Matrix& part, std::byte* to) {
    const WholeCopy bytes =
        whole_copy(*part.traits, part.format, part.whole_rows, part.whole_columns);
    const Matrix copy = view_whole(part, to);
    fill(copy.data, part.data, bytes.data, to);
    fill(copy.scales, part.scales, bytes.scales, to);
    fill(copy.zero_points, part.zero_points, bytes.zero_points, to);
    fill(copy.permutation, part.permutation, bytes.permutation, to);
    fill(copy.nested_scales, part.nested_scales, bytes.nested_scales, to);
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

Matrix view_of_copy(const Matrix& like, const std::byte* at) {
    if (like.traits->unsliceable_bytes) return view_whole(like, at);
    const MatrixBytes bytes = matrix_bytes(*like.traits, like.format, like.rows, like.columns);
    Matrix view = like;
    view.data = at;
    view.row_stride = static_cast<int64_t>(bytes.row_stride);
    view.column_stride = 0;
    view.tiled = {};
    if (like.format.scale_type == MOE_TYPE_NONE) return view;
    const ScaleShape shape = scale_shape(*like.traits, like.format, like.scale_row_phase, like.rows,
                                         like.scale_column_phase, like.columns);
    view.scales = at + align_up(bytes.data, copy_alignment);
    view.scale_row_stride = static_cast<int64_t>(shape.row_bytes);
    if (!like.format.pre_quant_scale) return view;
    view.pre_quant_scale = reinterpret_cast<const float*>(
        view.scales + align_up(scale_copy_bytes(shape), copy_alignment));
    return view;
}

Matrix copy_part(const Matrix& part, std::byte* to) {
    if (part.traits->unsliceable_bytes) return copy_whole(part, to);
    const Matrix copy = view_of_copy(part, to);
    const auto row_bytes = static_cast<uint64_t>(copy.row_stride);
    if (part.column_stride)
        copy_transposed(part, to, row_bytes);
    else
        copy_rows(part.data, part.row_stride, to, row_bytes, part.rows);
    if (!part.scales) return copy;
    const ScaleShape shape = scale_shape(*part.traits, part.format, part.scale_row_phase, part.rows,
                                         part.scale_column_phase, part.columns);
    std::byte* scales = to + (copy.scales - to);
    if (part.tiled.row_step)
        copy_tiled_scales(part, scales, shape.row_bytes);
    else
        copy_rows(part.scales, part.scale_row_stride, scales, shape.row_bytes, shape.rows);
    if (part.pre_quant_scale)
        fill(copy.pre_quant_scale, part.pre_quant_scale, pre_quant_bytes(part.format, part.columns),
             to);
    return copy;
}

}  // namespace moe
