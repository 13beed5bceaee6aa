// q4_k of ggml: 4-bit codes; 16 bytes of scales per row and 256 k behind the codes of four blocks:
// a 6-bit scale and minimum per 32 k, float16 factors of both. Used by all kernels; gemv multiplies
// nibbles as bytes.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"
#if defined(__CUDACC__)
#include "libmoe/cuda/dequant/gemv_blocks.cuh"
#include "libmoe/cuda/dequant/grouped_blocks.cuh"
#endif

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::q4_k> : AffineValueDequant<PackedType::q4_k> {};

#if defined(__CUDACC__)

// Of rows g and g + 8: a group of 32 multiplies its nibbles by `scale` and subtracts `minimum`.
struct Q4kFactors {
    float2 scale, minimum;
};

// The superblock scales of both rows. Codes of scales and minima are in the lower six bits of
// bytes: [0] those of groups 0 to 3, [1] those of groups 4 to 7, whose upper two bits ggml keeps
// apart. The codes of both rows lie in the two halves of a register and become float16 there,
// exactly.
struct Q4kScales {
    uint32_t scales[2], minima[2];
    uint32_t d[2];  // of a row: float16 factors of its scales and of its minima

    // rows: the 16 bytes of each row. selector: the bytes of the groups that the lane needs: 0 to 3
    // of row g, 4 to 7 of row g + 8.
    __device__ __forceinline__ Q4kScales(const uint4 (&rows)[2], uint32_t selector)
        : d{rows[0].x, rows[1].x} {
        scales[0] = permute_bytes(rows[0].y, rows[1].y, selector);
        minima[0] = permute_bytes(rows[0].z, rows[1].z, selector);
        const uint32_t low = permute_bytes(rows[0].w, rows[1].w, selector);
        scales[1] = (low & 0x0F0F0F0Fu) | (scales[0] >> 2 & 0x30303030u);
        minima[1] = (low >> 4 & 0x0F0F0F0Fu) | (minima[0] >> 2 & 0x30303030u);
    }
};

// The lower six bits of the half-words of `codes`, as float32.
__device__ __forceinline__ float2 six_bits(uint32_t codes) {
    const uint32_t over_1024 = (codes & 0x003F003Fu) | 0x64006400u;
    const __half2 base = __float2half2_rn(1024.0f);
    return __half22float2(__hsub2(reinterpret_cast<const __half2&>(over_1024), base));
}

// Codes of row g in the lower half-word, of row g + 8 in the upper one; d as in Q4kScales.
__device__ __forceinline__ Q4kFactors q4_k_factors(uint32_t scales, uint32_t minima,
                                                   const uint32_t (&d)[2]) {
    const float2 scale = six_bits(scales);
    const float2 minimum = six_bits(minima);
    const float2 of[2] = {__half22float2(reinterpret_cast<const __half2&>(d[0])),
                          __half22float2(reinterpret_cast<const __half2&>(d[1]))};
    return {{of[0].x * scale.x, of[1].x * scale.y}, {of[0].y * minimum.x, of[1].y * minimum.y}};
}

// Of one group, 0 to 7.
__device__ __forceinline__ Q4kFactors q4_k_factors(const uint4 (&rows)[2], uint32_t group) {
    const Q4kScales codes(rows, (group & 3) * 0x0101u + 0x0400u);
    return q4_k_factors(group < 4 ? codes.scales[0] : codes.scales[1],
                        group < 4 ? codes.minima[0] : codes.minima[1], codes.d);
}

// Nibbles serve as bytes where they lie. Those of rows g + 8 lie four bits further up, so that
// their scale is a sixteenth.
template <>
struct GemvDequant<PackedType::q4_k> : GemvDequantBase<PackedType::q4_k> {
    using Operand = Bytes<false>;
    static constexpr int32_t min_split = 4;
    static constexpr int32_t min_split_bytes = 4 * block_bytes(type, 4);
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
    // Of two blocks a lane has group lane % 4 of four.
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
    static __device__ __forceinline__ Q4kFactors factors(const GroupScales& of_256, int32_t block) {
        const bool late = block & 2;
        Q4kFactors of = q4_k_factors(late ? of_256.scales[1] : of_256.scales[0],
                                     late ? of_256.minima[1] : of_256.minima[0], of_256.d);
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

template <>
struct GroupedDequant<PackedType::q4_k> : GroupedDequantBase<PackedType::q4_k> {
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
        const uint4 of_rows[2] = {load_shared_16(rows), load_shared_16(rows + 128)};
        return {of_rows, 0x6420u + 0x1111u * (lane >> 1 & 1)};
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
        // Nibbles become float32 where they lie: 128 + nibble, or 2048 + nibble, whose subtraction
        // loses 2^-13 of a scale.
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
    // Operands are 128 + nibble, so that sums of tokens take off the minimum and 128 scales.
    static __device__ __forceinline__ RowFactors of_codes(const Q4kFactors& factors) {
        const auto [scale, minimum] = factors;
        return {{scale.x, scale.y},
                {fmaf(scale.x, -128.0f, -minimum.x), fmaf(scale.y, -128.0f, -minimum.y)}};
    }
    // Row g: 128 + the nibble at bit 16. Row g + 8: 2048 + the nibble at bit 12.
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

#endif

}  // namespace moe::cuda
