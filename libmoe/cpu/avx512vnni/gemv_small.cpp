// Gemv kernels of ggml's blocks of 32 and 64 columns, and of the formats with a grid of magnitudes.
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

#include "libmoe/cpu/dequant/iq.inc"
#include "libmoe/cpu/dequant/iq4_nl.inc"
#include "libmoe/cpu/dequant/q4_0.inc"
#include "libmoe/cpu/dequant/q4_1.inc"
#include "libmoe/cpu/dequant/q5_0.inc"
#include "libmoe/cpu/dequant/q5_1.inc"
#include "libmoe/cpu/dequant/q8_0.inc"

namespace moe::cpu {

const IntegerKernels* avx512vnni_small_kernels(GemvFormat format) {
    switch (format) {
#define MOE_FORMAT(name, Format) \
    case GemvFormat::name:       \
        return &integer_kernels<Format>;
#define MOE_OFTEN_MET(name, Format) \
    case GemvFormat::name:          \
        return &integer_kernels_of_six<Format>;
#define MOE_PANELS_FROM_5(name, Format) \
    case GemvFormat::name:              \
        return &integer_kernels<Format, 5>;
        MOE_OFTEN_MET(q4_0, Q4_0Format)
        MOE_FORMAT(q4_1, Q4_1Format)
        MOE_FORMAT(q5_0, Q5_0Format)
        MOE_FORMAT(q5_1, Q5_1Format)
        MOE_OFTEN_MET(iq4_nl, Iq4NlFormat)
        MOE_OFTEN_MET(iq4_xs, Iq4XsFormat)
        MOE_PANELS_FROM_5(iq2_xxs, Iq2XxsFormat)
        MOE_PANELS_FROM_5(iq2_xs, Iq2XsFormat)
        MOE_PANELS_FROM_5(iq3_xxs, Iq3XxsFormat)
        MOE_PANELS_FROM_5(iq3_s, Iq3SFormat)
        case GemvFormat::q8_0:
            return &integer_kernels_of_six<Q8_0Format, 8, 8>;
#undef MOE_FORMAT
#undef MOE_OFTEN_MET
#undef MOE_PANELS_FROM_5
        default:
            return nullptr;
    }
}

}  // namespace moe::cpu
#endif
