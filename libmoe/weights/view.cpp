// View arithmetic. Everything is in bytes from the first element; signs and sizes are checked
// before a pointer moves.
#include "libmoe/weights/view.hpp"

#include <algorithm>
#include <cstring>

#include "libmoe/base/checked.hpp"

namespace moe {
namespace {

// A buffer of a tensor for one expert of its stack.
struct Buffer {
    const char* name;
    const void* data;
    const void* const* per_expert;
    uint64_t bytes;
    int64_t stride;         // given, bytes from expert to expert; 0: dense
    uint64_t expert_bytes;  // from the first to the last byte of one expert
};

const std::byte* locate(const Buffer& buffer, int64_t index, const char* what) {
    require(buffer.stride >= 0, "{}: {} expert stride is {}", what, buffer.name, buffer.stride);
    const bool stacked = buffer.per_expert == nullptr;
    const void* base = stacked ? buffer.data : buffer.per_expert[index];
    require(base != nullptr, "{}: {} is NULL", what, buffer.name);
    const uint64_t stride =
        buffer.stride ? static_cast<uint64_t>(buffer.stride) : buffer.expert_bytes;
    const uint64_t offset =
        stacked ? checked_multiply(static_cast<uint64_t>(index), stride, what) : 0;
    const uint64_t end = checked_add(offset, buffer.expert_bytes, what);
    require(end <= buffer.bytes, "{}: {} has {} bytes, its shape and strides need {}", what,
            buffer.name, buffer.bytes, end);
    return static_cast<const std::byte*>(base) + offset;
}

// Bytes from the first to the last of `rows` rows of row_bytes each.
uint64_t extent(int64_t rows, uint64_t stride, uint64_t row_bytes, const char* what) {
    return checked_add(checked_multiply(static_cast<uint64_t>(rows - 1), stride, what), row_bytes,
                       what);
}

uint64_t stride_or_dense(int64_t given, uint64_t dense, const char* name, const char* what) {
    if (given == 0) return dense;
    require(given > 0 && static_cast<uint64_t>(given) >= dense,
            "{}: {} is {}, one row has {} bytes", what, name, given, dense);
    return static_cast<uint64_t>(given);
}

void set_data(Matrix& matrix, const moe_tensor& tensor, int64_t index, const char* what) {
    const bool transposed = tensor.orientation == MOE_ORIENTATION_IN_OUT;
    const int64_t stored_rows = transposed ? tensor.columns : tensor.rows;
    const int64_t stored_columns = transposed ? tensor.rows : tensor.columns;
    const uint64_t row_bytes = matrix_bytes(*matrix.traits, 1, stored_columns).row_stride;
    const uint64_t stride = stride_or_dense(tensor.row_stride, row_bytes, "row_stride", what);
    matrix.data = locate({"data", tensor.data, tensor.data_per_expert, tensor.data_bytes,
                          tensor.expert_stride, extent(stored_rows, stride, row_bytes, what)},
                         index, what);
    matrix.row_stride = static_cast<int64_t>(stride);
    if (transposed) {
        matrix.column_stride = matrix.row_stride;
        matrix.row_stride = element_bytes(matrix.format.type);
    }
}

void set_scales(Matrix& matrix, const moe_tensor& tensor, int64_t index, const char* what) {
    if (matrix.format.scale_type == MOE_TYPE_NONE) return;
    const MatrixBytes bytes = matrix_bytes(*matrix.traits, tensor.rows, tensor.columns);
    const uint64_t stride =
        stride_or_dense(tensor.scale_row_stride, bytes.scale_row_stride, "scale_row_stride", what);
    const int64_t scale_rows = divide_up(tensor.rows, matrix.format.group_rows);
    matrix.scales = locate(
        {"scales", tensor.scales, tensor.scales_per_expert, tensor.scale_bytes,
         tensor.scale_expert_stride, extent(scale_rows, stride, bytes.scale_row_stride, what)},
        index, what);
    matrix.scale_row_stride = static_cast<int64_t>(stride);
}

void set_tables(Matrix& matrix, const moe_tensor& tensor, int64_t index, const char* what) {
    if (matrix.format.global_scale != MOE_GLOBAL_SCALE_NONE) {
        require(tensor.global_scale != nullptr, "{}: global_scale is NULL, its format has one",
                what);
        require(tensor.n_global_scales == 1 || index < tensor.n_global_scales,
                "{}: n_global_scales is {}, must be 1 or one per expert", what,
                tensor.n_global_scales);
        matrix.global_scale = tensor.global_scale[tensor.n_global_scales == 1 ? 0 : index];
    }
    if (matrix.format.type != MOE_TYPE_CODEBOOK) return;
    matrix.codebook = builtin_codebook(matrix.format);
    if (matrix.codebook) return;
    const uint64_t bytes = sizeof(float) << matrix.format.bits;
    require(tensor.codebook != nullptr, "{}: codebook is NULL, its format needs one", what);
    require(tensor.codebook_bytes >= bytes, "{}: codebook has {} bytes, {} bits need {}", what,
            tensor.codebook_bytes, matrix.format.bits, bytes);
    matrix.codebook = tensor.codebook;
}

}  // namespace

Matrix view_of(const moe_tensor& tensor, int64_t index, const char* what) {
    Matrix matrix;
    matrix.format = *tensor.format;
    matrix.traits = &get_format(*tensor.format, what);
    matrix.rows = tensor.rows;
    matrix.columns = tensor.columns;
    require(tensor.rows > 0 && tensor.columns > 0, "{}: shape is [{}, {}]", what, tensor.rows,
            tensor.columns);
    require(tensor.orientation == MOE_ORIENTATION_OUT_IN ||
                tensor.orientation == MOE_ORIENTATION_IN_OUT,
            "{}: orientation is {}", what, static_cast<int32_t>(tensor.orientation));
    if (tensor.orientation == MOE_ORIENTATION_IN_OUT && !is_plain(*tensor.format))
        fail(MOE_ERROR_UNSUPPORTED, "{}: orientation IN_OUT is for f32, f16 and bf16, not {}", what,
             format_name(*tensor.format).text);
    set_data(matrix, tensor, index, what);
    set_scales(matrix, tensor, index, what);
    set_tables(matrix, tensor, index, what);
    return matrix;
}

Matrix gate_up_half(const Matrix& fused, moe_gate_up_order order, GateUpHalf half) {
    const int64_t rows = fused.rows / 2;
    const bool up = half == GateUpHalf::up;
    if (order != MOE_GATE_UP_INTERLEAVED) {
        const bool second = up == (order == MOE_GATE_UP_GATE_FIRST);
        return part_of(fused, second ? rows : 0, rows, 0, fused.columns);
    }
    // Every other row; a scale that covers several rows would cover both halves.
    if (fused.format.scale_type != MOE_TYPE_NONE && fused.format.group_rows != 1)
        fail(MOE_ERROR_UNSUPPORTED, "gate_up: interleaved rows cannot share scales by {}",
             fused.format.group_rows);
    Matrix matrix = fused;
    matrix.rows = rows;
    matrix.row_stride *= 2;
    matrix.scale_row_stride *= 2;
    if (up) {
        matrix.data += fused.row_stride;
        if (matrix.scales) matrix.scales += fused.scale_row_stride;
    }
    return matrix;
}

Matrix part_of(const Matrix& matrix, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    Matrix part = matrix;
    part.rows = rows;
    part.columns = columns;
    part.data += row * matrix.row_stride;
    part.data += matrix.column_stride
                     ? column * matrix.column_stride
                     : column / matrix.traits->block_columns * matrix.traits->block_bytes;
    if (!matrix.scales) return part;
    const int64_t scale_row = row + matrix.scale_row_phase;
    const int64_t scale_column = column + matrix.scale_column_phase;
    const moe_format& format = matrix.format;
    part.scales += scale_row / format.group_rows * matrix.scale_row_stride;
    part.scales += scale_column / format.group_columns * matrix.traits->scale_bytes;
    part.scale_row_phase = static_cast<int32_t>(scale_row % format.group_rows);
    part.scale_column_phase = static_cast<int32_t>(scale_column % format.group_columns);
    return part;
}

namespace {

struct ScaleShape {
    int64_t rows;
    uint64_t row_bytes;
};

ScaleShape scale_shape(const FormatTraits& traits, int64_t row_phase, int64_t rows,
                       int64_t column_phase, int64_t columns) {
    if (traits.format.scale_type == MOE_TYPE_NONE) return {0, 0};
    return {divide_up(row_phase + rows, traits.format.group_rows),
            static_cast<uint64_t>(divide_up(column_phase + columns, traits.format.group_columns)) *
                traits.scale_bytes};
}

uint64_t scale_copy_bytes(const ScaleShape& shape) {
    return checked_multiply(static_cast<uint64_t>(shape.rows), shape.row_bytes, "weights");
}

void copy_rows(const std::byte* from, int64_t from_stride, std::byte* to, uint64_t row_bytes,
               int64_t rows) {
    for (int64_t r = 0; r < rows; ++r)
        std::memcpy(to + r * static_cast<int64_t>(row_bytes), from + r * from_stride, row_bytes);
}

// Turned in tiles, so that neither side walks through memory element by element.
void copy_turned(const Matrix& from, std::byte* to, uint64_t row_bytes) {
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

uint64_t copy_bytes(const FormatTraits& traits, int64_t row, int64_t rows, int64_t column,
                    int64_t columns) {
    const bool scaled = traits.format.scale_type != MOE_TYPE_NONE;
    const int64_t row_phase = scaled ? row % traits.format.group_rows : 0;
    const int64_t column_phase = scaled ? column % traits.format.group_columns : 0;
    const uint64_t data = matrix_bytes(traits, rows, columns).data;
    const uint64_t scales =
        scale_copy_bytes(scale_shape(traits, row_phase, rows, column_phase, columns));
    return align_up(data, copy_alignment) + align_up(scales, copy_alignment);
}

Extent extent_of(const Matrix& matrix) {
    const int64_t size = element_bytes(matrix.format.type);
    const int64_t row = matrix.column_stride ? (matrix.columns - 1) * matrix.column_stride + size
                                             : matrix.columns / matrix.traits->block_columns *
                                                   int64_t{matrix.traits->block_bytes};
    Extent extent{static_cast<uint64_t>((matrix.rows - 1) * matrix.row_stride + row), 0};
    if (!matrix.scales) return extent;
    const ScaleShape shape = scale_shape(*matrix.traits, matrix.scale_row_phase, matrix.rows,
                                         matrix.scale_column_phase, matrix.columns);
    extent.scales =
        static_cast<uint64_t>((shape.rows - 1) * matrix.scale_row_stride) + shape.row_bytes;
    return extent;
}

Matrix copy_part(const Matrix& part, std::byte* to) {
    const MatrixBytes bytes = matrix_bytes(*part.traits, part.rows, part.columns);
    Matrix copy = part;
    copy.data = to;
    copy.row_stride = static_cast<int64_t>(bytes.row_stride);
    copy.column_stride = 0;
    if (part.column_stride)
        copy_turned(part, to, bytes.row_stride);
    else
        copy_rows(part.data, part.row_stride, to, bytes.row_stride, part.rows);
    if (!part.scales) return copy;
    const ScaleShape shape = scale_shape(*part.traits, part.scale_row_phase, part.rows,
                                         part.scale_column_phase, part.columns);
    std::byte* scales = to + align_up(bytes.data, copy_alignment);
    copy_rows(part.scales, part.scale_row_stride, scales, shape.row_bytes, shape.rows);
    copy.scales = scales;
    copy.scale_row_stride = static_cast<int64_t>(shape.row_bytes);
    return copy;
}

}  // namespace moe
