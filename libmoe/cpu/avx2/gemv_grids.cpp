// Gemv kernels and panels of E2M1 codes, and of integers of four bits under a grid of scales.
#include "libmoe/cpu/avx2/gemv_tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>
#define MOE_GEMV_AVX2 1

#include "libmoe/cpu/avx2/vectors.inc"

#include "libmoe/cpu/avx2/panels.inc"

#include "libmoe/cpu/dequant/passes.inc"

#include "libmoe/cpu/avx2/int8_loops.inc"

#include "libmoe/cpu/dequant/block_scales.inc"

#include "libmoe/cpu/dequant/row_groups.inc"

#include "libmoe/cpu/dequant/e2m1.inc"

#include "libmoe/cpu/dequant/grid.inc"

namespace moe::cpu {

const WordKernels* avx2_grid_kernels(GemvFormat format) {
    switch (format) {
#define MOE_FORMAT(name, Format) \
    case GemvFormat::name:       \
        return &word_kernels<Format>;
        MOE_FORMAT(mxfp4_gguf, Mxfp4GgufFormat)
        MOE_FORMAT(nvfp4_gguf, Nvfp4GgufFormat)
        MOE_FORMAT(mxfp4, Mxfp4Format)
        MOE_FORMAT(nvfp4, Nvfp4Format)
        MOE_FORMAT(int4, Int4Format)
        MOE_FORMAT(int4_nibbles, Int4NibblesFormat)
        MOE_FORMAT(fp4_grid, Fp4GridFormat)
        MOE_FORMAT(pack4, Pack4Format)
#undef MOE_FORMAT
        case GemvFormat::pack8:
            return &word_kernels_of_two<Pack8Format>;
        case GemvFormat::pack:
            return &word_kernels_of_two<PackFormat>;
        default:
            return nullptr;
    }
}

}  // namespace moe::cpu
#endif
