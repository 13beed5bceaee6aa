// Gemv kernels and panels of the formats that take float32 activations.
#include "libmoe/cpu/avx2/gemv_tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>
#define MOE_GEMV_AVX2 1

#include "libmoe/cpu/avx2/vectors.inc"

#include "libmoe/cpu/avx2/panels.inc"

#include "libmoe/cpu/avx2/value_panels.inc"

#include "libmoe/cpu/avx2/float_loops.inc"

#include "libmoe/cpu/avx2/lookup.inc"

#include "libmoe/cpu/dequant/block_scales.inc"

#include "libmoe/cpu/dequant/row_groups.inc"

#include "libmoe/cpu/dequant/e2m1.inc"

#include "libmoe/cpu/dequant/grid.inc"

#include "libmoe/cpu/dequant/bnb4.inc"
#include "libmoe/cpu/dequant/dense.inc"
#include "libmoe/cpu/dequant/kbit.inc"
#include "libmoe/cpu/dequant/q8_0.inc"

namespace moe::cpu {
namespace {

template <class Format>
constexpr FloatKernels kernels_of = {float_kernels<Format>, dequantize_values<Format>};
template <class Format, class Codes>
constexpr FloatKernels kernels_with_words = {float_kernels<Format>, nullptr, word_panels<Codes>};

}  // namespace

const FloatKernels* avx2_float_kernels(GemvFormat format) {
    switch (format) {
#define MOE_FORMAT(name, Format) \
    case GemvFormat::name:       \
        return &kernels_of<Format>;
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
        case GemvFormat::int8:
            return &kernels_with_words<Int8Format, Int8CodesFormat>;
        case GemvFormat::q8_0:
            return &kernels_with_words<Q8_0Format, Q8_0CodesFormat>;
        default:
            return nullptr;
    }
}

}  // namespace moe::cpu
#endif
