// The grids in the grouped GEMMs (grid.cuh): float32 values scaled and rounded to operands once.
// Scales and zero points come from the records behind a stage's codes. Device only.
#pragma once

#include "libmoe/cuda/dequant/grid_gemv.cuh"
#include "libmoe/cuda/dequant/grouped_codes.cuh"

namespace moe::cuda {

// Codes of 2 to 4 bits. A lane's 16 columns have one record, at shared address `record`.
template <PackedType kind>
struct GroupedGridCodes : GroupedDequantBase<kind> {
    static constexpr int bits = code_bits(kind);
    static constexpr float excess = 128.0f;  // operands and bytes are so much more than the codes
    struct Words {
        uint32_t codes[bits];
        GridFactors<bits> factors;
    };
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t record, uint32_t lane,
                                                 const GridRecords& grid) {
        Words words;
        words.factors.load(grid, record, static_cast<int32_t>(lane >> 2));
        load_shared_codes(codes, lane, words.codes);
        return words;
    }
    static __device__ __forceinline__ RowFactors factors(const Words& words) {
        const float2 scale = words.factors.scales.values(), zero = words.factors.zero_points();
        return {{scale.x, scale.y}, {-scale.x * (excess + zero.x), -scale.y * (excess + zero.y)}};
    }
    // scale * (code - zero) as one product and sum: the sum's rounding is 2^-16 of scale at most.
    template <Operand operand = Operand::bf16>
    static __device__ __forceinline__ void dequantize(const Words& words, const NoTable&,
                                                      uint32_t (&a)[16]) {
        const RowFactors of = factors(words);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = i & 1;
            const uint32_t bytes = codes_of_row<bits>(words.codes, i / 2, row, 0);
            float value[4];
#pragma unroll
            for (int e = 0; e < 4; ++e)
                value[e] = fmaf(byte_over_128(bytes, e), of.of_product[row], of.of_tokens[row]);
            a[4 * (i / 2) + row] = operand_pair<operand>({value[0], value[2]});
            a[4 * (i / 2) + row + 2] = operand_pair<operand>({value[1], value[3]});
        }
    }
};

template <>
struct GroupedDequant<PackedType::grid_2> : GroupedGridCodes<PackedType::grid_2> {};
template <>
struct GroupedDequant<PackedType::grid_3> : GroupedGridCodes<PackedType::grid_3> {};

// For up to eight tokens codes become 128 + code in bfloat16, exactly, and scale and zero point
// multiply accumulators and sums of tokens.
template <>
struct GroupedDequant<PackedType::grid_4> : GroupedGridCodes<PackedType::grid_4> {
    static constexpr bool scales_after = true;
    static constexpr bool has_offset = true;
    static constexpr bool has_superblock_scales = false;
    static constexpr bool groups_apart = false;
    struct Values {
        __device__ __forceinline__ Values(uint32_t, uint32_t, uint32_t) {}
    };
    static __device__ __forceinline__ void spread(const Words& words, const Values&, int j,
                                                  uint32_t* a) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = words.codes[j] >> 4 * i & 0x000F000Fu | 0x43004300u;
    }
};

// A code is byte 1 of the float32 of 2^15, which leaves again with the zero point, exactly.
template <>
struct GroupedDequant<PackedType::grid_8> : GroupedDequantBase<PackedType::grid_8> {
    struct Words {
        uint4 codes[2];
        GridFactors<8> factors;
    };
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t record, uint32_t lane,
                                                 const GridRecords& grid) {
        Words words;
        words.factors.load(grid, record, static_cast<int32_t>(lane >> 2));
        load_byte_codes(codes, lane, words.codes);
        return words;
    }
    template <Operand operand = Operand::bf16>
    static __device__ __forceinline__ void dequantize(const Words& words, const Table&,
                                                      uint32_t (&a)[16]) {
        constexpr float base = 32768.0f;
        const float2 scales = words.factors.scales.values();
        const float2 zeros = words.factors.zero_points();
        const float scale[2] = {scales.x, scales.y};
        const float zero[2] = {base + zeros.x, base + zeros.y};
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const uint32_t bytes = word_of(words.codes[i / 8], i / 2 % 4);
            float value[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const uint32_t bits =
                    permute_bytes(bytes, __float_as_uint(base), 0x7504 + 0x10 * (2 * (i & 1) + e));
                value[e] = (__uint_as_float(bits) - zero[i & 1]) * scale[i & 1];
            }
            a[i] = operand_pair<operand>({value[0], value[1]});
        }
    }
};

template <>
struct GroupedDequant<PackedType::grid_e4m3> : GroupedDequantBase<PackedType::grid_e4m3> {
    struct Words {
        uint4 codes[2];
        GridScaleBits scales;
    };
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t record, uint32_t lane,
                                                 const GridRecords& grid) {
        Words words;
        words.scales.load(grid, record, static_cast<int32_t>(lane >> 2));
        load_byte_codes(codes, lane, words.codes);
        return words;
    }
    template <Operand operand = Operand::bf16>
    static __device__ __forceinline__ void dequantize(const Words& words, const Table&,
                                                      uint32_t (&a)[16]) {
        const float2 scale = words.scales.values();
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const uint32_t word = word_of(words.codes[i / 8], i / 2 % 4);
            const float2 pair = two_f16_values(f16_of_e4m3(word, i & 1));
            const float of_row = i & 1 ? scale.y : scale.x;
            a[i] = operand_pair<operand>({pair.x * of_row, pair.y * of_row});
        }
    }
};

template <>
struct GroupedDequant<PackedType::grid_codebook> : GroupedDequantBase<PackedType::grid_codebook> {
    using Table = CodebookTable<4>;
    using Values = UnscaledValues<4>;
    static constexpr bool table_in_memory = true;
    static constexpr bool scales_after = true;
    static constexpr bool has_offset = false;
    static constexpr bool has_superblock_scales = false;
    static constexpr bool groups_apart = false;
    struct Words {
        uint32_t codes[4];
        GridScaleBits scales;
    };
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t record, uint32_t lane,
                                                 const GridRecords& grid) {
        Words words;
        words.scales.load(grid, record, static_cast<int32_t>(lane >> 2));
        load_shared_codes(codes, lane, words.codes);
        return words;
    }
    static __device__ __forceinline__ void spread(const Words& words, const Values& values, int j,
                                                  uint32_t* a) {
        values.step(words.codes, j, a);
    }
    static __device__ __forceinline__ RowFactors factors(const Words& words) {
        const float2 scale = words.scales.values();
        return {{scale.x, scale.y}, {}};
    }
    template <Operand operand = Operand::bf16>
    static __device__ __forceinline__ void dequantize(const Words& words, const Table& table,
                                                      uint32_t (&a)[16]) {
        const RowFactors of = factors(words);
        dequantize_by_loads<4, operand>(words.codes, of.of_product, table.at, a);
    }
};

}  // namespace moe::cuda
