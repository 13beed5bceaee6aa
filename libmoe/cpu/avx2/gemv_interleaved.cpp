// Gemv kernels of rows interleaved by 16.
#include <utility>

#include "libmoe/cpu/avx2/gemv_tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>

#define MOE_GEMV_AVX2 1

#include "libmoe/cpu/avx2/vectors.inc"

#include "libmoe/cpu/avx2/panels.inc"

#include "libmoe/cpu/dequant/passes.inc"

#include "libmoe/cpu/avx2/int8_loops.inc"

#include "libmoe/cpu/dequant/row_groups.inc"

#include "libmoe/cpu/avx2/strip_loops.inc"

#include "libmoe/cpu/avx2/interleaved_loops.inc"

#include "libmoe/cpu/dequant/tables.inc"

#include "libmoe/cpu/dequant/interleaved.inc"

namespace moe::cpu {

const WordKernels* avx2_interleaved_kernels(GemvFormat format) {
    switch (format) {
#define MOE_FORMAT(name, Rows) \
    case GemvFormat::name:     \
        return &interleaved_kernels<Rows>;
        MOE_FORMAT(q4_0_x16, Q4_0Rows)
        MOE_FORMAT(q4_1_x16, Q4_1Rows)
        MOE_FORMAT(q8_0_x16, Q8_0Rows)
        MOE_FORMAT(q4_k_x16, Q4_KRows)
        MOE_FORMAT(q5_k_x16, Q5_KRows)
        MOE_FORMAT(q6_k_x16, Q6_KRows)
        MOE_FORMAT(iq4_nl_x16, Iq4NlRows)
        MOE_FORMAT(iq4_xs_x16, Iq4XsRows)
        MOE_FORMAT(mxfp4_gguf_x16, Mxfp4GgufRows)
        MOE_FORMAT(nvfp4_gguf_x16, Nvfp4GgufRows)
        MOE_FORMAT(mxfp4_x16, Mxfp4Rows)
        MOE_FORMAT(nvfp4_x16, Nvfp4Rows)
#undef MOE_FORMAT
        default:
            return nullptr;
    }
}

}  // namespace moe::cpu
#endif
