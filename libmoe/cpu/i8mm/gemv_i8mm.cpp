// The gemv kernels of NEON with matrix products of bytes (ARMv8.6 I8MM): which formats they read.
// One activation row, and formats that take float32 ones, go through the kernels of NEON.
#include "libmoe/cpu/i8mm/gemv_tables.hpp"
#include "libmoe/cpu/neon/gemv_tables.hpp"

#if defined(MOE_AARCH64)

namespace moe::cpu {
namespace {

const GemvKernels* kernels(GemvFormat format, int32_t parts) {
    if (parts == 0) return neon_float_kernels(format);
    if (parts == 1) return nullptr;
    if (const GemvKernels* found = i8mm_blocks_kernels(format, parts)) return found;
    if (const GemvKernels* found = i8mm_k_kernels(format, parts)) return found;
    if (const GemvKernels* found = i8mm_iq_kernels(format, parts)) return found;
    return i8mm_grid_kernels(format, parts);
}

}  // namespace

const GemvFamily gemv_i8mm = {kernels, quantize_neon, nullptr, false, nullptr, activate_neon};

}  // namespace moe::cpu
#endif
