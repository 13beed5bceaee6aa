// gemv_dequant.cuh for the blocks of ggml.
#pragma once

#include "libmoe/cuda/device/gemv_dequant.cuh"
#include "libmoe/cuda/device/q4_k_scales.cuh"

namespace moe::cuda {

struct GemvQ8_0 : GemvDequantBase<PackedType::q8_0> {
    using Operand = Bytes<true>;
    template <int n>
    struct Words : GemvByteCodes<n> {
        uint32_t scales;  // float16 of the two row halves
    };
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, uint32_t k_block, int32_t block,
                                                int32_t lane) {
        const uint32_t at = k_block + block * min_split_bytes;
        words.scales = load_shared_4(
            scales_of_32(at + scales + column_block(lane, n) * min_split_bytes, lane, 2));
        words.GemvByteCodes<n>::load(at, min_split_bytes, lane);
    }
    // A word has two k of row g, then of row g + 8.
    template <int n>
    static __device__ __forceinline__ void two_steps(const Words<n>& words, int i, uint32_t,
                                                     uint32_t (&a)[4]) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const uint32_t first = words.word(2 * i + j, 0), second = words.word(2 * i + j, 1);
            a[2 * j] = __byte_perm(first, second, 0x5140);
            a[2 * j + 1] = __byte_perm(first, second, 0x7362);
        }
    }
    template <int n>
    static __device__ __forceinline__ RowScales factors(const Words<n>& words) {
        return {f16_value(words.scales), f16_value(words.scales >> 16)};
    }
};

// Nibbles are bytes as they lie, sixteen times as large in rows g + 8, which have them four bits
// further up.
struct GemvQ4K : GemvDequantBase<PackedType::q4_k> {
    using Operand = Bytes<false>;
    static constexpr int32_t min_split = 4;
    static constexpr int32_t min_split_bytes = 2304;
    static constexpr uint32_t ones = 0x01010101u;
    template <int n>
    struct Words {
        uint4 codes[n];
    };
    static __device__ __forceinline__ void load(Words<2>& words, uint32_t k_block, int32_t block,
                                                int32_t lane) {
        const uint32_t at = k_block + (block >> 2) * min_split_bytes + (block & 3) * 512;
#pragma unroll
        for (int i = 0; i < 2; ++i) words.codes[i] = load_shared_16(at + i * 512 + 16 * lane);
    }
    static __device__ __forceinline__ void two_steps(const Words<2>& words, int i, uint32_t,
                                                     uint32_t (&a)[4]) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const uint32_t word = word_of(words.codes[i / 2], i % 2 * 2 + j);
            a[2 * j] = word & 0x0F0F0F0Fu;
            a[2 * j + 1] = word & 0xF0F0F0F0u;
        }
    }
    // Of two blocks a lane has group lane % 4 of eight.
    struct GroupScales : Q4kScales {
        __device__ __forceinline__ GroupScales(uint32_t k_block, int32_t block, int32_t lane)
            : GroupScales(k_block + (block >> 2) * min_split_bytes + 2048 + 16 * (lane >> 2),
                          static_cast<uint32_t>(lane & 3)) {}

      private:
        __device__ __forceinline__ GroupScales(uint32_t rows, uint32_t group)
            : Q4kScales({load_shared_16(rows), load_shared_16(rows + 128)},
                        group * 0x0101u + 0x0400u) {}
    };
    using Factors = Q4kFactors;
    static __device__ __forceinline__ Q4kFactors factors(const GroupScales& head, int32_t block) {
        const bool late = block & 2;
        Q4kFactors of = q4_k_factors(late ? head.scales[1] : head.scales[0],
                                     late ? head.minima[1] : head.minima[0], head.d);
        of.scale.y *= 0.0625f;
        return of;
    }
    static __device__ __forceinline__ void add(const Q4kFactors& factors, const int32_t (&c)[4],
                                               const int32_t (&x)[4], float (&acc)[2]) {
        const auto [scale, minimum] = factors;
        const float x_sum = high_and_low(x[0], x[1]);
        acc[0] = fmaf(scale.x, high_and_low(c[0], c[1]), acc[0]);
        acc[1] = fmaf(scale.y, high_and_low(c[2], c[3]), acc[1]);
        acc[0] = fmaf(-minimum.x, x_sum, acc[0]);
        acc[1] = fmaf(-minimum.y, x_sum, acc[1]);
    }
};

}  // namespace moe::cuda
