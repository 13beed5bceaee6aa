// From the packed layout in shared memory to A fragments: how a lane reads its codes and scales of
// a block of 64 k (packed.hpp: four steps) and turns them into the 16 registers of bfloat16 pairs
// that four products of 16 k take. One struct per packed type:
//   Words                       what a lane holds of a block before decoding
//   load(codes, scales, lane)   shared addresses of the block's codes and scales
//   decode(words, table, a)     table: shared address of [2][32] float32, the codebook of rows g
//   and
//                               g + 8 of the tile; other types ignore it
//   leftover                    a power of two that decoded values lack; multiplies the sums
// Every value is rounded to bfloat16 at most once; nvfp4 and mxfp4 are exact.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "libmoe/cuda/device/shared_memory.cuh"
#include "libmoe/weights/packed.hpp"

namespace moe::cuda {

__device__ __forceinline__ uint32_t bf16_pair(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ __forceinline__ uint32_t multiply_bf16_pairs(uint32_t a, uint32_t b) {
    uint32_t product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

struct FragmentBf16 {
    static constexpr PackedType type = PackedType::bf16;
    static constexpr float leftover = 1.0f;
    static constexpr bool has_codebook = false;
    struct Words {
        uint4 step[4];
    };
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t, uint32_t lane) {
        Words words;
#pragma unroll
        for (int j = 0; j < 4; ++j) words.step[j] = load_shared_4(codes + 512 * j + 16 * lane);
        return words;
    }
    static __device__ __forceinline__ void decode(const Words& words, uint32_t, uint32_t (&a)[16]) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            a[4 * j] = words.step[j].x;
            a[4 * j + 1] = words.step[j].y;
            a[4 * j + 2] = words.step[j].z;
            a[4 * j + 3] = words.step[j].w;
        }
    }
};

struct FragmentF16 {
    static constexpr PackedType type = PackedType::f16;
    static constexpr float leftover = 1.0f;
    static constexpr bool has_codebook = false;
    using Words = FragmentBf16::Words;
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        return FragmentBf16::load(codes, scales, lane);
    }
    static __device__ __forceinline__ void decode(const Words& words, uint32_t, uint32_t (&a)[16]) {
        FragmentBf16::decode(words, 0, a);
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const float2 pair = __half22float2(reinterpret_cast<const __half2&>(a[i]));
            a[i] = bf16_pair(pair.x, pair.y);
        }
    }
};

// A word of eight e2m1 codes to the bfloat16 pairs of a step: the bits of a code are the sign and
// the lowest three of exponent and mantissa, which makes them 2^-126 of their value until the
// scales (pairs, of rows g and g + 8) multiply.
__device__ __forceinline__ void decode_e2m1(uint32_t word, const uint32_t (&scale)[2],
                                            uint32_t* a) {
    constexpr uint32_t sign_and_magnitude = 0x81C081C0u;
    const uint32_t low_bits = word * 4u & 0x80C080C0u;
    const uint32_t top_bit = __funnelshift_r(word, word, 6) & 0x01000100u;
    a[0] = multiply_bf16_pairs(word & sign_and_magnitude, scale[0]);
    a[1] = multiply_bf16_pairs(word * 64u & sign_and_magnitude, scale[1]);
    a[2] = multiply_bf16_pairs(__funnelshift_r(word, word, 4) & sign_and_magnitude, scale[0]);
    a[3] = multiply_bf16_pairs(low_bits | top_bit, scale[1]);
}

// Two scale bytes, each twice as a bfloat16: shifted left, plus a constant exponent.
template <uint32_t shift, uint32_t constant>
__device__ __forceinline__ void scale_pairs(uint32_t bytes, uint32_t (&scale)[2]) {
    constexpr uint32_t both = constant << 16 | constant;
    scale[0] = (__byte_perm(bytes, 0, 0x4040) << shift) + both;
    scale[1] = (__byte_perm(bytes, 0, 0x4141) << shift) + both;
}

struct FragmentNvfp4 {
    static constexpr PackedType type = PackedType::nvfp4;
    // Exponents of scale bytes (bias 10) move up by 223: to 254 at most, 2^106 times the scale.
    // Decoded values lack 2^(126 - 106).
    static constexpr float leftover = 1048576.0f;
    static constexpr bool has_codebook = false;
    struct Words {
        uint4 codes;
        uint32_t scales;
    };
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        return {load_shared_4(codes + 16 * lane), load_shared_u16(scales + 2 * lane)};
    }
    static __device__ __forceinline__ void decode(const Words& words, uint32_t, uint32_t (&a)[16]) {
        uint32_t scale[2];
        scale_pairs<4, 223 << 7>(words.scales, scale);
        decode_e2m1(words.codes.x, scale, a);
        decode_e2m1(words.codes.y, scale, a + 4);
        decode_e2m1(words.codes.z, scale, a + 8);
        decode_e2m1(words.codes.w, scale, a + 12);
    }
};

struct FragmentMxfp4 {
    static constexpr PackedType type = PackedType::mxfp4;
    // A scale byte, 127 at most, becomes 2^byte; decoded values are twice too large.
    static constexpr float leftover = 0.5f;
    static constexpr bool has_codebook = false;
    using Words = FragmentNvfp4::Words;
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        return {load_shared_4(codes + 16 * lane), load_shared_u16(scales + (lane & ~1u))};
    }
    static __device__ __forceinline__ void decode(const Words& words, uint32_t, uint32_t (&a)[16]) {
        uint32_t scale[2];
        scale_pairs<7, 127 << 7>(words.scales, scale);
        decode_e2m1(words.codes.x, scale, a);
        decode_e2m1(words.codes.y, scale, a + 4);
        decode_e2m1(words.codes.z, scale, a + 8);
        decode_e2m1(words.codes.w, scale, a + 12);
    }
};

}  // namespace moe::cuda
