// The gemv kernels of NEON with dot products of bytes: which formats they read. The kernels
// themselves are in the files beside this one, by kind of format.
#include "libmoe/cpu/neon/gemv_tables.hpp"

#if defined(MOE_AARCH64)

namespace moe::cpu {
namespace {

const GemvKernels* kernels(GemvFormat format, int32_t parts) {
    if (parts == 0) return neon_float_kernels(format);
    if (parts == 1) return nullptr;
    if (const GemvKernels* found = neon_blocks_kernels(format, parts)) return found;
    if (const GemvKernels* found = neon_k_kernels(format, parts)) return found;
    if (const GemvKernels* found = neon_iq_kernels(format, parts)) return found;
    return neon_grid_kernels(format, parts);
}

}  // namespace

const GemvFamily gemv_neon = {kernels, quantize_neon, nullptr, false, nullptr, activate_neon};

}  // namespace moe::cpu
#endif
