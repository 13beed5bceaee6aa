// Gemv kernels of E2M1 codes, and of integers under a grid of scales.
#include "libmoe/cpu/avx512vnni/tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>
#define MOE_GEMV_AVX512 1

#include "libmoe/cpu/avx512vnni/vectors.inc"

#include "libmoe/cpu/avx512vnni/panels.inc"

#include "libmoe/cpu/dequant/passes.inc"

#include "libmoe/cpu/avx512vnni/row_sums.inc"

#include "libmoe/cpu/avx512vnni/int8_loops.inc"

#include "libmoe/cpu/dequant/block_scales.inc"

#include "libmoe/cpu/dequant/row_groups.inc"

#include "libmoe/cpu/dequant/e2m1.inc"

#include "libmoe/cpu/dequant/grid.inc"

namespace moe::cpu {

const IntegerKernels* avx512vnni_grid_kernels(GemvFormat format) {
    switch (format) {
#define MOE_FORMAT(name, Format) \
    case GemvFormat::name:       \
        return &integer_kernels<Format>;
#define MOE_OFTEN_MET(name, Format) \
    case GemvFormat::name:          \
        return &integer_kernels_of_six<Format>;
        MOE_OFTEN_MET(mxfp4_gguf, Mxfp4GgufFormat)
        MOE_FORMAT(nvfp4_gguf, Nvfp4GgufFormat)
        MOE_OFTEN_MET(nvfp4, Nvfp4Format)
        MOE_FORMAT(int4_nibbles, Int4NibblesFormat)
        MOE_FORMAT(fp4_grid, Fp4GridFormat)
        MOE_FORMAT(pack4, Pack4Format)
        MOE_FORMAT(int8, Int8Format)
#undef MOE_FORMAT
#undef MOE_OFTEN_MET
        case GemvFormat::mxfp4:
            return &integer_kernels_of_six<Mxfp4Format, 8>;
        case GemvFormat::int4:
            return &integer_kernels_of_six<Int4Format, 8>;
        case GemvFormat::pack8:
            return &integer_kernels_of_two<Pack8Format>;
        case GemvFormat::pack:
            return &integer_kernels_of_two<PackFormat>;
        default:
            return nullptr;
    }
}

}  // namespace moe::cpu
#endif
