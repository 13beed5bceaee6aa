// Gemv kernels and panels of rows interleaved by 16.
#include <utility>

#include "libmoe/cpu/avx512vnni/tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>

#include "libmoe/cpu/avx512vnni/vectors.inc"

#include "libmoe/cpu/avx512vnni/row_sums.inc"

#include "libmoe/cpu/avx512vnni/panels.inc"

#include "libmoe/cpu/dequant/passes.inc"

#include "libmoe/cpu/avx512vnni/int8_loops.inc"

#include "libmoe/cpu/dequant/row_groups.inc"

#include "libmoe/cpu/avx512vnni/strip_loops.inc"

#include "libmoe/cpu/avx512vnni/interleaved_loops.inc"

#include "libmoe/cpu/dequant/tables.inc"

#include "libmoe/cpu/dequant/interleaved.inc"

namespace moe::cpu {

const IntegerKernels* avx512vnni_interleaved_kernels(GemvFormat format) {
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
