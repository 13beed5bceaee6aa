// Superblocks of ggml in the grouped GEMM, with accumulators in units of a superblock's factor.
// A scale is then its code, a whole number or half of one of up to 8 bits, so that operands take
// one multiply-add less and no second number (code_operands.cuh). The mainloop brings accumulators
// to the unit of the superblock that begins. Device only.
#pragma once

#include "libmoe/cuda/dequant/grouped_blocks.cuh"

namespace moe::cuda {

template <class Kept>
struct KeptInUnits : Kept {
    float2 units;  // of rows g and g + 8

    __device__ __forceinline__ void load(uint32_t headers, uint32_t lane) {
        Kept::load(headers, lane);
        units = Kept::take_units();
    }
};

// Dequantizes in such units: a GroupedDequant with bfloat16 operands whose KeptScales have
// take_units().
template <class Dequant>
struct InSuperblockUnits : Dequant {
    using KeptScales = KeptInUnits<typename Dequant::KeptScales>;
    static __device__ __forceinline__ void dequantize(const typename Dequant::Words& words,
                                                      const typename Dequant::Table& table,
                                                      uint32_t (&a)[16]) {
        Dequant::template dequantize<Operand::bf16, true>(words, table, a);
    }
};

// Float16 does not hold the largest products of code and level.
template <class Dequant>
constexpr bool has_superblock_units =
    operand_of<Dequant>() == Operand::bf16&& requires(typename Dequant::KeptScales& kept) {
    kept.take_units();
};

}  // namespace moe::cuda
