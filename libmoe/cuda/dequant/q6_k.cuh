// q6_k of ggml: 6-bit codes minus 32; 18 bytes of scales per row and 256 k behind the codes of four
// blocks: a signed byte per 16 k, their float16 factor. Used by all kernels but the grouped GEMM;
// gemv multiplies codes as signed bytes.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"
#if defined(__CUDACC__)
#include "libmoe/cuda/dequant/gemv_blocks.cuh"
#endif

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::q6_k> : AffineValueDequant<PackedType::q6_k> {};

#if defined(__CUDACC__)

template <>
struct GemvDequant<PackedType::q6_k> : GemvDequantBase<PackedType::q6_k> {
    using Operand = BytesOf16;
    static constexpr int32_t span = 1;
    static constexpr int32_t min_split = 4;
    static constexpr int32_t min_split_bytes = 4 * block_bytes(type, 4);
    static constexpr int32_t code_bytes = block_code_bytes(type, 4);
    template <int n>
    struct Words {
        uint4 low;   // four bits of each code, a word per step
        uint2 high;  // two bits of each, a word per two steps
    };
    static __device__ __forceinline__ uint32_t of_256(uint32_t k_block, int32_t block) {
        return k_block + (block >> 2) * min_split_bytes;
    }
    static __device__ __forceinline__ void load(Words<1>& words, uint32_t k_block, int32_t block,
                                                int32_t lane) {
        const uint32_t at = of_256(k_block, block) + (block & 3) * code_bytes;
        words.low = load_shared_16(at + 16 * lane);
        words.high = load_shared_8(at + 512 + 8 * lane);
    }
    // A code in the upper six bits of a byte, with the sign bit flipped, is 4 (code - 32).
    static __device__ __forceinline__ void two_steps(const Words<1>& words, int i, uint32_t,
                                                     uint32_t (&a)[4]) {
        const uint32_t high = i == 0 ? words.high.x : words.high.y;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const uint32_t low = word_of(words.low, 2 * i + j);
            a[2 * j] = signed_bytes(low << 2, high << (6 - 2 * j));
            a[2 * j + 1] = signed_bytes(low >> 2, high << (2 - 2 * j));
        }
    }
    // Rows of 18 bytes are on multiples of two, so that bytes are loaded one at a time, and only
    // when their block needs them: they would hold registers.
    struct GroupScales {
        uint32_t at;      // of the lane's group of block 0, row g
        float factor[2];  // of rows g and g + 8, a quarter of ggml's

        __device__ __forceinline__ GroupScales(uint32_t k_block, int32_t block, int32_t lane)
            : at(of_256(k_block, block) + 4 * code_bytes + row_bytes * (lane >> 2) + (lane & 3)) {
            const uint32_t d = at - (lane & 3) + 16;
            factor[0] = 0.25f * f16_value(load_shared_2(d));
            factor[1] = 0.25f * f16_value(load_shared_2(d + 8 * row_bytes));
        }
    };
    static __device__ __forceinline__ RowScales factors(const GroupScales& of, int32_t block) {
        const uint32_t at = of.at + 4 * (block & 3);
        return {of.factor[0] * static_cast<float>(load_shared_signed_byte(at)),
                of.factor[1] * static_cast<float>(load_shared_signed_byte(at + 8 * row_bytes))};
    }

  private:
    static constexpr int32_t row_bytes = ggml_scale_bytes(type);
    static __device__ __forceinline__ uint32_t signed_bytes(uint32_t low, uint32_t high) {
        return ((low & 0x3C3C3C3Cu) | (high & 0xC0C0C0C0u)) ^ 0x80808080u;
    }
};

#endif

}  // namespace moe::cuda
