// The tables of gemv kernels of this folder; null for formats that a table does not have.
#pragma once

#include "libmoe/cpu/simd.hpp"

#if defined(MOE_AARCH64)

namespace moe::cpu {

const GemvKernels* neon_blocks_kernels(GemvFormat format, int32_t parts);
const GemvKernels* neon_k_kernels(GemvFormat format, int32_t parts);
const GemvKernels* neon_iq_kernels(GemvFormat format, int32_t parts);
const GemvKernels* neon_grid_kernels(GemvFormat format, int32_t parts);
const GemvKernels* neon_float_kernels(GemvFormat format);
void activate_neon(const GateActivation& how, const float* gates, const float* ups, int64_t n,
                   float* out);
void quantize_neon(const float* row, int64_t columns, const Quantization& how, std::byte* out);

}  // namespace moe::cpu
#endif
