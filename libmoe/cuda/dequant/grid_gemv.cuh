// The grids in gemv (grid.cuh): bytes of integer codes, e4m3 and values of a codebook as float16.
// A weight is scale * (code - zero): the sum of code times x and that of x are exact integers, and
// scale and scale * zero multiply them. Scales and zero points of every kind come from the records
// behind a stage's codes (grid_records.hpp). Device only.
#pragma once

#include "libmoe/cuda/dequant/code_bytes.cuh"
#include "libmoe/cuda/dequant/e4m3.cuh"
#include "libmoe/cuda/dequant/grid_records.hpp"
#include "libmoe/cuda/dequant/kbit.cuh"

namespace moe::cuda {

// A k_block of a grid in a stage.
struct GridKBlock {
    uint32_t codes;        // shared address
    uint32_t tile;         // shared address that the tile would have, by its records in the stage
    int32_t first_column;  // of the matrix
    const GridRecords& grid;

    // The record of a lane's two columns of mma, in n blocks from `block` on.
    __device__ __forceinline__ uint32_t record(int32_t block, int32_t lane, int32_t n) const {
        const int32_t column =
            first_column + 64 * (block + column_block(lane, n)) + 32 * (lane & 1);
        return tile + static_cast<uint32_t>(grid.record(column));
    }
};

// The scales of rows g and g + 8 as they came. Their type is known at run time alone. Those of one
// byte are apart; the others need no branch, across which the compiler would move nothing.
struct GridScaleBits {
    uint2 bits;
    GridScale type;

    __device__ __forceinline__ void load(const GridRecords& grid, uint32_t record, int32_t g) {
        type = grid.scale;
        const uint32_t offset = static_cast<uint32_t>(grid.pair_bytes * g);
        const uint2 both = load_shared_8(record + (offset & ~7u));
        bits = {(offset & 4 ? both.y : both.x) >> 8 * (offset & 3), both.y};
    }
    __device__ __forceinline__ float2 values() const {
        if (type == GridScale::e8m0)
            return {e8m0_to_f32(static_cast<uint8_t>(bits.x)),
                    e8m0_to_f32(static_cast<uint8_t>(bits.x >> 8))};
        if (type == GridScale::e4m3) return two_f16_values(f16_of_e4m3(bits.x, 0));
        const float2 of_f16 = two_f16_values(bits.x);
        const bool is_f32 = type == GridScale::f32, is_f16 = type == GridScale::f16;
        const uint32_t low = is_f32 ? bits.x : bits.x << 16;
        const uint32_t high = is_f32 ? bits.y : bits.x & 0xFFFF0000u;
        return {is_f16 ? of_f16.x : __uint_as_float(low),
                is_f16 ? of_f16.y : __uint_as_float(high)};
    }
};

// Their zero points: nibbles of a byte where codes have up to four bits, else two bytes.
template <int bits>
struct GridZeroBits {
    uint32_t both;

    __device__ __forceinline__ void load(const GridRecords& grid, uint32_t record, int32_t g) {
        const uint32_t zeros = record + grid.zeros_offset;
        both =
            (bits <= 4 ? load_shared_1(zeros + g) : load_shared_2(zeros + 2 * g)) & grid.zeros_mask;
    }
    static constexpr int width = bits <= 4 ? 4 : 8;
    __device__ __forceinline__ uint2 codes(const GridRecords& grid) const {
        const auto more = static_cast<uint32_t>(grid.zero_offset);
        return {(both & ((1u << width) - 1)) + more, (both >> width) + more};
    }
    __device__ __forceinline__ float2 values(const GridRecords& grid) const {
        const uint32_t low = both & ((1u << width) - 1), high = both >> width;
        // 2^15 + zero has it in bits 8 to 15 of the float32.
        const auto more = static_cast<float>(grid.zero_offset) - 32768.0f;
        return {__uint_as_float(0x47000000u | low << 8) + more,
                __uint_as_float(0x47000000u | high << 8) + more};
    }
};

// A lane's part of a record.
template <int bits>
struct GridFactors {
    GridScaleBits scales;
    GridZeroBits<bits> zeros;
    const GridRecords* grid;

    // g: the row of the tile.
    __device__ __forceinline__ void load(const GridRecords& records, uint32_t record, int32_t g) {
        grid = &records;
        scales.load(records, record, g);
        zeros.load(records, record, g);
    }
    __device__ __forceinline__ float2 zero_points() const { return zeros.values(*grid); }
    __device__ __forceinline__ uint2 zero_codes() const { return zeros.codes(*grid); }
    __device__ __forceinline__ RowAffine affine() const {
        const float2 scale = scales.values(), zero = zero_points();
        return {scale, {scale.x * zero.x, scale.y * zero.y}};
    }
};

// Common to all grids, instead of the defaults of a type.
template <class Base>
struct GridDequant : Base {
    using KBlock = GridKBlock;
    struct GroupScales {
        __device__ __forceinline__ GroupScales(const GridKBlock&, int32_t, int32_t) {}
    };
};

// Codes of 2 to 4 bits.
template <PackedType kind>
struct GridCodeBytes : GridDequant<GemvCodeBytes<kind, 32>> {
    using Base = GemvCodeBytes<kind, 32>;
    template <int n>
    struct Words : Base::template Codes<n> {
        GridFactors<code_bits(kind)> factors;
    };
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, const GridKBlock& k_block,
                                                int32_t block, int32_t lane) {
        words.factors.load(k_block.grid, k_block.record(block, lane, n), lane >> 2);
        Base::load_codes(words, k_block.codes, block, lane);
    }
    template <int n>
    static __device__ __forceinline__ RowAffine factors(const Words<n>& words) {
        return Base::of_operands(words.factors.affine());
    }
};

template <>
struct GemvDequant<PackedType::grid_2> : GridCodeBytes<PackedType::grid_2> {};
template <>
struct GemvDequant<PackedType::grid_3> : GridCodeBytes<PackedType::grid_3> {};
template <>
struct GemvDequant<PackedType::grid_4> : GridCodeBytes<PackedType::grid_4> {};

template <>
struct GemvDequant<PackedType::grid_8> : GridDequant<GemvDequantBase<PackedType::grid_8>> {
    using Operand = Bytes<false>;
    static constexpr uint32_t ones = 0x01010101u;
    using Factors = RowAffine;
    template <int n>
    struct Words : GemvByteCodes<n> {
        GridFactors<8> factors;
    };
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, const GridKBlock& k_block,
                                                int32_t block, int32_t lane) {
        words.factors.load(k_block.grid, k_block.record(block, lane, n), lane >> 2);
        words.GemvByteCodes<n>::load(k_block.codes + block * min_split_bytes, min_split_bytes,
                                     lane);
    }
    template <int n>
    static __device__ __forceinline__ void two_steps(const Words<n>& words, int i, uint32_t,
                                                     uint32_t (&a)[4]) {
        words.two_steps(i, a);
    }
    template <int n>
    static __device__ __forceinline__ RowAffine factors(const Words<n>& words) {
        return words.factors.affine();
    }
};

template <>
struct GemvDequant<PackedType::grid_e4m3> : GridDequant<GemvDequantBase<PackedType::grid_e4m3>> {
    using Operand = F16;
    template <int n>
    struct Words : GemvByteCodes<n> {
        GridScaleBits scales;
    };
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, const GridKBlock& k_block,
                                                int32_t block, int32_t lane) {
        words.scales.load(k_block.grid, k_block.record(block, lane, n), lane >> 2);
        words.GemvByteCodes<n>::load(k_block.codes + block * min_split_bytes, min_split_bytes,
                                     lane);
    }
    template <int n>
    static __device__ __forceinline__ void step(const Words<n>& words, int j, uint32_t,
                                                uint32_t (&a)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = f16_of_e4m3(words.word(j, i / 2), i % 2);
    }
    template <int n>
    static __device__ __forceinline__ RowScales factors(const Words<n>& words) {
        const float2 scale = words.scales.values();
        return {scale.x, scale.y};
    }
};

template <CodebookMode mode>
struct GemvDequant<PackedType::grid_codebook, mode>
    : GridDequant<GemvCodebookCodes<PackedType::grid_codebook, mode>> {
    using Base = GemvCodebookCodes<PackedType::grid_codebook, mode>;
    template <int n>
    struct Words : Base::template Codes<n> {
        GridScaleBits scales;
    };
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, const GridKBlock& k_block,
                                                int32_t block, int32_t lane) {
        words.scales.load(k_block.grid, k_block.record(block, lane, n), lane >> 2);
        Base::load_codes(words, k_block.codes + block * Base::min_split_bytes, lane);
    }
    template <int n>
    static __device__ __forceinline__ RowScales factors(const Words<n>& words) {
        const float2 scale = words.scales.values();
        return {scale.x, scale.y};
    }
};

}  // namespace moe::cuda
