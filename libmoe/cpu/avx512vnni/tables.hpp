// The tables of gemv kernels of this folder; null for formats that a table does not have.
#pragma once

#include "libmoe/cpu/simd.hpp"

#if defined(MOE_X86)

namespace moe::cpu {

const GemvKernels* avx512vnni_small_kernels(GemvFormat format, int32_t parts);
const GemvKernels* avx512vnni_k_kernels(GemvFormat format, int32_t parts);
const GemvKernels* avx512vnni_grid_kernels(GemvFormat format, int32_t parts);
const GemvKernels* avx512vnni_panel_kernels(GemvFormat format, int32_t parts);
const GemvKernels* avx512vnni_transposed_kernels(GemvFormat format);
const GemvKernels* avx512vnni_float_kernels(GemvFormat format);
const GemvKernels* avx512vnni_codebook_kernels(GemvFormat format);  // parts 2
void quantize_avx512vnni(const float* row, int64_t columns, const Quantization& how,
                         std::byte* out);

}  // namespace moe::cpu
#endif
