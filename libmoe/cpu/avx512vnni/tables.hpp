// The tables of gemv kernels of this folder; null for formats that a table does not have.
#pragma once

#include "libmoe/cpu/simd.hpp"

#if defined(MOE_X86)

namespace moe::cpu {

// A format with integer codes has kernels for activations in one, two and three parts.
struct IntegerKernels {
    GemvKernels gemv[3];
    PanelDequantize dequantize;
    int scale_columns;                  // of the panel
    int64_t min_rows = min_panel_rows;  // from which on a panel pays
    int64_t min_rows_of_one_part = min_rows;
};
// A format whose values are float32 has one for float32 activations.
struct ValueKernels {
    GemvKernels gemv;
    PanelDequantize dequantize;
};

const IntegerKernels* avx512vnni_small_kernels(GemvFormat format);
const IntegerKernels* avx512vnni_k_kernels(GemvFormat format);
const IntegerKernels* avx512vnni_grid_kernels(GemvFormat format);
const ValueKernels* avx512vnni_float_kernels(GemvFormat format);
const ValueKernels* avx512vnni_act_order_kernels(GemvFormat format);
const IntegerKernels* avx512vnni_strip_kernels(GemvFormat format);
const IntegerKernels* avx512vnni_interleaved_kernels(GemvFormat format);
const GemvKernels* avx512vnni_transposed_kernels(GemvFormat format);
const GemvKernels* avx512vnni_codebook_kernels(GemvFormat format);  // parts 2
const GemvKernels* avx512vnni_kernels(GemvFormat format, int32_t parts);
GemmKernels avx512vnni_gemm(GemvFormat format, const Quantization& rows);
PanelMultiply integer_panel_multiply_avx512vnni(int32_t parts, int scale_columns);
void multiply_value_panel_avx512(const std::byte* panel, const GemvWeights& weights, int64_t column,
                                 int64_t columns, const void* const* x, int64_t n, float* sums);
// Panels of bfloat16, for machines with AVX-512 BF16; scaled: of the weights with their scales.
GemmKernels gemm_avx512bf16(GemvFormat format, bool scaled);
// Gemv kernels of bfloat16 activations for them, or of pairs; null: the format has none.
const GemvKernels* gemv_avx512bf16(GemvFormat format, bool is_pair);
void activate_avx512vnni(const GateActivation& how, const float* gates, const float* ups, int64_t n,
                         float* out);
void quantize_avx512vnni(const float* row, int64_t columns, const Quantization& how,
                         std::byte* out);

}  // namespace moe::cpu
#endif
