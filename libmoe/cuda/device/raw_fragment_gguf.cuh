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

// Nibbles are bfloat16 below 2^-125, which are evenly spaced: 2^-133 of their value, and sixteen
// times that in rows g + 8, which have them four bits further up.
struct RawQ4K : RawType<PackedType::q4_k> {
    static constexpr int32_t grain = 4;
    static constexpr int32_t grain_bytes = 2304;
    static constexpr int32_t x_exponent = 96;
    static constexpr float leftover = 137438953472.0f;  // 2^(133 - 96)
    static constexpr uint32_t ones = 0x00010001u;
    template <int n>
    struct Words {
        uint4 codes[n];
    };
    static __device__ __forceinline__ void load(Words<2>& words, uint32_t chunk, int32_t block,
                                                int32_t lane) {
        const uint32_t at = chunk + (block >> 2) * grain_bytes + (block & 3) * 512;
#pragma unroll
        for (int i = 0; i < 2; ++i) words.codes[i] = load_shared_16(at + i * 512 + 16 * lane);
    }
    static __device__ __forceinline__ void step(const Words<2>& words, int j, uint32_t,
                                                uint32_t (&a)[4]) {
        const uint32_t word = word_of(words.codes[j / 4], j % 4);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            a[i] = word >> (i < 2 ? 0 : 8) & (i % 2 == 0 ? 0x000F000Fu : 0x00F000F0u);
    }
    // Of two blocks a lane has group lane % 4 of eight.
    struct Head : Q4kHeads {
        __device__ __forceinline__ Head(uint32_t chunk, int32_t block, int32_t lane)
            : Head(chunk + (block >> 2) * grain_bytes + 2048 + 16 * (lane >> 2),
                   static_cast<uint32_t>(lane & 3)) {}

      private:
        __device__ __forceinline__ Head(uint32_t rows, uint32_t group)
            : Q4kHeads({load_shared_16(rows), load_shared_16(rows + 128)},
                       group * 0x0101u + 0x0400u) {}
    };
    using Factors = Q4kFactors;
    static __device__ __forceinline__ Q4kFactors factors(const Head& head, int32_t block) {
        const bool late = block & 2;
        Q4kFactors of = q4_k_factors(late ? head.scales[1] : head.scales[0],
                                     late ? head.minima[1] : head.minima[0], head.d);
        of.scale.y *= 0.0625f;
        return of;
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
