// Gemv kernels and panels of rows interleaved by 16.
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
        MOE_INTERLEAVED_FORMATS(MOE_FORMAT)
#undef MOE_FORMAT
        default:
            return nullptr;
    }
}

}  // namespace moe::cpu
#endif
