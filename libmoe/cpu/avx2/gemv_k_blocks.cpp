// Gemv kernels and panels of ggml's K blocks.
#include "libmoe/cpu/avx2/gemv_tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>
#define MOE_GEMV_AVX2 1

#include "libmoe/cpu/avx2/vectors.inc"

#include "libmoe/cpu/avx2/panels.inc"

#include "libmoe/cpu/dequant/passes.inc"

#include "libmoe/cpu/avx2/int8_loops.inc"

#include "libmoe/cpu/dequant/block_scales.inc"

#include "libmoe/cpu/dequant/k_levels.inc"

#include "libmoe/cpu/dequant/q2_k.inc"
#include "libmoe/cpu/dequant/q3_k.inc"
#include "libmoe/cpu/dequant/q4_k.inc"
#include "libmoe/cpu/dequant/q5_k.inc"
#include "libmoe/cpu/dequant/q6_k.inc"

namespace moe::cpu {

const WordKernels* avx2_k_kernels(GemvFormat format) {
    switch (format) {
#define MOE_FORMAT(name, Format) \
    case GemvFormat::name:       \
        return &word_kernels<Format>;
        MOE_FORMAT(q2_k, Q2_KFormat)
        MOE_FORMAT(q3_k, Q3_KFormat)
        MOE_FORMAT(q4_k, Q4_KFormat)
        MOE_FORMAT(q5_k, Q5_KFormat)
        MOE_FORMAT(q6_k, Q6_KFormat)
#undef MOE_FORMAT
        default:
            return nullptr;
    }
}

}  // namespace moe::cpu
#endif
