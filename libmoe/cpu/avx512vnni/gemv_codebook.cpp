// Gemv kernels of nf4, fp4 and the kbit formats with a built-in codebook, for activations of 16
// bits.
#include "libmoe/cpu/avx512vnni/tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>
#define MOE_GEMV_AVX512 1

#include "libmoe/cpu/avx512vnni/vectors.inc"

#include "libmoe/cpu/avx512vnni/panels.inc"

#include "libmoe/cpu/dequant/passes.inc"

#include "libmoe/cpu/avx512vnni/row_sums.inc"

#include "libmoe/cpu/avx512vnni/int8_loops.inc"

#include "libmoe/cpu/avx512vnni/codebook_loops.inc"

#include "libmoe/cpu/dequant/block_scales.inc"

#include "libmoe/cpu/dequant/row_groups.inc"

#include "libmoe/cpu/dequant/e2m1.inc"

#include "libmoe/cpu/dequant/grid.inc"

#include "libmoe/cpu/dequant/bnb4.inc"
#include "libmoe/cpu/dequant/kbit.inc"

#include "libmoe/cpu/dequant/kbit_planes.inc"

namespace moe::cpu {

const GemvKernels* avx512vnni_codebook_kernels(GemvFormat format) {
    switch (format) {
        case GemvFormat::kbit2:
            return &codebook_kernels<KbitPlanesFormat<2>>;
        case GemvFormat::kbit3:
            return &codebook_kernels<KbitPlanesFormat<3>>;
        case GemvFormat::kbit4:
            return &codebook_kernels<KbitPlanesFormat<4>>;
        case GemvFormat::kbit5:
            return &codebook_kernels<KbitPlanesFormat<5>>;
        case GemvFormat::bnb4:
            return &codebook_kernels<Bnb4IndicesFormat>;
        default:
            return nullptr;
    }
}

}  // namespace moe::cpu
#endif
