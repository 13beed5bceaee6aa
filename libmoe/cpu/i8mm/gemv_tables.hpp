// The tables of gemv kernels of this folder; null for formats that a table does not have.
#pragma once

#include "libmoe/cpu/simd.hpp"

#if defined(MOE_AARCH64)

namespace moe::cpu {

const GemvKernels* i8mm_blocks_kernels(GemvFormat format, int32_t parts);
const GemvKernels* i8mm_k_kernels(GemvFormat format, int32_t parts);
const GemvKernels* i8mm_iq_kernels(GemvFormat format, int32_t parts);
const GemvKernels* i8mm_grid_kernels(GemvFormat format, int32_t parts);

}  // namespace moe::cpu
#endif
