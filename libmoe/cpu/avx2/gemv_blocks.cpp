// Gemv kernels and panels of ggml's blocks of 32 columns, and of the formats with a grid of
// magnitudes.
#include "libmoe/cpu/avx2/gemv_tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>
#define MOE_GEMV_AVX2 1

#include "libmoe/cpu/avx2/vectors.inc"

#include "libmoe/cpu/avx2/panels.inc"

#include "libmoe/cpu/dequant/passes.inc"

#include "libmoe/cpu/avx2/int8_loops.inc"

#include "libmoe/cpu/dequant/block_scales.inc"

#include "libmoe/cpu/dequant/iq.inc"
#include "libmoe/cpu/dequant/iq4_nl.inc"
#include "libmoe/cpu/dequant/q4_0.inc"
#include "libmoe/cpu/dequant/q4_1.inc"
#include "libmoe/cpu/dequant/q5_0.inc"
#include "libmoe/cpu/dequant/q5_1.inc"

namespace moe::cpu {

const WordKernels* avx2_blocks_kernels(GemvFormat format) {
    switch (format) {
#define MOE_FORMAT(name, Format) \
    case GemvFormat::name:       \
        return &word_kernels<Format>;
        MOE_FORMAT(q4_0, Q4_0Format)
        MOE_FORMAT(q4_1, Q4_1Format)
        MOE_FORMAT(q5_0, Q5_0Format)
        MOE_FORMAT(q5_1, Q5_1Format)
        MOE_FORMAT(iq4_nl, Iq4NlFormat)
        MOE_FORMAT(iq4_xs, Iq4XsFormat)
        MOE_FORMAT(iq2_xxs, Iq2XxsFormat)
        MOE_FORMAT(iq2_xs, Iq2XsFormat)
        MOE_FORMAT(iq3_xxs, Iq3XxsFormat)
        MOE_FORMAT(iq3_s, Iq3SFormat)
#undef MOE_FORMAT
        default:
            return nullptr;
    }
}

}  // namespace moe::cpu
#endif
