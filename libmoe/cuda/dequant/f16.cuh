// f16: a code is a float16, and there are no scales. Used by all kernels; the grouped GEMM rounds
// each value where its operands are bfloat16.
#pragma once

#include "libmoe/cuda/dequant/dense.cuh"

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::f16> : DenseValueDequant<PackedType::f16> {
    static MOE_HOST_DEVICE FloatPair pair(const Words& words, const float*, int step, int reg) {
        return pair_of_f16(words.code[4 * step + reg]);
    }
    template <Operand operand>
    requires(operand == Operand::f16) static MOE_HOST_DEVICE uint32_t
        operands(const Words& words, int step, int reg) {
        return words.code[4 * step + reg];
    }
};

#if defined(__CUDACC__)

template <>
struct GemvDequant<PackedType::f16> : GemvDense<PackedType::f16, F16> {};

template <>
struct GroupedDequant<PackedType::f16> : GroupedDense<PackedType::f16> {
    template <Operand operand = Operand::bf16>
    static __device__ __forceinline__ void dequantize(const Words& words, const NoTable& table,
                                                      uint32_t (&a)[16]) {
        GroupedDense<PackedType::f16>::dequantize(words, table, a);
        if constexpr (operand == Operand::bf16) {
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                const float2 pair = two_f16_values(a[i]);
                a[i] = bf16_pair(pair.x, pair.y);
            }
        }
    }
};

#endif

}  // namespace moe::cuda
