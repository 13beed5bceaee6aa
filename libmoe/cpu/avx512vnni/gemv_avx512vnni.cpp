// The gemv kernels of AVX-512 with VNNI and VBMI: which formats they read. The kernels themselves
// are in the files beside this one, by kind of format.
#include "libmoe/cpu/avx512vnni/tables.hpp"

#if defined(MOE_X86)

namespace moe::cpu {
namespace {

const GemvKernels* kernels(GemvFormat format, int32_t parts) {
    if (parts == 0) {
        const GemvKernels* found = avx512vnni_float_kernels(format);
        return found ? found : avx512vnni_transposed_kernels(format);
    }
    if (parts == 2)
        if (const GemvKernels* found = avx512vnni_codebook_kernels(format)) return found;
    if (const GemvKernels* found = avx512vnni_small_kernels(format, parts)) return found;
    if (const GemvKernels* found = avx512vnni_k_kernels(format, parts)) return found;
    if (const GemvKernels* found = avx512vnni_panel_kernels(format, parts)) return found;
    return avx512vnni_grid_kernels(format, parts);
}

}  // namespace

const GemvFamily gemv_avx512vnni = {kernels, quantize_avx512vnni};

}  // namespace moe::cpu
#endif
