// Blocks of any packed type as values, which the exact kernels call, and the CPU
// tests of them. This is the one file that includes every type.
//
//   const auto words = ValueDequant<kind_of(type)>::load(type, codes, scales, lane, k0);
//   dequantize_operands<operand, kind_of(type)>(words, codebook, a);
//
// Values lack the global scale. Host and device.
#pragma once

#include "libmoe/cuda/dequant/bf16.cuh"
#include "libmoe/cuda/dequant/e4m3.cuh"
#include "libmoe/cuda/dequant/f16.cuh"
#include "libmoe/cuda/dequant/f32.cuh"
#include "libmoe/cuda/dequant/grid.cuh"
#include "libmoe/cuda/dequant/iq.cuh"
#include "libmoe/cuda/dequant/iq4_nl.cuh"
#include "libmoe/cuda/dequant/iq4_xs.cuh"
#include "libmoe/cuda/dequant/kbit.cuh"
#include "libmoe/cuda/dequant/mxfp4.cuh"
#include "libmoe/cuda/dequant/nvfp4.cuh"
#include "libmoe/cuda/dequant/q2_k.cuh"
#include "libmoe/cuda/dequant/q3_k.cuh"
#include "libmoe/cuda/dequant/q4_0.cuh"
#include "libmoe/cuda/dequant/q4_1.cuh"
#include "libmoe/cuda/dequant/q4_k.cuh"
#include "libmoe/cuda/dequant/q5_0.cuh"
#include "libmoe/cuda/dequant/q5_1.cuh"
#include "libmoe/cuda/dequant/q5_k.cuh"
#include "libmoe/cuda/dequant/q6_k.cuh"
#include "libmoe/cuda/dequant/q8_0.cuh"

namespace moe::cuda {

// Accumulators of operands of the type still have to be multiplied by this.
MOE_HOST_DEVICE constexpr float residual_scale(PackedType type, Operand operand) {
    using Nvfp4 = ValueDequant<PackedType::nvfp4>;
    using Mxfp4 = ValueDequant<PackedType::mxfp4>;
    if (type == PackedType::nvfp4)
        return operand == Operand::bf16 ? Nvfp4::bf16_residual_scale : Nvfp4::f16_residual_scale;
    if (type == PackedType::mxfp4 && operand == Operand::f16) return Mxfp4::f16_residual_scale;
    return 1.0f;
}

// a[4 step + register]: the values divided by residual_scale and rounded once.
template <Operand operand, PackedType type>
MOE_HOST_DEVICE inline void dequantize_operands(const typename ValueDequant<type>::Words& words,
                                                const float* codebook, uint32_t (&a)[16]) {
    using Values = ValueDequant<type>;
    constexpr float inverse = 1.0f / residual_scale(type, operand);
    MOE_UNROLL
    for (int i = 0; i < 16; ++i) {
        const int step = i / 4;
        const int reg = i % 4;
        if constexpr (requires { Values::template operands<operand>(words, step, reg); }) {
            a[i] = Values::template operands<operand>(words, step, reg);
        } else {
            const FloatPair value = Values::pair(words, codebook, step, reg);
            a[i] = operand_pair<operand>({value.low * inverse, value.high * inverse});
        }
    }
}

// values[2 (4 step + register) + parity].
template <PackedType type>
MOE_HOST_DEVICE inline void dequantize_floats(const typename ValueDequant<type>::Words& words,
                                              const float* codebook, float (&values)[32]) {
    MOE_UNROLL
    for (int i = 0; i < 16; ++i) {
        const FloatPair value = ValueDequant<type>::pair(words, codebook, i / 4, i % 4);
        values[2 * i] = value.low;
        values[2 * i + 1] = value.high;
    }
}

}  // namespace moe::cuda
