// raw_fragment.cuh for the blocks of ggml.
#pragma once

#include "libmoe/cuda/device/q4_k_head.cuh"
#include "libmoe/cuda/device/raw_fragment.cuh"

namespace moe::cuda {

struct RawQ8_0 : RawType<PackedType::q8_0> {
    using Operand = F16;
    template <int n>
    struct Words : ByteCodes<n> {
        uint32_t scales;  // float16 of the two row halves
    };
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, uint32_t chunk, int32_t block,
                                                int32_t lane) {
        const uint32_t at = chunk + block * grain_bytes;
        words.scales =
            load_shared_4(scales_of_32(at + scales + column_block(lane, n) * grain_bytes, lane, 2));
        words.ByteCodes<n>::load(at, grain_bytes, lane);
    }
    // The byte, 128 more than the code, as the lowest of a float16 from 1024 on.
    template <int n>
    static __device__ __forceinline__ void step(const Words<n>& words, int j, uint32_t,
                                                uint32_t (&a)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t bytes = words.word(j, i / 2) ^ 0x80808080u;
            const uint32_t sum = __byte_perm(bytes, 0x64646464u, i % 2 ? 0x4342 : 0x4140);
            asm("add.rn.f16x2 %0, %1, %2;" : "=r"(a[i]) : "r"(sum), "r"(0xE480E480u));  // -1152
        }
    }
    template <int n>
    static __device__ __forceinline__ RowScales factors(const Words<n>& words) {
        return {f16_value(words.scales), f16_value(words.scales >> 16)};
    }
};

// Nibbles are subnormal bfloat16: 2^-133 of their value.
struct RawQ4K : RawType<PackedType::q4_k> {
    static constexpr int32_t grain = 4;
    static constexpr int32_t grain_bytes = 2304;
    static constexpr int32_t x_exponent = 96;
    static constexpr float leftover = 137438953472.0f;  // 2^(133 - 96)
    static constexpr uint32_t ones = 0x00010001u;
    template <int n>
    struct Words {
        uint4 codes[n];
        uint4 head[2];   // of rows g and g + 8
        uint32_t group;  // of the lane's columns among the eight of 256 k
    };
    static __device__ __forceinline__ void load(Words<2>& words, uint32_t chunk, int32_t block,
                                                int32_t lane) {
        const uint32_t at = chunk + (block >> 2) * grain_bytes;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            words.codes[i] = load_shared_16(at + ((block & 3) + i) * 512 + 16 * lane);
            words.head[i] = load_shared_16(at + 2048 + ((lane >> 2) + 8 * i) * 16);
        }
        words.group = static_cast<uint32_t>(2 * (block & 3) + (lane & 3));
    }
    static __device__ __forceinline__ void step(const Words<2>& words, int j, uint32_t,
                                                uint32_t (&a)[4]) {
        const uint32_t word = word_of(words.codes[j / 4], j % 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = word >> (4 * i) & 0x000F000Fu;
    }
    using Factors = Q4kFactors;
    static __device__ __forceinline__ Q4kFactors factors(const Words<2>& words) {
        return q4_k_factors(words.head, words.group);
    }
    static __device__ __forceinline__ void add(const Q4kFactors& factors, const float (&c)[4],
                                               const float (&x)[4], float (&sum)[2]) {
        const auto [scale, minimum] = factors;
        sum[0] = fmaf(scale.x, c[0] + c[1], sum[0]);
        sum[1] = fmaf(scale.y, c[2] + c[3], sum[1]);
        sum[0] = fmaf(-minimum.x, x[0] + x[1], sum[0]);
        sum[1] = fmaf(-minimum.y, x[2] + x[3], sum[1]);
    }
};

}  // namespace moe::cuda
