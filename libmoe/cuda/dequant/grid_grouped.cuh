// The grids in the grouped GEMMs (grid.cuh). Scales and zero points come from the records of a
// stage's units. Device only.
#pragma once

#include "libmoe/cuda/dequant/grid_gemv.cuh"
#include "libmoe/cuda/dequant/grouped_codes.cuh"

namespace moe::cuda {

// A lane's 16 columns have one record, which serves all blocks of its group.
struct GridKeptScales {
    float2 scale;  // of rows g and g + 8

    // record: a shared address.
    __device__ __forceinline__ void load(const GridRecords& grid, uint32_t record, uint32_t lane) {
        GridScaleBits<GridForm::any> bits;
        bits.load(grid, record, static_cast<int32_t>(lane >> 2));
        scale = bits.values();
    }
    __device__ __forceinline__ RowFactors factors() const { return {{scale.x, scale.y}, {}}; }
};

// Codes of 2, 3, 4 and 8 bits. What is kept of a record is what its codes are multiplied by.
template <PackedType kind, Operand operand_>
struct GroupedGridIntegers : GroupedCodeBase<kind> {
    static constexpr int bits = code_bits(kind);
    static constexpr Operand operand = operand_;
    static constexpr float residual_scale = CodeOperands<operand>::residual;
    static constexpr bool scales_after = true;
    static constexpr bool has_offset = false;
    static constexpr bool has_superblock_scales = false;
    static constexpr bool groups_apart = false;
    static constexpr int upper_unit = bits == 4 ? nibble_unit[1] : 1;
    using Values = NoValues;
    struct Words {
        uint32_t codes[bits];
    };
    struct KeptScales {
        CodeOperands<operand> rows[2];

        __device__ __forceinline__ void load(const GridRecords& grid, uint32_t record,
                                             uint32_t lane) {
            GridFactors<bits> factors;
            factors.load(grid, record, static_cast<int32_t>(lane >> 2));
            const float2 scale = factors.scales.values_by_type();
            const uint2 zero = factors.zero_codes();
            rows[0] = {scale.x, zero.x};
            rows[1] = {scale.y, zero.y, upper_unit};
        }
    };
    struct LevelScales {
        CodeLevels<operand> rows[2];
        float2 factor;

        __device__ __forceinline__ void load(const GridRecords& grid, uint32_t record,
                                             uint32_t lane) {
            GridFactors<bits> factors;
            factors.load(grid, record, static_cast<int32_t>(lane >> 2));
            const float2 scale = factors.scales.values_by_type();
            const uint2 zero = factors.zero_codes();
            rows[0] = CodeLevels<operand>(zero.x);
            rows[1] = CodeLevels<operand>(zero.y, upper_unit);
            factor = {CodeLevels<operand>::factor(scale.x),
                      CodeLevels<operand>::factor(scale.y, upper_unit)};
        }
        __device__ __forceinline__ RowFactors factors() const { return {{factor.x, factor.y}, {}}; }
    };
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t lane) {
        Words words;
        if constexpr (bits == 8) {
            uint4 both[2];
            load_byte_codes(codes, lane, both);
#pragma unroll
            for (int i = 0; i < 8; ++i) words.codes[i] = word_of(both[i / 4], i % 4);
        } else {
            load_shared_codes(codes, lane, words.codes);
        }
        return words;
    }
    static __device__ __forceinline__ void dequantize(const Words& words, const KeptScales& kept,
                                                      const NoTable&, uint32_t (&a)[16]) {
#pragma unroll
        for (int j = 0; j < 4; ++j) step(words, kept.rows, j, a + 4 * j);
    }
    static __device__ __forceinline__ void spread(const Words& words, const Values&,
                                                  const LevelScales& scales, int j, uint32_t* a) {
        step(words, scales.rows, j, a);
    }

  private:
    template <class Codes>
    static __device__ __forceinline__ void step(const Words& words, const Codes (&rows)[2], int j,
                                                uint32_t* a) {
        if constexpr (bits == 4) {
            nibble_step(words.codes[j], rows, a);
        } else {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                if constexpr (bits == 8) {
                    a[i] = rows[i].adjacent(words.codes[2 * j], i);
                    a[i + 2] = rows[i].adjacent(words.codes[2 * j + 1], i);
                } else {
                    const uint32_t bytes = codes_of_row<bits>(words.codes, j, i, 0);
                    a[i] = rows[i].even(bytes);
                    a[i + 2] = rows[i].odd(bytes);
                }
            }
        }
    }
};

template <PackedType kind>
concept GridOfIntegers = kind == PackedType::grid_2 || kind == PackedType::grid_3 ||
                         kind == PackedType::grid_4 || kind == PackedType::grid_8;

template <PackedType kind>
requires GridOfIntegers<kind>
struct GroupedDequant<kind> : GroupedGridIntegers<kind, Operand::bf16> {
};
template <PackedType kind>
requires GridOfIntegers<kind>
struct InF16<GroupedDequant<kind>> : GroupedGridIntegers<kind, Operand::f16> {
};

template <>
struct GroupedDequant<PackedType::grid_e4m3> : GroupedDequantBase<PackedType::grid_e4m3> {
    using KeptScales = GridKeptScales;
    struct Words {
        uint4 codes[2];
    };
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t lane) {
        Words words;
        load_byte_codes(codes, lane, words.codes);
        return words;
    }
    template <Operand operand = Operand::bf16>
    static __device__ __forceinline__ void dequantize(const Words& words, const KeptScales& kept,
                                                      const Table&, uint32_t (&a)[16]) {
        const float2 scale = kept.scale;
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const uint32_t word = word_of(words.codes[i / 8], i / 2 % 4);
            const float2 pair = two_f16_values(f16_of_e4m3(word, i & 1));
            const float of_row = i & 1 ? scale.y : scale.x;
            a[i] = operand_pair<operand>({pair.x * of_row, pair.y * of_row});
        }
    }
};

template <Operand operand_>
struct GroupedGridCodebook : GroupedDequantBase<PackedType::grid_codebook> {
    static constexpr Operand operand = operand_;
    using Table = CodebookTable<4>;
    using Values = UnscaledValues<4, operand>;
    static constexpr bool table_in_memory = true;
    static constexpr bool scales_after = true;
    static constexpr bool has_offset = false;
    static constexpr bool has_superblock_scales = false;
    static constexpr bool groups_apart = false;
    using KeptScales = GridKeptScales;
    using LevelScales = GridKeptScales;
    struct Words {
        uint32_t codes[4];
    };
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t lane) {
        Words words;
        load_shared_codes(codes, lane, words.codes);
        return words;
    }
    static __device__ __forceinline__ void spread(const Words& words, const Values& values,
                                                  const LevelScales&, int j, uint32_t* a) {
        values.step(words.codes, j, a);
    }
    static __device__ __forceinline__ void dequantize(const Words& words, const KeptScales& kept,
                                                      const Table& table, uint32_t (&a)[16]) {
        dequantize_by_loads<4, operand>(words.codes, {kept.scale.x, kept.scale.y}, table.at, a);
    }
};

template <>
struct GroupedDequant<PackedType::grid_codebook> : GroupedGridCodebook<Operand::bf16> {};
template <>
struct InF16<GroupedDequant<PackedType::grid_codebook>> : GroupedGridCodebook<Operand::f16> {};

}  // namespace moe::cuda
