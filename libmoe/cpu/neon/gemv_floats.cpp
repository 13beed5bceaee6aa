// Gemv kernels of the formats that take float32 activations.
#include "libmoe/cpu/neon/gemv_tables.hpp"

#if defined(MOE_AARCH64)
#include <arm_neon.h>
#define MOE_GEMV_NEON 1

#include "libmoe/cpu/neon/vectors.inc"

#include "libmoe/cpu/neon/float_loops.inc"

#include "libmoe/cpu/dequant/block_scales.inc"

#include "libmoe/cpu/dequant/e2m1.inc"

#include "libmoe/cpu/dequant/grid.inc"

#include "libmoe/cpu/dequant/dense.inc"
#include "libmoe/cpu/dequant/kbit.inc"

namespace moe::cpu {

const GemvKernels* neon_float_kernels(GemvFormat format) {
    switch (format) {
#define MOE_FORMAT(name, Format) \
    case GemvFormat::name:       \
        return &float_kernels<Format>;
        MOE_FORMAT(f32, F32Format)
        MOE_FORMAT(f16, F16Format)
        MOE_FORMAT(bf16, Bf16Format)
        MOE_FORMAT(fp8, Fp8Format)
        MOE_FORMAT(kbit2, KbitFormat<2>)
        MOE_FORMAT(kbit3, KbitFormat<3>)
        MOE_FORMAT(kbit4, KbitFormat<4>)
        MOE_FORMAT(kbit5, KbitFormat<5>)
        MOE_FORMAT(kbit2_given, KbitFormat<2>)
        MOE_FORMAT(kbit3_given, KbitFormat<3>)
        MOE_FORMAT(kbit4_given, KbitFormat<4>)
        MOE_FORMAT(kbit5_given, KbitFormat<5>)
#undef MOE_FORMAT
        default:
            return nullptr;
    }
}

}  // namespace moe::cpu
#endif
