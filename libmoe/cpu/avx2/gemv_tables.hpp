// The tables of gemv kernels of this folder; null for formats that a table does not have.
#pragma once

#include "libmoe/cpu/simd.hpp"

#if defined(MOE_X86)

namespace moe::cpu {

const GemvKernels* avx2_blocks_kernels(GemvFormat format, int32_t parts);
const GemvKernels* avx2_k_kernels(GemvFormat format, int32_t parts);
const GemvKernels* avx2_grid_kernels(GemvFormat format, int32_t parts);
const GemvKernels* avx2_strip_kernels(GemvFormat format, int32_t parts);
const GemvKernels* avx2_transposed_kernels(GemvFormat format);
const GemvKernels* avx2_float_kernels(GemvFormat format);
void activate_avx2(const GateActivation& how, const float* gates, const float* ups, int64_t n,
                   float* out);
void quantize_avx2(const float* row, int64_t columns, const Quantization& how, std::byte* out);

}  // namespace moe::cpu
#endif
