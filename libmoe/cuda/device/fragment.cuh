// From the packed layout in shared memory to A fragments: how a lane reads its codes and scales of
// a block of 64 k (packed.hpp: four steps) and turns them into the 16 registers of bfloat16 pairs
// that four products of 16 k take. One struct per packed type:
//   Words                       what a lane holds of a block before decoding
//   load(codes, scales, lane)   shared addresses of the block's codes and scales
//   decode(words, table, a)     table: shared address of [2][32] float32, the codebook of rows g
//   and
//                               g + 8 of the tile; other types ignore it
//   has_codebook                does decode read the table?
//   leftover                    a power of two that decoded values lack; multiplies the sums
// Every value is rounded to bfloat16 at most once; nvfp4 and mxfp4 are exact.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "libmoe/cuda/device/e2m1.hpp"
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
        for (int j = 0; j < 4; ++j) words.step[j] = load_shared_16(codes + 512 * j + 16 * lane);
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

// The e2m1 codes of a block, times the scales (pairs, of rows g and g + 8): 2^-126 of their value
// until these multiply.
__device__ __forceinline__ void decode_e2m1(const uint4& codes, const uint32_t (&scale)[2],
                                            uint32_t (&a)[16]) {
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int i = 0; i < 16; ++i)
        a[i] = multiply_bf16_pairs(spread_e2m1(words[i / 4], i % 4), scale[i & 1]);
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
        return {load_shared_16(codes + 16 * lane), load_shared_2(scales + 2 * lane)};
    }
    static __device__ __forceinline__ void decode(const Words& words, uint32_t, uint32_t (&a)[16]) {
        uint32_t scale[2];
        scale_pairs<4, 223 << 7>(words.scales, scale);
        decode_e2m1(words.codes, scale, a);
    }
};

struct FragmentMxfp4 {
    static constexpr PackedType type = PackedType::mxfp4;
    // A scale byte, 127 at most, becomes 2^byte; decoded values are twice too large.
    static constexpr float leftover = 0.5f;
    static constexpr bool has_codebook = false;
    using Words = FragmentNvfp4::Words;
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        return {load_shared_16(codes + 16 * lane), load_shared_2(scales + (lane & ~1u))};
    }
    static __device__ __forceinline__ void decode(const Words& words, uint32_t, uint32_t (&a)[16]) {
        uint32_t scale[2];
        scale_pairs<7, 127 << 7>(words.scales, scale);
        decode_e2m1(words.codes, scale, a);
    }
};

// One byte a code: bytes 2 a and 2 a + 1 of a step are register a.
struct EightBitWords {
    uint4 codes[2];  // steps 0, 1; steps 2, 3
    float2 scale;    // of rows g and g + 8
};

__device__ __forceinline__ void load_eight_bit_codes(uint32_t codes, uint32_t lane,
                                                     uint4 (&words)[2]) {
    words[0] = load_shared_16(codes + 16 * lane);
    words[1] = load_shared_16(codes + 512 + 16 * lane);
}

// value(bits): two codes, in bytes 0 and 1, as float2.
template <class Value>
__device__ __forceinline__ void decode_eight_bit(const EightBitWords& words, Value value,
                                                 uint32_t (&a)[16]) {
    const uint32_t w[8] = {words.codes[0].x, words.codes[0].y, words.codes[0].z, words.codes[0].w,
                           words.codes[1].x, words.codes[1].y, words.codes[1].z, words.codes[1].w};
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        const float2 pair = value(w[i / 2] >> 16 * (i & 1));
        const float scale = i & 1 ? words.scale.y : words.scale.x;
        a[i] = bf16_pair(pair.x * scale, pair.y * scale);
    }
}

struct FragmentE4m3 {
    static constexpr PackedType type = PackedType::e4m3;
    static constexpr float leftover = 1.0f;
    static constexpr bool has_codebook = false;
    using Words = EightBitWords;
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        Words words;
        load_eight_bit_codes(codes, lane, words.codes);
        const uint2 scale = load_shared_8(scales + (lane & 2) * 4);
        words.scale = {__uint_as_float(scale.x), __uint_as_float(scale.y)};
        return words;
    }
    static __device__ __forceinline__ void decode(const Words& words, uint32_t, uint32_t (&a)[16]) {
        decode_eight_bit(
            words,
            [](uint32_t bits) {
                uint32_t halves;
                asm("{ .reg .b16 b; cvt.u16.u32 b, %1; cvt.rn.f16x2.e4m3x2 %0, b; }"
                    : "=r"(halves)
                    : "r"(bits));
                return __half22float2(reinterpret_cast<const __half2&>(halves));
            },
            a);
    }
};

struct FragmentQ8 {
    static constexpr PackedType type = PackedType::q8_0;
    static constexpr float leftover = 1.0f;
    static constexpr bool has_codebook = false;
    using Words = EightBitWords;
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        Words words;
        load_eight_bit_codes(codes, lane, words.codes);
        const uint32_t pair = load_shared_4(scales + (lane >> 1) * 4);
        words.scale = __half22float2(reinterpret_cast<const __half2&>(pair));
        return words;
    }
    static __device__ __forceinline__ void decode(const Words& words, uint32_t, uint32_t (&a)[16]) {
        decode_eight_bit(
            words,
            [](uint32_t bits) {
                return float2{static_cast<float>(static_cast<int8_t>(bits)),
                              static_cast<float>(static_cast<int8_t>(bits >> 8))};
            },
            a);
    }
};

// A scale byte in E4M4, bias 11, as the upper bits of a float32 of the same form with bias 127;
// both have subnormal values.
__device__ __forceinline__ float e4m4(uint32_t byte) {
    constexpr float difference = 0x1p116f;
    return __uint_as_float(byte << 19) * difference;
}

// At most eight values of a codebook times a scale, rounded to bfloat16, as two tables of bytes for
// byte permutations: `low` and `high` bytes of values 0 to 3 and 4 to 7.
template <int bits>
struct ScaledCodebook {
    uint32_t low[2], high[2];

    __device__ __forceinline__ ScaledCodebook(uint32_t table, float scale) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint4 v = load_shared_16(table + (bits == 2 ? 0 : 16 * i));
            const uint32_t p =
                bf16_pair(__uint_as_float(v.x) * scale, __uint_as_float(v.y) * scale);
            const uint32_t q =
                bf16_pair(__uint_as_float(v.z) * scale, __uint_as_float(v.w) * scale);
            low[i] = __byte_perm(p, q, 0x6420);
            high[i] = __byte_perm(p, q, 0x7531);
            if (bits == 2) break;
        }
        if (bits == 2) low[1] = high[1] = 0;
    }
};

// The eight codes of a step, each in its nibble a + 4 e.
template <int bits>
__device__ __forceinline__ uint32_t codes_of_step(const uint32_t (&w)[bits], int j) {
    if constexpr (bits == 2) return w[j / 2] >> 2 * (j & 1) & 0x33333333u;
    if constexpr (bits == 3) {
        if (j < 3) return w[j < 3 ? j : 0] & 0x77777777u;
        return (w[0] >> 3 & 0x11111111u) | (w[1] >> 2 & 0x22222222u) | (w[2] >> 1 & 0x44444444u);
    }
    return 0;
}

// Four values of one row: codes in the nibbles of `selector` choose low and high bytes, which
// alternate in the pairs.
template <uint32_t first, uint32_t second, int bits>
__device__ __forceinline__ void look_up_row(const ScaledCodebook<bits>& values, uint32_t selector,
                                            uint32_t& a, uint32_t& b) {
    const uint32_t low = __byte_perm(values.low[0], values.low[1], selector);
    const uint32_t high = __byte_perm(values.high[0], values.high[1], selector);
    a = __byte_perm(low, high, first);
    b = __byte_perm(low, high, second);
}

// Selectors bring the nibbles of a row together, two and two: registers 0 and 2 are those of row g,
// 1 and 3, with the halves exchanged, those of row g + 8.
template <int bits>
__device__ __forceinline__ void look_up(const ScaledCodebook<bits> (&values)[2], uint32_t codes,
                                        uint32_t* a) {
    const uint32_t even = (codes & 0x0F0Fu) | (codes >> 12 & 0xF0F0u);
    const uint32_t odd = (codes & 0xF0F0u) | (codes >> 20 & 0x0F0Fu);
    look_up_row<0x5140, 0x7362>(values[0], even, a[0], a[2]);
    look_up_row<0x4051, 0x6273>(values[1], odd, a[1], a[3]);
}

// Codes of `bits` bits that index the codebooks: at their place of the nibble of register and half,
// see packed.hpp.
template <PackedType packed, int bits>
struct FragmentKbit {
    static constexpr PackedType type = packed;
    static constexpr float leftover = 1.0f;
    static constexpr bool has_codebook = true;
    struct Words {
        uint32_t codes[bits];
        float scale[2];
    };

    static __device__ __forceinline__ void load_codes(uint32_t codes, uint32_t lane, Words& words) {
        if constexpr (bits >= 4) {
            const uint4 w = load_shared_16(codes + 16 * lane);
            words.codes[0] = w.x;
            words.codes[1] = w.y;
            words.codes[2] = w.z;
            words.codes[3] = w.w;
            if constexpr (bits == 5) words.codes[4] = load_shared_4(codes + 512 + 4 * lane);
        } else {
            const uint2 w = load_shared_8(codes + 8 * lane);
            words.codes[0] = w.x;
            words.codes[1] = w.y;
            if constexpr (bits == 3) words.codes[2] = load_shared_4(codes + 256 + 4 * lane);
        }
    }
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        Words words;
        load_codes(codes, lane, words);
        if constexpr (block_scale_bytes(packed, 4) == 32) {
            const uint32_t bytes = load_shared_2(scales + (lane & ~1u));
            words.scale[0] = e4m4(bytes & 0xFFu);
            words.scale[1] = e4m4(bytes >> 8);
        } else {
            const uint2 pair = load_shared_8(scales + (lane >> 1) * 8);
            words.scale[0] = __uint_as_float(pair.x);
            words.scale[1] = __uint_as_float(pair.y);
        }
        return words;
    }
    static __device__ __forceinline__ void decode(const Words& words, uint32_t table,
                                                  uint32_t (&a)[16]) {
        if constexpr (bits <= 3) {
            const ScaledCodebook<bits> values[2] = {{table, words.scale[0]},
                                                    {table + 128, words.scale[1]}};
#pragma unroll
            for (int j = 0; j < 4; ++j)
                look_up(values, codes_of_step<bits>(words.codes, j), a + 4 * j);
        } else {
            decode_by_loads(words, table, a);
        }
    }

  private:
    static __device__ __forceinline__ void decode_by_loads(const Words& words, uint32_t table,
                                                           uint32_t (&a)[16]) {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const int nibble = 4 * (i % 4), row_half = i & 1;
            float value[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const uint32_t index = code(words.codes, i / 4, nibble + 16 * e);
                value[e] = __uint_as_float(load_shared_4(table + 128 * row_half + index));
            }
            a[i] = bf16_pair(value[0] * words.scale[row_half], value[1] * words.scale[row_half]);
        }
    }
    // The code of step j whose nibble begins at bit `at`, times 4.
    static __device__ __forceinline__ uint32_t code(const uint32_t (&w)[bits], int j, int at) {
        const auto field = [](uint32_t word, int from, int to, uint32_t mask) {
            return (from >= to ? word >> (from - to) : word << (to - from)) & mask << to;
        };
        if constexpr (bits == 5) return field(w[j], at, 2, 15) | field(w[4], at + j, 6, 1);
        return field(w[j], at, 2, 15);
    }
};

struct FragmentQ4k {
    static constexpr PackedType type = PackedType::q4_k;
    static constexpr float leftover = 1.0f;
    static constexpr bool has_codebook = false;
    struct Words {
        uint4 codes;
        uint4 head[2];   // of rows g and g + 8
        uint32_t group;  // of 32, in the 256 of the heads
    };
    // `group` of the block's first 32 k; lanes with t = 2, 3 have the next.
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t heads, uint32_t lane,
                                                 uint32_t group) {
        return {load_shared_16(codes + 16 * lane),
                {load_shared_16(heads + 16 * (lane >> 2)),
                 load_shared_16(heads + 16 * (lane >> 2) + 128)},
                group + (lane >> 1 & 1)};
    }
    // Scale of the group, and what 128 + code times it has too much: the minimum and 128 scales.
    // Scale and minimum have six bits each, those of groups 4 to 7 in two pieces.
    static __device__ __forceinline__ float2 scales(const uint4& head, uint32_t group) {
        const uint32_t shift = group % 4 * 8;
        const uint32_t low_scale = head.y >> shift, low_min = head.z >> shift;
        const uint32_t rest = head.w >> shift;
        const bool first = group < 4;
        const uint32_t scale = first ? low_scale & 63 : (rest & 15) | (low_scale >> 2 & 48);
        const uint32_t minimum = first ? low_min & 63 : (rest >> 4 & 15) | (low_min >> 2 & 48);
        const float2 d = __half22float2(reinterpret_cast<const __half2&>(head.x));
        const float factor = d.x * static_cast<float>(scale);
        return {factor, fmaf(factor, -128.0f, -d.y * static_cast<float>(minimum))};
    }
    static __device__ __forceinline__ void decode(const Words& words, uint32_t, uint32_t (&a)[16]) {
        const float2 s[2] = {scales(words.head[0], words.group),
                             scales(words.head[1], words.group)};
        const uint32_t w[4] = {words.codes.x, words.codes.y, words.codes.z, words.codes.w};
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            // 128 + nibble in bfloat16, twice; the float32 of each differs by 16 bits of position.
            const uint32_t pair = (w[i / 4] >> 4 * (i % 4) & 0x000F000Fu) | 0x43004300u;
            const float2 row = s[i & 1];
            a[i] = bf16_pair(fmaf(row.x, __uint_as_float(pair << 16), row.y),
                             fmaf(row.x, __uint_as_float(pair & 0xFFFF0000u), row.y));
        }
    }
};

}  // namespace moe::cuda
