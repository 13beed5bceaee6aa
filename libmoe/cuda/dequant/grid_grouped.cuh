// The grids in the grouped GEMMs (grid.cuh). Scales and zero points come from the records behind a
// stage's codes. Device only.
#pragma once

#include "libmoe/cuda/dequant/grid_gemv.cuh"
#include "libmoe/cuda/dequant/grouped_codes.cuh"

namespace moe::cuda {

// A lane's 16 columns have one record, which serves all blocks of its group: scales of rows g and
// g + 8, and the codes that are zero.
template <int bits>
struct GridKeptCodeScales {
    float2 scale;
    uint2 zero;

    // record: a shared address.
    __device__ __forceinline__ void load(const GridRecords& grid, uint32_t record, uint32_t lane) {
        GridFactors<bits> factors;
        factors.load(grid, record, static_cast<int32_t>(lane >> 2));
        scale = factors.scales.values();
        zero = factors.zero_codes();
    }
};
struct GridKeptScales {
    float2 scale;

    __device__ __forceinline__ void load(const GridRecords& grid, uint32_t record, uint32_t lane) {
        GridScaleBits bits;
        bits.load(grid, record, static_cast<int32_t>(lane >> 2));
        scale = bits.values();
    }
};

// Codes of 2 to 4 bits.
template <PackedType kind>
struct GroupedGridCodes : GroupedCodeBase<kind> {
    static constexpr int bits = code_bits(kind);
    using KeptScales = GridKeptCodeScales<bits>;
    struct Words {
        uint32_t codes[bits];
        KeptScales scales;
    };
    static __device__ __forceinline__ Words load(uint32_t codes, const KeptScales& scales,
                                                 uint32_t lane) {
        Words words;
        words.scales = scales;
        load_shared_codes(codes, lane, words.codes);
        return words;
    }
    template <Operand operand = Operand::bf16>
    static __device__ __forceinline__ void dequantize(const Words& words, const NoTable&,
                                                      uint32_t (&a)[16]) {
        constexpr bool are_nibbles = bits == 4;
        const auto [scale, zero] = words.scales;
        const CodeOperands<operand> rows[2] = {{scale.x, zero.x, 1},
                                               {scale.y, zero.y, are_nibbles ? nibble_unit[1] : 1}};
        if constexpr (are_nibbles) return dequantize_nibbles(words.codes, rows, a);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = i & 1;
            const uint32_t bytes = codes_of_row<bits>(words.codes, i / 2, row, 0);
            a[4 * (i / 2) + row] = rows[row].even(bytes);
            a[4 * (i / 2) + row + 2] = rows[row].odd(bytes);
        }
    }
};

template <>
struct GroupedDequant<PackedType::grid_2> : GroupedGridCodes<PackedType::grid_2> {};
template <>
struct GroupedDequant<PackedType::grid_3> : GroupedGridCodes<PackedType::grid_3> {};

template <>
struct GroupedDequant<PackedType::grid_4> : GroupedGridCodes<PackedType::grid_4> {};

template <>
struct GroupedDequant<PackedType::grid_8> : GroupedCodeBase<PackedType::grid_8> {
    using KeptScales = GridKeptCodeScales<8>;
    struct Words {
        uint4 codes[2];
        KeptScales scales;
    };
    static __device__ __forceinline__ Words load(uint32_t codes, const KeptScales& scales,
                                                 uint32_t lane) {
        Words words;
        words.scales = scales;
        load_byte_codes(codes, lane, words.codes);
        return words;
    }
    template <Operand operand = Operand::bf16>
    static __device__ __forceinline__ void dequantize(const Words& words, const Table&,
                                                      uint32_t (&a)[16]) {
        const auto [scale, zero] = words.scales;
        const CodeOperands<operand> rows[2] = {{scale.x, zero.x}, {scale.y, zero.y}};
#pragma unroll
        for (int i = 0; i < 16; ++i)
            a[i] = rows[i & 1].adjacent(word_of(words.codes[i / 8], i / 2 % 4), i & 1);
    }
};

template <>
struct GroupedDequant<PackedType::grid_e4m3> : GroupedDequantBase<PackedType::grid_e4m3> {
    using KeptScales = GridKeptScales;
    struct Words {
        uint4 codes[2];
        KeptScales scales;
    };
    static __device__ __forceinline__ Words load(uint32_t codes, const KeptScales& scales,
                                                 uint32_t lane) {
        Words words;
        words.scales = scales;
        load_byte_codes(codes, lane, words.codes);
        return words;
    }
    template <Operand operand = Operand::bf16>
    static __device__ __forceinline__ void dequantize(const Words& words, const Table&,
                                                      uint32_t (&a)[16]) {
        const float2 scale = words.scales.scale;
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
    using KeptScales = GridKeptScales;
    struct Words {
        uint32_t codes[4];
        KeptScales scales;
    };
    static __device__ __forceinline__ Words load(uint32_t codes, const KeptScales& scales,
                                                 uint32_t lane) {
        Words words;
        words.scales = scales;
        load_shared_codes(codes, lane, words.codes);
        return words;
    }
    static __device__ __forceinline__ void spread(const Words& words, const Values& values, int j,
                                                  uint32_t* a) {
        values.step(words.codes, j, a);
    }
    static __device__ __forceinline__ RowFactors factors(const Words& words) {
        const float2 scale = words.scales.scale;
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
