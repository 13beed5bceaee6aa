// bf16: a code is a bfloat16, and there are no scales. Used by all kernels; codes are operands as
// they lie.
#pragma once

#include "libmoe/cuda/dequant/dense.cuh"

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::bf16> : DenseValueDequant<PackedType::bf16> {
    static MOE_HOST_DEVICE FloatPair pair(const Words& words, const float*, int step, int reg) {
        return pair_of_bf16(words.code[4 * step + reg]);
    }
    template <Operand operand>
    requires(operand == Operand::bf16) static MOE_HOST_DEVICE uint32_t
        operands(const Words& words, int step, int reg) {
        return words.code[4 * step + reg];
    }
};

#if defined(__CUDACC__)

template <>
struct GemvDequant<PackedType::bf16> : GemvDense<PackedType::bf16, Bf16> {};

template <>
struct GroupedDequant<PackedType::bf16> : GroupedDense<PackedType::bf16> {
    template <Operand operand = Operand::bf16>
    static __device__ __forceinline__ void dequantize(const Words& words, const NoTable& table,
                                                      uint32_t (&a)[16]) {
        GroupedDense<PackedType::bf16>::dequantize(words, table, a);
        if constexpr (operand == Operand::f16) {
#pragma unroll
            for (int i = 0; i < 16; ++i) a[i] = operand_pair<operand>(pair_of_bf16(a[i]));
        }
    }
};

#endif

}  // namespace moe::cuda
