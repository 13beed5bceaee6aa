// The gemv kernels of AVX2: which formats they read. The kernels themselves are in the files beside
// this one, by kind of format.
#include "libmoe/cpu/avx2/gemv_tables.hpp"

#if defined(MOE_X86)

namespace moe::cpu {
namespace {

const GemvKernels* kernels(GemvFormat format, int32_t parts) {
    if (parts == 0) {
        const GemvKernels* found = avx2_float_kernels(format);
        return found ? found : avx2_transposed_kernels(format);
    }
    if (parts == 1) return nullptr;
    if (const GemvKernels* found = avx2_blocks_kernels(format, parts)) return found;
    if (const GemvKernels* found = avx2_k_kernels(format, parts)) return found;
    if (const GemvKernels* found = avx2_strip_kernels(format, parts)) return found;
    return avx2_grid_kernels(format, parts);
}

}  // namespace

const GemvFamily gemv_avx2 = {kernels, quantize_avx2, nullptr, true, nullptr, activate_avx2};

}  // namespace moe::cpu
#endif
