// Building blocks of the types without scales, f32, f16 and bf16: element c of a lane is its code.
#pragma once

#include "libmoe/cuda/dequant/value_blocks.hpp"
#if defined(__CUDACC__)
#include "libmoe/cuda/dequant/gemv_blocks.cuh"
#include "libmoe/cuda/dequant/grouped_blocks.cuh"
#endif

namespace moe::cuda {

template <PackedType type>
struct DenseValueDequant {
    static constexpr int n_words = code_bits(type);
    struct Words {
        uint32_t code[n_words];
    };

    static MOE_HOST_DEVICE Words load(PackedType, const std::byte* codes, const std::byte*,
                                      int32_t lane, int64_t) {
        Words words;
        load_code_words(codes, lane, words.code);
        return words;
    }
};

#if defined(__CUDACC__)

// Codes are operands, and there are no scales.
template <PackedType packed, class OperandType>
struct GemvDense : GemvDequantBase<packed> {
    using Operand = OperandType;
    static constexpr int32_t span = 1;
    template <int n>
    struct Words {
        uint4 step[4];
    };
    static __device__ __forceinline__ void load(Words<1>& words, uint32_t k_block, int32_t block,
                                                int32_t lane) {
        const uint32_t codes = k_block + block * block_bytes(packed, 4) + 16 * lane;
#pragma unroll
        for (int j = 0; j < 4; ++j) words.step[j] = load_shared_16(codes + 512 * j);
    }
    static __device__ __forceinline__ void step(const Words<1>& words, int j, uint32_t,
                                                uint32_t (&a)[4]) {
        a[0] = words.step[j].x;
        a[1] = words.step[j].y;
        a[2] = words.step[j].z;
        a[3] = words.step[j].w;
    }
    struct Factors {};
    static __device__ __forceinline__ Factors factors(const Words<1>&) {
        return {};
    }
    static __device__ __forceinline__ void add(const Factors&, const float (&c)[4],
                                               float (&acc)[2]) {
        acc[0] += c[0] + c[1];
        acc[1] += c[2] + c[3];
    }
};

// The 16 registers of a block as they lie.
template <PackedType packed>
struct GroupedDense : GroupedDequantBase<packed> {
    struct Words {
        uint4 step[4];
    };
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t, uint32_t lane) {
        Words words;
#pragma unroll
        for (int j = 0; j < 4; ++j) words.step[j] = load_shared_16(codes + 512 * j + 16 * lane);
        return words;
    }
    static __device__ __forceinline__ void dequantize(const Words& words, const NoTable&,
                                                      uint32_t (&a)[16]) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            a[4 * j] = words.step[j].x;
            a[4 * j + 1] = words.step[j].y;
            a[4 * j + 2] = words.step[j].z;
            a[4 * j + 3] = words.step[j].w;
        }
    }
};

#endif

}  // namespace moe::cuda
