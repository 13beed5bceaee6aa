// The tables of gemv and gemm kernels of this folder; null for formats that a table does not have.
#pragma once

#include "libmoe/cpu/simd.hpp"

#if defined(MOE_X86)

namespace moe::cpu {

// Panels of words: W = scale * code - offset, or scale * code.
struct WordPanels {
    PanelDequantize dequantize;
    int scale_columns;
    bool has_offsets;
};
// A format with integer codes has kernels for activations in two and three parts.
struct WordKernels {
    GemvKernels gemv[2];
    WordPanels panels;
};
// A format whose values are float32 has one for float32 activations. Codes of eight bits have
// panels of words all the same.
struct FloatKernels {
    GemvKernels gemv;
    PanelDequantize dequantize;
    WordPanels words{};
};

const WordKernels* avx2_blocks_kernels(GemvFormat format);
const WordKernels* avx2_k_kernels(GemvFormat format);
const WordKernels* avx2_grid_kernels(GemvFormat format);
const WordKernels* avx2_strip_kernels(GemvFormat format);
const FloatKernels* avx2_act_order_kernels(GemvFormat format);
const WordKernels* avx2_interleaved_kernels(GemvFormat format);
const GemvKernels* avx2_transposed_kernels(GemvFormat format);
const FloatKernels* avx2_float_kernels(GemvFormat format);
void activate_avx2(const GateActivation& how, const float* gates, const float* ups, int64_t n,
                   float* out);
void quantize_avx2(const float* row, int64_t columns, const Quantization& how, std::byte* out);

// What dequantizers of all formats end with. The 16 rows of codes are `stride` bytes apart and in
// the order of which `ordered` has the columns of 256; codes become words of 16 bits.
void transpose_codes_avx2(const std::byte* rows, int64_t stride, int64_t columns,
                          const uint8_t* ordered, bool is_signed, std::byte* panel);
// to[16 k + i] is number k of row i of 16; columns is a multiple of 8.
void transpose_floats_avx2(const float* rows, int64_t stride, int64_t columns, float* to);

PanelMultiply word_panel_multiply_avx2(int32_t parts, const WordPanels& panels);
void multiply_value_panel_avx2(const std::byte* panel, const GemvWeights& weights, int64_t column,
                               int64_t columns, const void* const* x, int64_t n, float* sums);

}  // namespace moe::cpu
#endif
