// Gemv kernels and panels of matrices whose rows lie beside each other: gptq, awq, and transposed
// values.
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

#include "libmoe/cpu/avx2/transposed_loops.inc"

#include "libmoe/cpu/dequant/awq.inc"
#include "libmoe/cpu/dequant/gptq.inc"

namespace moe::cpu {
namespace {

template <class Dequantizer>
constexpr WordKernels kernels_of = {{strip_kernels<Dequantizer, 2>, strip_kernels<Dequantizer, 3>},
                                    {dequantize_strip<Dequantizer>, 32, true}};
template <class Dequantizer>
constexpr WordKernels kernels_of_one = {
    {strip_kernels_of_one<Dequantizer, 2>, strip_kernels_of_one<Dequantizer, 3>},
    {dequantize_strip<Dequantizer>, 32, true}};

}  // namespace

const WordKernels* avx2_strip_kernels(GemvFormat format) {
    switch (format) {
#define MOE_FORMAT(name, kernels, Dequantizer) \
    case GemvFormat::name:                     \
        return &kernels<Dequantizer>;
        MOE_FORMAT(gptq2, kernels_of_one, Gptq<2>)
        MOE_FORMAT(gptq3, kernels_of_one, Gptq<3>)
        MOE_FORMAT(gptq4, kernels_of, Gptq<4>)
        MOE_FORMAT(gptq8, kernels_of_one, Gptq<8>)
        MOE_FORMAT(awq, kernels_of, Awq)
#undef MOE_FORMAT
        default:
            return nullptr;
    }
}

const GemvKernels* avx2_transposed_kernels(GemvFormat format) {
    switch (format) {
        case GemvFormat::f32_transposed:
            return &transposed_kernels<TransposedF32>;
        case GemvFormat::f16_transposed:
            return &transposed_kernels<TransposedF16>;
        case GemvFormat::bf16_transposed:
            return &transposed_kernels<TransposedBf16>;
        default:
            return nullptr;
    }
}

}  // namespace moe::cpu
#endif
