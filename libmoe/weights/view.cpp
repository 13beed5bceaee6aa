// From a caller's tensor to a view of one expert. All arithmetic is in bytes from the first
// element; signs and sizes are checked before a pointer moves.
#include "libmoe/weights/view.hpp"

#include "libmoe/base/checked.hpp"
#include "libmoe/formats/block.hpp"
#include "libmoe/layer/layer.hpp"

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
    require(buffer.stride == 0 || static_cast<uint64_t>(buffer.stride) >= buffer.expert_bytes,
            "{}: {} expert stride is {}, one expert has {} bytes", what, buffer.name, buffer.stride,
            buffer.expert_bytes);
    require(!buffer.data || !buffer.per_expert, "{}: {} and {}_per_expert are both given", what,
            buffer.name, buffer.name);
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

// Returns true for a permutation that changes nothing. GPTQ writes one without act order as well.
bool keeps_order(const moe_tensor& tensor) {
    const int32_t group = tensor.format->group_columns;
    if (!tensor.permutation || group == 0 ||
        tensor.permutation_bytes / sizeof(int32_t) < static_cast<uint64_t>(tensor.columns))
        return false;
    for (int64_t k = 0; k < tensor.columns; ++k)
        if (tensor.permutation[k] != k / group_extent(group)) return false;
    return true;
}

void check_scale_layout(const moe_tensor& tensor, const char* what) {
    if (tensor.scale_layout == MOE_SCALE_LAYOUT_LINEAR) return;
    require(tensor.scale_layout == MOE_SCALE_LAYOUT_TILED_128X4, "{}: scale_layout is {}", what,
            static_cast<int32_t>(tensor.scale_layout));
    if (!may_be_tiled(*tensor.format))
        fail(
            MOE_ERROR_UNSUPPORTED,
            "{}: scale_layout TILED_128X4 is for nvfp4, mxfp4 and FP8 with E8M0 scales for 1 x 32, "
            "not {}",
            what, format_name(*tensor.format).text);
}

void set_tiled_scales(Matrix& matrix, const moe_tensor& tensor, int64_t index, const char* what) {
    require(tensor.scale_row_stride == 0, "{}: scale_row_stride is {}, tiled scales have none (0)",
            what, tensor.scale_row_stride);
    const int64_t groups = (tensor.columns - 1) / matrix.format.group_columns + 1;
    const TiledBytes bytes = tiled_bytes(tensor.rows, groups);
    matrix.scales = locate({"scales", tensor.scales, tensor.scales_per_expert, tensor.scale_bytes,
                            tensor.scale_expert_stride, bytes.total},
                           index, what);
    matrix.scale_row_stride = bytes.stride;
    matrix.tiled.row_step = 1;
}

void set_scales(Matrix& matrix, const moe_tensor& tensor, int64_t index, const char* what) {
    if (matrix.format.scale_type == MOE_TYPE_NONE) return;
    if (tensor.scale_layout == MOE_SCALE_LAYOUT_TILED_128X4)
        return set_tiled_scales(matrix, tensor, index, what);
    const MatrixBytes bytes =
        matrix_bytes(*matrix.traits, matrix.format, tensor.rows, tensor.columns);
    const uint64_t stride =
        stride_or_dense(tensor.scale_row_stride, bytes.scale_row_stride, "scale_row_stride", what);
    const int64_t scale_rows = divide_up(tensor.rows, group_extent(matrix.format.group_rows));
    matrix.scales = locate(
        {"scales", tensor.scales, tensor.scales_per_expert, tensor.scale_bytes,
         tensor.scale_expert_stride, extent(scale_rows, stride, bytes.scale_row_stride, what)},
        index, what);
    matrix.scale_row_stride = static_cast<int64_t>(stride);
}

// Checks `count` values of four bytes in host memory that all experts of a stack share.
template <class Value = float>
const Value* host_table(const void* values, uint64_t bytes, int64_t count, const char* name,
                        const char* what) {
    const uint64_t needed = checked_multiply(static_cast<uint64_t>(count), sizeof(Value), what);
    require(values != nullptr, "{}: {} is NULL, its format has one", what, name);
    require(bytes >= needed, "{}: {} has {} bytes, {} values need {}", what, name, bytes, count,
            needed);
    return static_cast<const Value*>(values);
}

// A tensor without a role may be a stack, too.
bool is_stack(const moe_tensor& tensor) {
    return tensor.expert == MOE_ALL_EXPERTS &&
           (tensor.role == MOE_ROLE_NONE || is_expert_role(tensor.role));
}

void set_tables(Matrix& matrix, const moe_tensor& tensor, int64_t index, const char* what) {
    if (matrix.format.global_scale != MOE_GLOBAL_SCALE_NONE) {
        require(tensor.global_scale != nullptr, "{}: global_scale is NULL, its format has one",
                what);
        require(tensor.n_global_scales == 1 ||
                    (is_stack(tensor) && tensor.n_global_scales == tensor.n_experts),
                "{}: n_global_scales is {}, must be 1, or one for each expert of a stack", what,
                tensor.n_global_scales);
        matrix.global_scale = tensor.global_scale[tensor.n_global_scales == 1 ? 0 : index];
    }
    if (matrix.format.pre_quant_scale) {
        matrix.pre_quant_scale = host_table(tensor.pre_quant_scale, tensor.pre_quant_scale_bytes,
                                            tensor.columns, "pre_quant_scale", what);
    }
    matrix.codebook = builtin_codebook(matrix.format);
    if (matrix.codebook || matrix.format.type != MOE_TYPE_CODEBOOK) return;
    const uint64_t bytes = sizeof(float) << matrix.format.bits;
    require(tensor.codebook != nullptr, "{}: codebook is NULL, its format needs one", what);
    require(tensor.codebook_bytes >= bytes, "{}: codebook has {} bytes, {} bits need {}", what,
            tensor.codebook_bytes, matrix.format.bits, bytes);
    matrix.codebook = tensor.codebook;
}

void set_permutation(Matrix& matrix, const moe_tensor& tensor, const char* what) {
    if (!matrix.format.act_order) return;
    matrix.permutation = host_table<int32_t>(tensor.permutation, tensor.permutation_bytes,
                                             tensor.columns, "permutation", what);
    const int64_t groups = divide_up(tensor.columns, group_extent(matrix.format.group_columns));
    for (int64_t k = 0; k < tensor.columns; ++k) {
        const int32_t group = matrix.permutation[k];
        require(group >= 0 && group < groups,
                "{}: permutation: the group of column {} is {}, there are {}", what, k, group,
                groups);
    }
}

void set_nested(Matrix& matrix, const moe_tensor& tensor, int64_t index, uint64_t scales,
                const char* what) {
    if (!matrix.format.nested_scales) return;
    const int64_t count = divide_up(static_cast<int64_t>(scales), nested_group);
    matrix.nested_scales = reinterpret_cast<const float*>(
        locate({"nested_scales", tensor.nested_scales, nullptr, tensor.nested_scale_bytes, 0,
                static_cast<uint64_t>(count) * sizeof(float)},
               index, what));
    matrix.nested_codebook =
        host_table(tensor.nested_codebook, 256 * sizeof(float), 256, "nested_codebook", what);
    matrix.nested_offset = tensor.nested_offset;
}

// The buffers of a format that is not sliceable are dense, and the view keeps where it begins.
void set_unsliceable(Matrix& matrix, const moe_tensor& tensor, int64_t index, const char* what) {
    const MatrixBytes bytes =
        matrix.traits->unsliceable_bytes(matrix.format, tensor.rows, tensor.columns);
    require(tensor.row_stride == 0 && tensor.scale_row_stride == 0,
            "{}: row_stride is {} and scale_row_stride {}, {} must be dense (0)", what,
            tensor.row_stride, tensor.scale_row_stride, format_name(matrix.format).text);
    matrix.whole_rows = tensor.rows;
    matrix.whole_columns = tensor.columns;
    matrix.data = locate({"data", tensor.data, tensor.data_per_expert, tensor.data_bytes,
                          tensor.expert_stride, bytes.data},
                         index, what);
    matrix.row_stride = static_cast<int64_t>(bytes.row_stride);
    matrix.scales = locate({"scales", tensor.scales, tensor.scales_per_expert, tensor.scale_bytes,
                            tensor.scale_expert_stride, bytes.scales},
                           index, what);
    matrix.scale_row_stride = static_cast<int64_t>(bytes.scale_row_stride);
    if (bytes.zero_points)
        matrix.zero_points = locate({"zero_points", tensor.zero_points, nullptr,
                                     tensor.zero_point_bytes, 0, bytes.zero_points},
                                    index, what);
    set_permutation(matrix, tensor, what);
    set_nested(matrix, tensor, index, bytes.scales, what);
}

}  // namespace

bool is_fused(moe_role role) {
    return role == MOE_ROLE_GATE_UP || role == MOE_ROLE_GATE_UP_BIAS ||
           role == MOE_ROLE_SHARED_GATE_UP;
}

void check_nothing_unused(const moe_tensor& tensor, const char* what) {
    const moe_format& format = *tensor.format;
    const auto unless = [&](bool used, const void* buffer, const char* name) {
        if (buffer && !used)
            fail(MOE_ERROR_INVALID_ARGUMENT, "{}: {} is given, the format {} has none", what, name,
                 format_name(format).text);
    };
    const bool scaled = format.scale_type != MOE_TYPE_NONE;
    unless(scaled, tensor.scales, "scales");
    unless(scaled, tensor.scales_per_expert, "scales_per_expert");
    unless(format.global_scale != MOE_GLOBAL_SCALE_NONE, tensor.global_scale, "global_scale");
    unless(format.pre_quant_scale, tensor.pre_quant_scale, "pre_quant_scale");
    unless(format.zero_point >= MOE_ZERO_POINT_PACKED, tensor.zero_points, "zero_points");
    unless(format.act_order || keeps_order(tensor), tensor.permutation, "permutation");
    unless(format.codebook == MOE_CODEBOOK_GIVEN, tensor.codebook, "codebook");
    unless(format.nested_scales, tensor.nested_scales, "nested_scales");
    unless(format.nested_scales, tensor.nested_codebook, "nested_codebook");
    require(is_fused(tensor.role) || tensor.gate_up_order == MOE_GATE_UP_NONE,
            "{}: gate_up_order is {}, the role {} is not fused", what,
            static_cast<int32_t>(tensor.gate_up_order), role_name(tensor.role));
    require(!tensor.data || !tensor.data_per_expert, "{}: data and data_per_expert are both given",
            what);
    check_scale_layout(tensor, what);
}

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
    if (tensor.orientation == MOE_ORIENTATION_IN_OUT && !may_be_transposed(*tensor.format))
        fail(MOE_ERROR_UNSUPPORTED,
             "{}: orientation IN_OUT is for f32, f16, bf16, FP8 and int8, not {}", what,
             format_name(*tensor.format).text);
    check_nothing_unused(tensor, what);
    if (matrix.traits->unsliceable_bytes) {
        set_unsliceable(matrix, tensor, index, what);
    } else {
        set_data(matrix, tensor, index, what);
        set_scales(matrix, tensor, index, what);
    }
    set_tables(matrix, tensor, index, what);
    return matrix;
}

}  // namespace moe
