// Gemv kernels of E2M1 codes and of integers under a grid of scales, with matrix products of bytes.
#include "libmoe/cpu/i8mm/gemv_tables.hpp"

#if defined(MOE_AARCH64)
#include <arm_neon.h>
#define MOE_GEMV_NEON 1

#include "libmoe/cpu/neon/vectors.inc"

#include "libmoe/cpu/neon/int8_loops.inc"

#include "libmoe/cpu/i8mm/pair_loops.inc"

#include "libmoe/cpu/dequant/block_scales.inc"

#include "libmoe/cpu/dequant/e2m1.inc"

#include "libmoe/cpu/dequant/grid.inc"

namespace moe::cpu {

const GemvKernels* i8mm_grid_kernels(GemvFormat format, int32_t parts) {
    switch (format) {
#define MOE_FORMAT(name, Format)                                       \
    case GemvFormat::name:                                             \
        return parts == 2 ? &pair_kernels<Format, GemvFormat::name, 2> \
                          : &pair_kernels<Format, GemvFormat::name, 3>;
        MOE_FORMAT(mxfp4_gguf, Mxfp4GgufFormat)
        MOE_FORMAT(nvfp4_gguf, Nvfp4GgufFormat)
        MOE_FORMAT(mxfp4, Mxfp4Format)
        MOE_FORMAT(nvfp4, Nvfp4Format)
        MOE_FORMAT(int4, Int4Format)
        MOE_FORMAT(int4_nibbles, Int4NibblesFormat)
        MOE_FORMAT(fp4_grid, Fp4GridFormat)
        MOE_FORMAT(int8, Int8Format)
#undef MOE_FORMAT
        default:
            return nullptr;
    }
}

}  // namespace moe::cpu
#endif
