#include "precision.hpp"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace moe::ggml {
namespace {

bool is_quantized(const moe_format& format) {
    return format.type != MOE_TYPE_F32 && format.type != MOE_TYPE_F16 &&
           format.type != MOE_TYPE_BF16;
}

std::optional<Precision> requested() {
    const char* value = std::getenv("MOE_GGML_ACTIVATIONS");
    const std::string_view name = value ? value : "";
    if (name == "f32") return Precision::f32;
    if (name == "bf16") return Precision::bf16;
    if (name == "int8") return Precision::int8;
    if (!name.empty())
        std::fprintf(stderr, "libmoe: MOE_GGML_ACTIVATIONS is %s, not f32, bf16 or int8\n", value);
    return std::nullopt;
}

uint16_t bf16_of(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const bool is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
    const uint32_t rounded = bits + 0x7FFF + (bits >> 16 & 1);
    return static_cast<uint16_t>((is_nan ? bits | 0x400000 : rounded) >> 16);
}

}  // namespace

Precision precision_of(const Problem& problem) {
    static const std::optional<Precision> precision = requested();
    if (precision) return *precision;
    const bool all_quantized =
        is_quantized(problem.up) && (problem.is_matrix || is_quantized(problem.down)) &&
        (problem.is_matrix || !problem.activation.is_gated || is_quantized(problem.gate));
    return all_quantized ? Precision::bf16 : Precision::f32;
}

void round_to_bf16(const float* rows, int64_t n_rows, int64_t stride, int64_t width,
                   std::vector<uint16_t>& out) {
    out.resize(static_cast<size_t>(n_rows * width));
    uint16_t* to = out.data();
    for (int64_t row = 0; row < n_rows; ++row, to += width)
        for (int64_t i = 0; i < width; ++i) to[i] = bf16_of(rows[row * stride + i]);
}

}  // namespace moe::ggml
