// Building blocks of GroupedDequant (dequant.cuh). Device only.
#pragma once

#include <cuda_fp16.h>

#include "libmoe/cuda/dequant/dequant.cuh"
#include "libmoe/cuda/device/convert.hpp"
#include "libmoe/cuda/device/operand.hpp"
#include "libmoe/cuda/device/shared_memory.cuh"

namespace moe::cuda {

// The table of types without a codebook.
struct NoTable {
    __device__ __forceinline__ explicit NoTable(uint32_t) {}
};

// The unscaled values of types that need none.
struct NoValues {
    __device__ __forceinline__ NoValues(uint32_t, uint32_t, uint32_t) {}
};

// The factors of accumulators, and of sums of tokens, in rows g and g + 8.
struct RowFactors {
    float of_product[2];
    float of_tokens[2];
};

template <PackedType packed>
struct GroupedDequantBase {
    static constexpr PackedType type = packed;
    static constexpr float residual_scale = 1.0f;
    using Table = NoTable;
    static constexpr bool scales_after = false;
};

// The operands of a GroupedDequant: bfloat16 unless it says otherwise.
template <class Dequant>
constexpr Operand operand_of() {
    if constexpr (requires { Dequant::operand; })
        return Dequant::operand;
    else
        return Operand::bf16;
}

// The KeptScales of a GroupedDequant, where it has them.
struct NoKeptScales {};
template <class Dequant>
struct KeptScalesOf {
    using Type = NoKeptScales;
};
template <class Dequant>
requires requires {
    typename Dequant::KeptScales;
}
struct KeptScalesOf<Dequant> {
    using Type = typename Dequant::KeptScales;
};

template <class Dequant>
constexpr float f16_residual_scale_of() {
    if constexpr (requires { Dequant::f16_residual_scale; })
        return Dequant::f16_residual_scale;
    else
        return Dequant::residual_scale;
}

// The same with float16 operands, for tokens in float16. Types whose unscaled values depend on the
// operand, and which leave scales to accumulators here too, are specializations.
template <class Dequant>
struct InF16 : Dequant {
    static constexpr Operand operand = Operand::f16;
    static constexpr float residual_scale = f16_residual_scale_of<Dequant>();
    static constexpr bool scales_after = false;
    static __device__ __forceinline__ void dequantize(const typename Dequant::Words& words,
                                                      const typename Dequant::Table& table,
                                                      uint32_t (&a)[16]) {
        Dequant::template dequantize<Operand::f16>(words, table, a);
    }
    static __device__ __forceinline__ void dequantize(
        const typename Dequant::Words& words, const typename KeptScalesOf<Dequant>::Type& kept,
        const typename Dequant::Table& table, uint32_t (&a)[16]) {
        Dequant::template dequantize<Operand::f16>(words, kept, table, a);
    }
};

// Two float16 as float32.
__device__ __forceinline__ float2 two_f16_values(uint32_t pair) {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
}

}  // namespace moe::cuda
