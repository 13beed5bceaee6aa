// Gemv kernels of ggml's blocks of 32 columns.
#include "libmoe/cpu/neon/gemv_tables.hpp"

#if defined(MOE_AARCH64)
#include <arm_neon.h>
#define MOE_GEMV_NEON 1

#include "libmoe/cpu/neon/vectors.inc"

#include "libmoe/cpu/neon/int8_loops.inc"

#include "libmoe/cpu/dequant/block_scales.inc"

#include "libmoe/cpu/dequant/iq4_nl.inc"
#include "libmoe/cpu/dequant/q4_0.inc"
#include "libmoe/cpu/dequant/q4_1.inc"
#include "libmoe/cpu/dequant/q5_0.inc"
#include "libmoe/cpu/dequant/q5_1.inc"
#include "libmoe/cpu/dequant/q8_0.inc"

namespace moe::cpu {

const GemvKernels* neon_blocks_kernels(GemvFormat format, int32_t parts) {
    switch (format) {
#define MOE_FORMAT(name, Format) \
    case GemvFormat::name:       \
        return parts == 2 ? &int8_kernels<Format, 2> : &int8_kernels<Format, 3>;
        MOE_FORMAT(q4_0, Q4_0Format)
        MOE_FORMAT(q4_1, Q4_1Format)
        MOE_FORMAT(q5_0, Q5_0Format)
        MOE_FORMAT(q5_1, Q5_1Format)
        MOE_FORMAT(q8_0, Q8_0Format)
        MOE_FORMAT(iq4_nl, Iq4NlFormat)
        MOE_FORMAT(iq4_xs, Iq4XsFormat)
#undef MOE_FORMAT
        default:
            return nullptr;
    }
}

}  // namespace moe::cpu
#endif
