// Gemv kernels of ggml's K blocks.
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

#include "libmoe/cpu/dequant/k_levels.inc"

#include "libmoe/cpu/dequant/q2_k.inc"
#include "libmoe/cpu/dequant/q3_k.inc"
#include "libmoe/cpu/dequant/q4_k.inc"
#include "libmoe/cpu/dequant/q5_k.inc"
#include "libmoe/cpu/dequant/q6_k.inc"

namespace moe::cpu {

const IntegerKernels* avx512vnni_k_kernels(GemvFormat format) {
    switch (format) {
#define MOE_FORMAT(name, Format) \
    case GemvFormat::name:       \
        return &integer_kernels<Format>;
#define MOE_OFTEN_MET(name, Format) \
    case GemvFormat::name:          \
        return &integer_kernels_of_six<Format>;
        MOE_FORMAT(q2_k, Q2_KFormat)
        MOE_FORMAT(q3_k, Q3_KFormat)
        MOE_OFTEN_MET(q4_k, Q4_KFormat)
        MOE_OFTEN_MET(q5_k, Q5_KFormat)
        MOE_OFTEN_MET(q6_k, Q6_KFormat)
#undef MOE_FORMAT
#undef MOE_OFTEN_MET
        default:
            return nullptr;
    }
}

}  // namespace moe::cpu
#endif
