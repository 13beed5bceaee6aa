// Gemv kernels of the formats that take float32 activations.
#include "libmoe/cpu/avx512vnni/tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>
#define MOE_GEMV_AVX512 1

#include "libmoe/cpu/avx512vnni/vectors.inc"

#include "libmoe/cpu/avx512vnni/panels.inc"

#include "libmoe/cpu/avx512vnni/row_sums.inc"

#include "libmoe/cpu/avx512vnni/float_loops.inc"

#include "libmoe/cpu/dequant/block_scales.inc"

#include "libmoe/cpu/dequant/row_groups.inc"

#include "libmoe/cpu/dequant/e2m1.inc"

#include "libmoe/cpu/dequant/grid.inc"

#include "libmoe/cpu/dequant/bnb4.inc"
#include "libmoe/cpu/dequant/dense.inc"
#include "libmoe/cpu/dequant/kbit.inc"

namespace moe::cpu {

const ValueKernels* avx512vnni_float_kernels(GemvFormat format) {
    switch (format) {
#define MOE_FORMAT(name, Format) \
    case GemvFormat::name:       \
        return &value_kernels<Format>;
        MOE_FORMAT(f32, F32Format)
        MOE_FORMAT(f16, F16Format)
        MOE_FORMAT(bf16, Bf16Format)
        MOE_FORMAT(fp8, Fp8Format)
        MOE_FORMAT(bnb4, Bnb4Format)
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
