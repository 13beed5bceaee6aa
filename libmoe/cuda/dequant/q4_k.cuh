// q4_k of ggml: 4-bit codes; 16 bytes of scales per row and 256 k behind the codes of four blocks:
// a 6-bit scale and minimum per 32 k, float16 factors of both. Used by all kernels; gemv multiplies
// nibbles as bytes.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"
#if defined(__CUDACC__)
#include "libmoe/cuda/dequant/code_bytes.cuh"
#include "libmoe/cuda/dequant/grouped_blocks.cuh"
#include "libmoe/cuda/dequant/q4_k_scales.cuh"
#endif

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::q4_k> : AffineValueDequant<PackedType::q4_k> {};

#if defined(__CUDACC__)

// Nibbles serve as bytes where they lie.
template <>
struct GemvDequant<PackedType::q4_k> : GemvSuperblockBytes<PackedType::q4_k, Q4kRowScales> {};

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
    // Lanes with t = 2, 3 have the second group of 32 k of the block.
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t headers, uint32_t lane,
                                                 uint32_t block) {
        return {load_shared_16(codes + 16 * lane),
                {load_shared_16(headers + 16 * (lane >> 2)),
                 load_shared_16(headers + 16 * (lane >> 2) + 128)},
                2 * block + (lane >> 1 & 1)};
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
    // The factors of block 0 to 3.
    static __device__ __forceinline__ RowFactors factors(const Q4kScales& headers, int block) {
        const int shift = 8 * (block & 1);
        return of_codes(q4_k_factors(headers.scales[block >> 1] >> shift,
                                     headers.minima[block >> 1] >> shift, headers.d));
    }
    template <Operand operand = Operand::bf16>
    static __device__ __forceinline__ void dequantize(const Words& words, const Table&,
                                                      uint32_t (&a)[16]) {
        // Nibbles become float32 where they lie: 128 + nibble, or 2048 + nibble, whose subtraction
        // loses 2^-13 of a scale.
        const RowAffine rows = q4_k_factors(words.scales, words.group);
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
                a[4 * j + i] =
                    operand_pair<operand>({fmaf(scale[row], nibble_of(low[i], row), offset[row]),
                                           fmaf(scale[row], nibble_of(high[i], row), offset[row])});
            }
        }
    }

  private:
    // Operands are 128 + nibble, so that sums of tokens take off the minimum and 128 scales.
    static __device__ __forceinline__ RowFactors of_codes(const RowAffine& factors) {
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
