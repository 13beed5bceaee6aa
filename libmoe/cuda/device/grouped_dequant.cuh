// From the packed layout in shared memory to A fragments: how a lane reads its codes and scales of
// a block of 64 k (packed.hpp: four steps) and turns them into the 16 registers of bfloat16 pairs
// that four products of 16 k take. One struct per packed type:
//   Words                       what a lane holds of a block before decoding
//   load(codes, scales, lane)   shared addresses of the block's codes and scales
//   Table                       what dequantize wants of the codebooks of rows g and g + 8 of the
//   tile,
//                               made from the shared address of [2][32] float32
//   dequantize(words, table, a)
//   table_in_memory             for types with a codebook: does dequantize read the shared memory
//   of
//                               the table?
//   residual_scale                    a power of two that decoded values lack; multiplies the accum
//   scales_after                true: the scales may also come after the product, see below
// Every value is rounded to bfloat16 at most once; nvfp4 and mxfp4 are exact.
// Where one scale meets few products it costs less than at every weight:
//   Values                      the unscaled values of a codebook: from table (as above), the
//                               shared address of table_bytes more of it, and the lane
//   spread(words, values, j, a) the four registers of step j without scales
//   factors(words)              of rows g and g + 8, for the lane's group of 32 k: of the product,
//                               and of the sum of tokens if has_offset
//   has_superblock_scales                   scales of four blocks come together:
//   load_superblock_scales and
//                               factors(headers, block)
//   load_codes(codes, lane)     Words without scales
//   groups_apart                factors_of_groups(scales, lane, of) are those of both groups of a
//                               block, for more tokens (sm90_mainloop_warp.cuh)
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "libmoe/cuda/device/codebook_lanes.cuh"
#include "libmoe/cuda/device/codebook_lookup.cuh"
#include "libmoe/cuda/device/e2m1.hpp"
#include "libmoe/cuda/device/q4_k_scales.cuh"
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

// The table of types without a codebook.
struct NoTable {
    __device__ __forceinline__ explicit NoTable(uint32_t) {}
};

// What a product and a sum of tokens count, in rows g and g + 8.
struct RowFactors {
    float of_product[2];
    float of_tokens[2];
};

struct GroupedBf16 {
    static constexpr PackedType type = PackedType::bf16;
    static constexpr float residual_scale = 1.0f;
    using Table = NoTable;
    static constexpr bool scales_after = false;
    struct Words {
        uint4 step[4];
    };
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t, uint32_t lane) {
        Words words;
#pragma unroll
        for (int j = 0; j < 4; ++j) words.step[j] = load_shared_16(codes + 512 * j + 16 * lane);
        return words;
    }
    static __device__ __forceinline__ void dequantize(const Words& words, const Table&,
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

struct GroupedF16 {
    static constexpr PackedType type = PackedType::f16;
    static constexpr float residual_scale = 1.0f;
    using Table = NoTable;
    static constexpr bool scales_after = false;
    using Words = GroupedBf16::Words;
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        return GroupedBf16::load(codes, scales, lane);
    }
    static __device__ __forceinline__ void dequantize(const Words& words, const Table& table,
                                                      uint32_t (&a)[16]) {
        GroupedBf16::dequantize(words, table, a);
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const float2 pair = __half22float2(reinterpret_cast<const __half2&>(a[i]));
            a[i] = bf16_pair(pair.x, pair.y);
        }
    }
};

// The e2m1 codes of a block, times the scales (pairs, of rows g and g + 8): 2^-126 of their value
// until these multiply.
__device__ __forceinline__ void dequantize_e2m1(const uint4& codes, const uint32_t (&scale)[2],
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

struct GroupedNvfp4 {
    static constexpr PackedType type = PackedType::nvfp4;
    // Exponents of scale bytes (bias 10) move up by 223: to 254 at most, 2^106 times the scale.
    // Decoded values lack 2^(126 - 106).
    static constexpr float residual_scale = 1048576.0f;
    using Table = NoTable;
    static constexpr bool scales_after = false;
    struct Words {
        uint4 codes;
        uint32_t scales;
    };
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        return {load_shared_16(codes + 16 * lane), load_shared_2(scales + 2 * lane)};
    }
    static __device__ __forceinline__ void dequantize(const Words& words, const Table&,
                                                      uint32_t (&a)[16]) {
        uint32_t scale[2];
        scale_pairs<4, 223 << 7>(words.scales, scale);
        dequantize_e2m1(words.codes, scale, a);
    }
};

struct GroupedMxfp4 {
    static constexpr PackedType type = PackedType::mxfp4;
    // A scale byte, 127 at most, becomes 2^byte; decoded values are twice too large.
    static constexpr float residual_scale = 0.5f;
    using Table = NoTable;
    static constexpr bool scales_after = false;
    using Words = GroupedNvfp4::Words;
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        return {load_shared_16(codes + 16 * lane), load_shared_2(scales + (lane & ~1u))};
    }
    static __device__ __forceinline__ void dequantize(const Words& words, const Table&,
                                                      uint32_t (&a)[16]) {
        uint32_t scale[2];
        scale_pairs<7, 127 << 7>(words.scales, scale);
        dequantize_e2m1(words.codes, scale, a);
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
__device__ __forceinline__ void dequantize_eight_bit(const EightBitWords& words, Value value,
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

struct GroupedE4m3 {
    static constexpr PackedType type = PackedType::e4m3;
    static constexpr float residual_scale = 1.0f;
    using Table = NoTable;
    static constexpr bool scales_after = false;
    using Words = EightBitWords;
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        Words words;
        load_eight_bit_codes(codes, lane, words.codes);
        const uint2 scale = load_shared_8(scales + (lane & 2) * 4);
        words.scale = {__uint_as_float(scale.x), __uint_as_float(scale.y)};
        return words;
    }
    static __device__ __forceinline__ void dequantize(const Words& words, const Table&,
                                                      uint32_t (&a)[16]) {
        dequantize_eight_bit(
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

struct GroupedQ8_0 {
    static constexpr PackedType type = PackedType::q8_0;
    static constexpr float residual_scale = 1.0f;
    using Table = NoTable;
    static constexpr bool scales_after = false;
    using Words = EightBitWords;
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        Words words;
        load_eight_bit_codes(codes, lane, words.codes);
        const uint32_t pair = load_shared_4(scales + (lane >> 1) * 4);
        words.scale = __half22float2(reinterpret_cast<const __half2&>(pair));
        return words;
    }
    // Code + 128 in byte 1 of the float32 of 2^15, which both go again with the scale, exactly:
    // that is quicker than conversions of integers.
    static __device__ __forceinline__ void dequantize(const Words& words, const Table&,
                                                      uint32_t (&a)[16]) {
        const uint32_t w[8] = {words.codes[0].x, words.codes[0].y, words.codes[0].z,
                               words.codes[0].w, words.codes[1].x, words.codes[1].y,
                               words.codes[1].z, words.codes[1].w};
        constexpr float base = 32768.0f;
        const float scale[2] = {words.scale.x, words.scale.y};
        const float offset[2] = {-(base + 128) * scale[0], -(base + 128) * scale[1]};
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const uint32_t bytes = w[i / 2] ^ 0x80808080u;
            float value[2];
#pragma unroll
            for (int e = 0; e < 2; ++e)
                value[e] = __uint_as_float(
                    permute_bytes(bytes, __float_as_uint(base), 0x7504 + 0x10 * (2 * (i & 1) + e)));
            a[i] = bf16_pair(fmaf(value[0], scale[i & 1], offset[i & 1]),
                             fmaf(value[1], scale[i & 1], offset[i & 1]));
        }
    }
};

// The codebooks of both row halves in registers.
template <int bits>
struct CodebookTable {
    float of[2][1 << bits];

    __device__ __forceinline__ explicit CodebookTable(uint32_t table) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int i = 0; i < 1 << bits; ++i)
                of[half][i] = __uint_as_float(load_shared_4(table + 128 * half + 4 * i));
        }
    }
};

// Too many values for registers: the shared address.
struct CodebookAddress {
    uint32_t at;
    __device__ __forceinline__ explicit CodebookAddress(uint32_t table) : at(table) {}
};
template <>
struct CodebookTable<4> : CodebookAddress {
    using CodebookAddress::CodebookAddress;
};
template <>
struct CodebookTable<5> : CodebookAddress {
    using CodebookAddress::CodebookAddress;
};

// The values of a codebook times a scale, rounded to bfloat16.
template <int bits>
__device__ __forceinline__ CodebookValues<bits> scaled_values(const float (&codebook)[1 << bits],
                                                              float scale) {
    uint32_t pairs[CodebookValues<bits>::n_pairs];
#pragma unroll
    for (int i = 0; i < CodebookValues<bits>::n_pairs; ++i)
        pairs[i] = bf16_pair(codebook[2 * i] * scale, codebook[2 * i + 1] * scale);
    CodebookValues<bits> values;
    values.set(pairs);
    return values;
}

// Values of both row halves, without scales: tables that the block keeps for itself.
template <int bits>
struct UnscaledValues {
    using Lookup = CodebookLookup<bits>;
    static constexpr uint32_t table_bytes = 2 * Lookup::bytes;
    Lookup lookup;

    __device__ __forceinline__ UnscaledValues(uint32_t, uint32_t pair_table, uint32_t)
        : lookup{pair_table} {}

    // The entries of thread `index` of 256.
    static __device__ __forceinline__ void store(uint32_t table, uint32_t pair_table,
                                                 uint32_t index) {
        if (index >= 2 * Lookup::entries) return;
        const uint32_t values = table + 128 * (index / Lookup::entries);
        const auto value = [&](int32_t code) {
            return __uint_as_float(load_shared_4(values + 4 * code));
        };
        const auto i = static_cast<int32_t>(index % Lookup::entries);
        const float low = Lookup::has_pairs ? value(Lookup::low_code(i)) : 0.0f;
        store_shared(pair_table + 4 * index, bf16_pair(low, value(Lookup::high_code(i))));
    }
    __device__ __forceinline__ void step(const uint32_t (&words)[bits], int j, uint32_t* a) const {
        lookup.step(words, j, a);
    }
};

// Three bits: every other step by permutations of registers, because look-ups alone keep the shared
// memory busy for longer than the instructions of a block take. (Two bits: slower so.)
template <int bits>
struct MixedValues : UnscaledValues<bits> {
    CodebookValues<bits> of[2];

    __device__ __forceinline__ MixedValues(uint32_t table, uint32_t pair_table, uint32_t lane)
        : UnscaledValues<bits>(table, pair_table, lane) {
        const CodebookTable<bits> values(table);
        of[0] = scaled_values<bits>(values.of[0], 1.0f);
        of[1] = scaled_values<bits>(values.of[1], 1.0f);
    }
    __device__ __forceinline__ void step(const uint32_t (&words)[bits], int j, uint32_t* a) const {
        if (j & 1)
            look_up_step(of, words, j, a);
        else
            UnscaledValues<bits>::step(words, j, a);
    }
};

// Sixteen values are too many for registers.
template <>
struct UnscaledValues<4> {
    using Lanes = LaneTable<4>;
    static constexpr uint32_t table_bytes = Lanes::bytes;
    Lanes lanes;

    __device__ __forceinline__ UnscaledValues(uint32_t, uint32_t pair_table, uint32_t lane)
        : lanes(Lanes::of_lane(pair_table, lane)) {}

    // Entry `index` of every lane, by 256 threads together.
    static __device__ __forceinline__ void store(uint32_t table, uint32_t pair_table,
                                                 uint32_t index) {
        Lanes::store(pair_table, index, [&](uint32_t low, uint32_t high) {
            return bf16_pair(__uint_as_float(load_shared_4(table + 4 * low)),
                             __uint_as_float(load_shared_4(table + 128 + 4 * high)));
        });
    }
    __device__ __forceinline__ void step(const uint32_t (&words)[4], int j, uint32_t* a) const {
        lanes.step(words, j, a);
    }
};

// Codes of `bits` bits that index the codebooks: at their place of the nibble of register and half,
// see packed.hpp.
template <PackedType packed, int bits>
struct GroupedKbit {
    static constexpr PackedType type = packed;
    static constexpr float residual_scale = 1.0f;
    static constexpr bool table_in_memory = bits >= 4;
    static constexpr bool scales_after = true;
    static constexpr bool has_offset = false;
    static constexpr bool has_superblock_scales = false;
    static constexpr bool groups_apart =
        bits == 4;  // fewer instructions than dequantize; others: more
    using Table = CodebookTable<bits>;
    using Values = std::conditional_t<bits == 3, MixedValues<bits>, UnscaledValues<bits>>;
    struct Words {
        uint32_t codes[bits];
        float scale[2];
    };

    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        Words words = load_codes(codes, lane);
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
    static __device__ __forceinline__ Words load_codes(uint32_t codes, uint32_t lane) {
        Words words;
        cuda::load_codes<bits>(codes, lane, words.codes);
        return words;
    }
    static __device__ __forceinline__ void dequantize(const Words& words, const Table& table,
                                                      uint32_t (&a)[16]) {
        if constexpr (bits <= 3) {
            const CodebookValues<bits> values[2] = {
                scaled_values<bits>(table.of[0], words.scale[0]),
                scaled_values<bits>(table.of[1], words.scale[1])};
#pragma unroll
            for (int j = 0; j < 4; ++j) look_up_step(values, words.codes, j, a + 4 * j);
        } else {
            dequantize_by_loads(words, table.at, a);
        }
    }
    static __device__ __forceinline__ void spread(const Words& words, const Values& values, int j,
                                                  uint32_t* a) {
        values.step(words.codes, j, a);
    }
    static __device__ __forceinline__ RowFactors factors(const Words& words) {
        return {{words.scale[0], words.scale[1]}, {}};
    }
    static __device__ __forceinline__ void factors_of_groups(uint32_t scales, uint32_t lane,
                                                             RowFactors (&of)[2]) {
        if constexpr (block_scale_bytes(packed, 4) == 32) {
            const uint32_t bytes = load_shared_4(scales + (lane & ~3u));
            of[0] = {{e4m4(bytes & 0xFFu), e4m4(bytes >> 8 & 0xFFu)}, {}};
            of[1] = {{e4m4(bytes >> 16 & 0xFFu), e4m4(bytes >> 24)}, {}};
        } else {
            const uint4 scale = load_shared_16(scales + (lane >> 2) * 16);
            of[0] = {{__uint_as_float(scale.x), __uint_as_float(scale.y)}, {}};
            of[1] = {{__uint_as_float(scale.z), __uint_as_float(scale.w)}, {}};
        }
    }

  private:
    static __device__ __forceinline__ void dequantize_by_loads(const Words& words, uint32_t table,
                                                               uint32_t (&a)[16]) {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const int nibble = 4 * (i % 4), m_half = i & 1;
            float value[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const uint32_t index = code(words.codes, i / 4, nibble + 16 * e);
                value[e] = __uint_as_float(load_shared_4(table + 128 * m_half + index));
            }
            a[i] = bf16_pair(value[0] * words.scale[m_half], value[1] * words.scale[m_half]);
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

struct GroupedQ4K {
    static constexpr PackedType type = PackedType::q4_k;
    static constexpr float residual_scale = 1.0f;
    using Table = NoTable;
    static constexpr bool scales_after = true;
    static constexpr bool has_offset = true;
    static constexpr bool has_superblock_scales = true;
    static constexpr bool groups_apart = false;
    struct Words {
        uint4 codes;
        uint4 scales[2];  // of superblocks, rows g and g + 8
        uint32_t group;   // of 32, in the 256 of the headers
    };
    // `group` of the block's first 32 k; lanes with t = 2, 3 have the next.
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t headers, uint32_t lane,
                                                 uint32_t group) {
        return {load_shared_16(codes + 16 * lane),
                {load_shared_16(headers + 16 * (lane >> 2)),
                 load_shared_16(headers + 16 * (lane >> 2) + 128)},
                group + (lane >> 1 & 1)};
    }
    static __device__ __forceinline__ Words load_codes(uint32_t codes, uint32_t lane) {
        Words words;
        words.codes = load_shared_16(codes + 16 * lane);
        return words;
    }
    // For the lane's groups: of every block the first, or the second in lanes with t = 2, 3.
    static __device__ __forceinline__ Q4kScales load_superblock_scales(uint32_t headers,
                                                                       uint32_t lane) {
        const uint32_t rows = headers + 16 * (lane >> 2);
        const uint4 head[2] = {load_shared_16(rows), load_shared_16(rows + 128)};
        return {head, 0x6420u + 0x1111u * (lane >> 1 & 1)};
    }
    struct Values {
        __device__ __forceinline__ Values(uint32_t, uint32_t, uint32_t) {}
    };
    // 128 + nibble.
    static __device__ __forceinline__ void spread(const Words& words, const Values&, int j,
                                                  uint32_t* a) {
        const uint32_t w[4] = {words.codes.x, words.codes.y, words.codes.z, words.codes.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = nibbles(w[j], i);
    }
    static __device__ __forceinline__ RowFactors factors(const Words& words) {
        return of_codes(q4_k_factors(words.scales, words.group));
    }
    // Of block 0 to 3.
    static __device__ __forceinline__ RowFactors factors(const Q4kScales& headers, int block) {
        const int shift = 8 * (block & 1);
        return of_codes(q4_k_factors(headers.scales[block >> 1] >> shift,
                                     headers.minima[block >> 1] >> shift, headers.d));
    }
    static __device__ __forceinline__ void dequantize(const Words& words, const Table&,
                                                      uint32_t (&a)[16]) {
        // Float32 where they lie. With 2048 of them tile_counter off, 2^-13 of a scale is lost.
        const Q4kFactors rows = q4_k_factors(words.scales, words.group);
        const float scale[2] = {rows.scale.x, rows.scale.y};
        const float offset[2] = {fmaf(scale[0], -128.0f, -rows.minimum.x),
                                 fmaf(scale[1], -2048.0f, -rows.minimum.y)};
        const uint32_t w[4] = {words.codes.x, words.codes.y, words.codes.z, words.codes.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const uint32_t up_8 = w[j] << 8, down_8 = w[j] >> 8;
            const uint32_t low[4] = {w[j] << 16, up_8, up_8, w[j]};
            const uint32_t high[4] = {w[j], down_8, down_8, w[j] >> 16};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int row = i & 1;
                a[4 * j + i] = bf16_pair(fmaf(scale[row], nibble_of(low[i], row), offset[row]),
                                         fmaf(scale[row], nibble_of(high[i], row), offset[row]));
            }
        }
    }

  private:
    // 128 + code has the minimum and 128 scales too much.
    static __device__ __forceinline__ RowFactors of_codes(const Q4kFactors& factors) {
        const auto [scale, minimum] = factors;
        return {{scale.x, scale.y},
                {fmaf(scale.x, -128.0f, -minimum.x), fmaf(scale.y, -128.0f, -minimum.y)}};
    }
    // Of row g 128 + the nibble from bit 16, of row g + 8 2048 + that from bit 12.
    static __device__ __forceinline__ float nibble_of(uint32_t word, int row) {
        float value;
        asm("lop3.b32 %0, %1, %2, %3, 0xEA;"
            : "=f"(value)
            : "r"(word), "r"(row == 0 ? 0x000F0000u : 0x0000F000u),
              "r"(row == 0 ? 0x43000000u : 0x45000000u));
        return value;
    }
    // 128 + nibble in bfloat16, twice: one operation in assembly, two where the compiler chooses.
    static __device__ __forceinline__ uint32_t nibbles(uint32_t word, int reg) {
        uint32_t pair;
        asm("lop3.b32 %0, %1, %2, %3, 0xEA;"
            : "=r"(pair)
            : "r"(word >> 4 * reg), "r"(0x000F000Fu), "r"(0x43004300u));
        return pair;
    }
};

}  // namespace moe::cuda
