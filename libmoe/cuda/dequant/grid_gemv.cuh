// The grids in gemv (grid.cuh): bytes of integer codes, e4m3 and values of a codebook as float16.
// A weight is scale * (code - zero): the sum of code times x and that of x are exact integers, and
// the scale multiplies their difference. Scales and zero points come from the records of a stage's
// units (grid_records.hpp), or where each block is a unit from before its codes. Device only.
#pragma once

#include "libmoe/cuda/dequant/code_bytes.cuh"
#include "libmoe/cuda/dequant/e4m3.cuh"
#include "libmoe/cuda/dequant/grid_records.hpp"
#include "libmoe/cuda/dequant/kbit.cuh"

namespace moe::cuda {

// A k_block of a grid in a stage.
struct GridKBlock {
    uint32_t tile;           // shared address that the tile would have, by its blocks in the stage
    uint32_t first_records;  // that of the records of the first block
    int32_t first_block;     // of the matrix
    const GridRecords& grid;

    __device__ __forceinline__ uint32_t codes(int32_t block) const {
        return tile + static_cast<uint32_t>(grid.codes(first_block + block));
    }
    // The record of a lane's two columns of mma, in n blocks from `block` on.
    __device__ __forceinline__ uint32_t record(int32_t block, int32_t lane, int32_t n) const {
        const int32_t at = first_block + block + column_block(lane, n);
        return (grid.begins_before(at, first_block)
                    ? first_records
                    : tile + static_cast<uint32_t>(grid.records(at))) +
               static_cast<uint32_t>(grid.record(2 * (lane & 1)));
    }
};

// Kernels for scales of one type have less to load before their first mma. `any` is all of them.
// f32_by_block: float32 for groups of 64, as NF4 has them, so that each block is a unit and blocks
// are alike.
enum class GridForm : int8_t { any, f16, bf16, f32, e8m0, f32_by_block };

constexpr bool has_grid_form(PackedType type, GridForm form) {
    switch (form) {
        case GridForm::f16:
            return grid_scale_of(type) == GridScale::f16;
        case GridForm::bf16:
            return grid_scale_of(type) == GridScale::bf16;
        case GridForm::f32:
            return grid_scale_of(type) == GridScale::f32;
        case GridForm::e8m0:
            return grid_scale_of(type) == GridScale::e8m0;
        case GridForm::f32_by_block:
            return has_codebook(type) && grid_scale_of(type) == GridScale::f32 &&
                   grid_group(type) == 64;
        default:
            return true;
    }
}

// The scales of rows g and g + 8 as they came.
template <GridForm form>
struct GridScaleBits {
    uint2 bits;

    __device__ __forceinline__ void load(const GridRecords&, uint32_t record, int32_t g) {
        if constexpr (form == GridForm::f32)
            bits = load_shared_8(record + 8 * static_cast<uint32_t>(g));
        else if constexpr (form == GridForm::e8m0)
            bits.x = load_shared_2(record + 2 * static_cast<uint32_t>(g));
        else
            bits.x = load_shared_4(record + 4 * static_cast<uint32_t>(g));
    }
    __device__ __forceinline__ float2 values() const {
        if constexpr (form == GridForm::f32)
            return {__uint_as_float(bits.x), __uint_as_float(bits.y)};
        else if constexpr (form == GridForm::f16)
            return two_f16_values(bits.x);
        else if constexpr (form == GridForm::e8m0)
            return {e8m0_to_f32(static_cast<uint8_t>(bits.x)),
                    e8m0_to_f32(static_cast<uint8_t>(bits.x >> 8))};
        else
            return {__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xFFFF0000u)};
    }
};

// Their type is known at run time alone. Those of one byte are apart; the others need no branch,
// across which the compiler would move nothing.
template <>
struct GridScaleBits<GridForm::any> {
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
    // The same where there are branches already.
    __device__ __forceinline__ float2 values_by_type() const {
        switch (type) {
            case GridScale::f16:
                return GridScaleBits<GridForm::f16>{bits}.values();
            case GridScale::bf16:
                return GridScaleBits<GridForm::bf16>{bits}.values();
            case GridScale::f32:
                return GridScaleBits<GridForm::f32>{bits}.values();
            default:
                return values();
        }
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
    // Operands have them as GemvCodeBytes has codes: nibbles of row g + 8 are 16 times as large.
    __device__ __forceinline__ int2 of_operands(const GridRecords& grid) const {
        if constexpr (bits <= 4)
            return {static_cast<int32_t>(both & 0x0F) + grid.zero_offset,
                    static_cast<int32_t>(both & 0xF0) + 16 * grid.zero_offset};
        return {static_cast<int32_t>(both & 0xFF) + grid.zero_offset,
                static_cast<int32_t>(both >> 8) + grid.zero_offset};
    }
};

// A lane's part of a record.
template <int bits, GridForm form = GridForm::any>
struct GridFactors {
    GridScaleBits<form> scales;
    GridZeroBits<bits> zeros;
    const GridRecords* grid;

    // g: the row of the tile.
    __device__ __forceinline__ void load(const GridRecords& records, uint32_t record, int32_t g) {
        grid = &records;
        scales.load(records, record, g);
        zeros.load(records, record, g);
    }
    __device__ __forceinline__ uint2 zero_codes() const { return zeros.codes(*grid); }
};

// Scales of rows g and g + 8, and the codes that are zero.
struct GridRowFactors {
    float2 scale;
    int2 zero;
};

template <int bits, int n>
__device__ __forceinline__ void load_grid_codes(uint32_t (&words)[n][bits],
                                                const GridKBlock& k_block, int32_t block,
                                                int32_t lane) {
#pragma unroll
    for (int i = 0; i < n; ++i) load_shared_codes<bits>(k_block.codes(block + i), lane, words[i]);
}
template <int n>
__device__ __forceinline__ void load_grid_bytes(GemvByteCodes<n>& words, const GridKBlock& k_block,
                                                int32_t block, int32_t lane) {
    const uint32_t first = k_block.codes(block);
    const uint32_t stride = n == 1 ? 0 : k_block.codes(block + 1) - first;
    words.load(first, static_cast<int32_t>(stride), lane);
}

// Common to grids that bring records, instead of the defaults of a type.
template <class Base, GridForm own_form>
struct GridDequant : Base {
    static constexpr GridForm form = own_form;
    using KBlock = GridKBlock;
    struct GroupScales {
        __device__ __forceinline__ GroupScales(const GridKBlock&, int32_t, int32_t) {}
    };
    using Base::add;
    // Differences of codes and zero points are whole numbers until the scale.
    static __device__ __forceinline__ void add(const GridRowFactors& factors, const int32_t (&c)[4],
                                               const int32_t (&x)[4], float (&acc)[2]) {
        const int32_t x_sum = 256 * x[0] + x[1];
        const int32_t first = 256 * c[0] + c[1] - factors.zero.x * x_sum;
        const int32_t second = 256 * c[2] + c[3] - factors.zero.y * x_sum;
        acc[0] = fmaf(factors.scale.x, static_cast<float>(first), acc[0]);
        acc[1] = fmaf(factors.scale.y, static_cast<float>(second), acc[1]);
    }
};

// GemvDequant of a grid with scales of a form.
template <PackedType kind, GridForm form, CodebookMode mode = CodebookMode::none>
struct GemvGrid;

// Codes of 2 to 4 bits.
template <PackedType kind, GridForm form>
requires(code_bits(kind) <= 4 && !has_codebook(kind)) struct GemvGrid<kind, form>
    : GridDequant<GemvCodeBytes<kind, 32>, form> {
    using Base = GemvCodeBytes<kind, 32>;
    using Factors = GridRowFactors;
    template <int n>
    struct Words : Base::template Codes<n> {
        GridFactors<code_bits(kind), form> factors;
    };
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, const GridKBlock& k_block,
                                                int32_t block, int32_t lane) {
        words.factors.load(k_block.grid, k_block.record(block, lane, n), lane >> 2);
        load_grid_codes<Base::bits>(words.codes, k_block, block, lane);
    }
    template <int n>
    static __device__ __forceinline__ GridRowFactors factors(const Words<n>& words) {
        float2 scale = words.factors.scales.values();
        scale.y *= 1.0f / (1 << Base::code_bit(1));
        return {scale, words.factors.zeros.of_operands(*words.factors.grid)};
    }
};

template <GridForm form>
struct GemvGrid<PackedType::grid_8, form> : GridDequant<GemvDequantBase<PackedType::grid_8>, form> {
    using Operand = Bytes<false>;
    static constexpr uint32_t ones = 0x01010101u;
    using Factors = GridRowFactors;
    template <int n>
    struct Words : GemvByteCodes<n> {
        GridFactors<8, form> factors;
    };
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, const GridKBlock& k_block,
                                                int32_t block, int32_t lane) {
        words.factors.load(k_block.grid, k_block.record(block, lane, n), lane >> 2);
        load_grid_bytes(words, k_block, block, lane);
    }
    template <int n>
    static __device__ __forceinline__ void two_steps(const Words<n>& words, int i, uint32_t,
                                                     uint32_t (&a)[4]) {
        words.two_steps(i, a);
    }
    template <int n>
    static __device__ __forceinline__ GridRowFactors factors(const Words<n>& words) {
        return {words.factors.scales.values(),
                words.factors.zeros.of_operands(*words.factors.grid)};
    }
};

template <GridForm form>
struct GemvGrid<PackedType::grid_e4m3, form>
    : GridDequant<GemvDequantBase<PackedType::grid_e4m3>, form> {
    using Operand = F16;
    template <int n>
    struct Words : GemvByteCodes<n> {
        GridScaleBits<form> scales;
    };
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, const GridKBlock& k_block,
                                                int32_t block, int32_t lane) {
        words.scales.load(k_block.grid, k_block.record(block, lane, n), lane >> 2);
        load_grid_bytes(words, k_block, block, lane);
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

template <GridForm form, CodebookMode mode>
struct GemvGrid<PackedType::grid_codebook, form, mode>
    : GridDequant<GemvCodebookCodes<PackedType::grid_codebook, mode>, form> {
    using Base = GemvCodebookCodes<PackedType::grid_codebook, mode>;
    template <int n>
    struct Words : Base::template Codes<n> {
        GridScaleBits<form> scales;
    };
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, const GridKBlock& k_block,
                                                int32_t block, int32_t lane) {
        words.scales.load(k_block.grid, k_block.record(block, lane, n), lane >> 2);
        load_grid_codes<Base::bits>(words.codes, k_block, block, lane);
    }
    template <int n>
    static __device__ __forceinline__ RowScales factors(const Words<n>& words) {
        const float2 scale = words.scales.values();
        return {scale.x, scale.y};
    }
};

template <CodebookMode mode>
struct GemvGrid<PackedType::grid_codebook, GridForm::f32_by_block, mode>
    : GemvCodebookCodes<PackedType::grid_codebook, mode> {
    using Base = GemvCodebookCodes<PackedType::grid_codebook, mode>;
    static constexpr GridForm form = GridForm::f32_by_block;
    static constexpr bool brings_records = false;
    static constexpr int32_t scales_bytes = 16 * sizeof(float);  // before the codes of a block
    static constexpr int32_t min_split_bytes =
        scales_bytes + block_code_bytes(PackedType::grid_codebook, 4);
    template <int n>
    struct Words : Base::template Codes<n> {
        uint2 scales;
    };
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, uint32_t k_block, int32_t block,
                                                int32_t lane) {
        const uint32_t at = k_block + block * min_split_bytes;
        words.scales =
            load_shared_8(at + column_block(lane, n) * min_split_bytes + 8 * (lane >> 2));
        Base::load_codes(words, at + scales_bytes, lane, min_split_bytes);
    }
    template <int n>
    static __device__ __forceinline__ RowScales factors(const Words<n>& words) {
        return {__uint_as_float(words.scales.x), __uint_as_float(words.scales.y)};
    }
};

template <PackedType kind, CodebookMode mode>
requires(is_grid(kind)) struct GemvDequant<kind, mode> : GemvGrid<kind, GridForm::any, mode> {
};

}  // namespace moe::cuda
