// Gemv kernels of ggml's blocks of entries of a grid, with matrix products of bytes.
#include "libmoe/cpu/i8mm/gemv_tables.hpp"

#if defined(MOE_AARCH64)
#include <arm_neon.h>
#define MOE_GEMV_NEON 1

#include "libmoe/cpu/neon/vectors.inc"

#include "libmoe/cpu/neon/int8_loops.inc"

#include "libmoe/cpu/i8mm/pair_loops.inc"

#include "libmoe/cpu/dequant/block_scales.inc"

#include "libmoe/cpu/dequant/iq.inc"

namespace moe::cpu {

const GemvKernels* i8mm_iq_kernels(GemvFormat format, int32_t parts) {
    switch (format) {
#define MOE_FORMAT(name, Format)                                       \
    case GemvFormat::name:                                             \
        return parts == 2 ? &pair_kernels<Format, GemvFormat::name, 2> \
                          : &pair_kernels<Format, GemvFormat::name, 3>;
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
