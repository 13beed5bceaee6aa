// quantize_encode.cpp - moe_quantize, then moe_dequantize of the same bytes.
#include "quantize_encode.hpp"

#include "recipe.hpp"

namespace moe::cli {

void MatrixEncoder::encode(std::span<const float> values, int64_t rows, int64_t columns) {
    const moe_format& format = target_.format();
    const FormatSize size = format_size(format, rows, columns);
    out_.codes.assign(size.data, 0);
    out_.scales.assign(size.scales, 0);
    float global_scale = 0.0F;
    auto args = sized<moe_quantize_args>();
    args.format = &format;
    args.source = values.data();
    args.rows = rows;
    args.columns = columns;
    args.data = out_.codes.data();
    args.data_bytes = out_.codes.size();
    args.scales = out_.scales.empty() ? nullptr : out_.scales.data();
    args.scale_bytes = out_.scales.size();
    const bool has_global = format.global_scale != MOE_GLOBAL_SCALE_NONE;
    args.global_scale = has_global ? &global_scale : nullptr;
    check(moe_quantize(&args));
    if (has_global) out_.global_scale = target_.written_global_scale(global_scale);
}

void MatrixEncoder::measure(int64_t first_row, int64_t rows, int64_t columns,
                            std::span<const float> values, MatrixError& error) {
    const moe_format format = target_.written_format();
    const FormatSize size = format_size(format, rows, columns);
    const auto part = static_cast<uint64_t>(first_row / rows);
    auto tensor = sized<moe_tensor>();
    tensor.role = error.role == MOE_ROLE_GATE_UP ? MOE_ROLE_DOWN : error.role;
    tensor.format = &format;
    tensor.rows = rows;
    tensor.columns = columns;
    tensor.data = out_.codes.data() + part * size.data;
    tensor.data_bytes = size.data;
    tensor.scales = size.scales > 0 ? out_.scales.data() + part * size.scales : nullptr;
    tensor.scale_bytes = size.scales;
    if (format.global_scale != MOE_GLOBAL_SCALE_NONE) {
        tensor.global_scale = &out_.global_scale;
        tensor.n_global_scales = 1;
    }
    decoded_.resize(values.size());
    check(moe_dequantize(&tensor, 0, decoded_.data(), decoded_.size()));
    error.format = target_.name();
    measure_error(decoded_, values, error);
}

}  // namespace moe::cli
