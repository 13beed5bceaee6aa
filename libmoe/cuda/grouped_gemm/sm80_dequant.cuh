// How a lane of the portable grouped GEMM makes the A registers of a block of packed weights. There
// are three ways:
//
//   Sm80ByValue    values one by one (ValueDequant)
//   Sm80ByBlock    a dequantizer of Hopper's grouped GEMM, where it needs none of Hopper's
//                  instructions and no table; of superblocks with accumulators in units
//                  (accumulator_units.cuh)
//   Sm80ByLevel    integers of a grid whose groups are whole blocks: operands are levels, and
//                  accumulators are in units of the group's scale
//
// Each has
//   Words                     what a lane holds of a block
//   Kept                      what it keeps of a packed tile from one block to the next
//   residual_scale            the factor that accumulators lack at the end
//   load(block, kept)         the Words of a block
//   dequantize_half(words, kept, half, a)
//                             the registers of steps 2 half and 2 half + 1
//   begin_stage(block, kept), begin_block(block, kept)
//                             before a stage's first block, and then before each: reads scales that
//                             begin. Returns whether accumulators must be scaled by kept.change()
// and where accumulators are in units
//   kept.last()               the factors of accumulators at the end
//
// A row's result does not depend on the tile it is in: all tile shapes take a type the same way.
#pragma once

#include <type_traits>

#include "libmoe/cuda/dequant/accumulator_units.cuh"
#include "libmoe/cuda/dequant/value_blocks.hpp"
#include "libmoe/cuda/grouped_gemm/sm80_stage.cuh"

namespace moe::cuda {

// The same for all blocks of a work item.
struct Sm80Context {
    const Sm80Call& call;
    int32_t tile_bytes;     // of a packed tile in a stage
    const float* codebook;  // of the work item's expert
};

// A block of a packed tile in a stage.
struct Sm80Block {
    const std::byte* tile;  // in the stage
    int codes;              // from there to the block's codes
    int number;             // of the matrix
    int first;              // the stage's first block
    int in_superblock;      // number % 4

    __device__ __forceinline__ uint32_t tile_address() const { return shared_address(tile); }
    __device__ __forceinline__ uint32_t codes_address() const {
        return tile_address() + static_cast<uint32_t>(codes);
    }
    __device__ __forceinline__ bool begins_superblock() const { return in_superblock == 0; }
};

struct Sm80NothingKept {};

template <PackedType kind, Operand operand, int k_blocks>
struct Sm80ByValue {
    using Values = ValueDequant<kind>;
    using Words = typename Values::Words;
    using Kept = Sm80NothingKept;
    static constexpr bool has_units = false;
    static constexpr float residual_scale = residual_scale_of<kind, operand>();

    Sm80Context context;

    __device__ __forceinline__ bool begin_stage(const Sm80Block&, Kept&) const { return false; }
    __device__ __forceinline__ bool begin_block(const Sm80Block&, Kept&) const { return false; }

    __device__ __forceinline__ Words load(const Sm80Block& block, const Kept&) const {
        const PackedType type = type_of<kind>(context.call.gemm.weights);
        const std::byte* codes = block.tile + block.codes;
        const std::byte* scales = codes + block_code_bytes(type, 4);
        if constexpr (has_superblock(kind)) scales = block.tile + sm80_scale_offset<kind, k_blocks>;
        if constexpr (is_grid(kind)) scales = block.tile + records_of(block);
        return Values::load(type, codes, scales, Sm80Lane().id, 64 * block.number);
    }
    __device__ __forceinline__ void dequantize_half(const Words& words, const Kept&, int half,
                                                    uint32_t (&a)[2][4]) const {
        constexpr float inverse = 1.0f / residual_scale;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int step = 2 * half + i / 4, reg = i % 4;
            if constexpr (requires { Values::template operands<operand>(words, step, reg); }) {
                a[i / 4][reg] = Values::template operands<operand>(words, step, reg);
            } else {
                const FloatPair value = Values::pair(words, context.codebook, step, reg);
                a[i / 4][reg] = operand_pair<operand>({value.low * inverse, value.high * inverse});
            }
        }
    }

  private:
    // Where a packed tile of the stage has the records of a block's unit.
    __device__ __forceinline__ int records_of(const Sm80Block& block) const {
        const GridRecords& grid = context.call.records;
        const int records = grid.records(block.number);
        if (!grid.begins_before(block.number, block.first))
            return records - grid.align_down(grid.begin(block.first));
        return sm80_records_apart(grid, context.tile_bytes) + records - grid.align_down(records);
    }
};

// The record of the lane's columns of a block that begins a group. A group begins with its unit,
// whose records are right before the codes.
template <class Scales>
__device__ __forceinline__ void load_sm80_record(const GridRecords& records, const Sm80Block& block,
                                                 Scales& scales) {
    const auto lane = static_cast<uint32_t>(Sm80Lane().id);
    const int from_codes = records.record(static_cast<int>(lane & 3)) - records.front_bytes;
    scales.load(records, block.codes_address() + static_cast<uint32_t>(from_codes), lane);
}

// The scales of a grid before block `until`: loading a record takes half as many instructions as
// dequantizing a block. Blocks come in order.
template <class Scales>
struct Sm80GroupScales {
    Scales scales;
    int until = 0;

    __device__ __forceinline__ bool begin(const GridRecords& records, const Sm80Block& block) {
        if (block.number < until) return false;
        until = block.number + static_cast<int>(records.group_blocks);
        load_sm80_record(records, block, scales);
        return true;
    }
};

// A superblock's scales, with the units of accumulators where it has them.
template <class Scales>
struct Sm80SuperblockScales {
    Scales scales;
};
template <class Scales>
requires requires(Scales scales) {
    scales.units;
}
struct Sm80SuperblockScales<Scales> {
    Scales scales;
    AccumulatorUnits units;

    __device__ __forceinline__ float2 change() { return units.change(scales.units); }
    __device__ __forceinline__ float2 last() const { return units.of_rows; }
};

template <PackedType kind, class Grouped>
constexpr auto sm80_kept_by_block() {
    if constexpr (is_grid(kind))
        return std::type_identity<Sm80GroupScales<typename Grouped::KeptScales>>{};
    else if constexpr (has_superblock(kind))
        return std::type_identity<Sm80SuperblockScales<typename Grouped::KeptScales>>{};
    else
        return std::type_identity<Sm80NothingKept>{};
}

template <PackedType kind, class Grouped, int k_blocks>
struct Sm80ByBlock {
    using Words = typename Grouped::Words;
    using Kept = typename decltype(sm80_kept_by_block<kind, Grouped>())::type;
    static constexpr bool has_units = requires(const Kept kept) { kept.last(); };
    static constexpr float residual_scale = Grouped::residual_scale;
    static_assert(std::is_same_v<typename Grouped::Table, NoTable>);

    Sm80Context context;

    // Scales that are kept as an address are read again in every stage, and so are those of stages
    // of one block: they would take registers of wide tiles, which have none left.
    __device__ __forceinline__ bool begin_stage(const Sm80Block& block, Kept& kept) const {
        if constexpr (has_superblock(kind)) {
            constexpr bool always = k_blocks == 1 || Grouped::KeptScales::holds_address;
            if (always || block.begins_superblock())
                kept.scales.load(block.tile_address() + sm80_scale_offset<kind, k_blocks>,
                                 static_cast<uint32_t>(Sm80Lane().id));
            return has_units && block.begins_superblock();
        }
        return false;
    }
    __device__ __forceinline__ bool begin_block(const Sm80Block& block, Kept& kept) const {
        if constexpr (is_grid(kind)) kept.begin(context.call.records, block);
        return false;
    }

    __device__ __forceinline__ Words load(const Sm80Block& block, const Kept& kept) const {
        const uint32_t codes = block.codes_address();
        const auto lane = static_cast<uint32_t>(Sm80Lane().id);
        if constexpr (is_grid(kind))
            return Grouped::load(codes, lane);
        else if constexpr (has_superblock(kind))
            return Grouped::load(codes, kept.scales, lane,
                                 static_cast<uint32_t>(block.in_superblock));
        else
            return Grouped::load(codes, codes + block_code_bytes(kind, 4), lane);
    }
    __device__ __forceinline__ void dequantize_half(const Words& words, const Kept& kept, int half,
                                                    uint32_t (&a)[2][4]) const {
        uint32_t all[16];  // what is not copied is not computed
        if constexpr (is_grid(kind))
            Grouped::dequantize(words, kept.scales, NoTable(0), all);
        else
            Grouped::dequantize(words, NoTable(0), all);
#pragma unroll
        for (int i = 0; i < 8; ++i) a[i / 4][i % 4] = all[8 * half + i];
    }
};

template <class Grouped>
struct Sm80ByLevel {
    using Words = typename Grouped::Words;
    struct Kept : Sm80GroupScales<typename Grouped::LevelScales> {
        AccumulatorUnits units;

        __device__ __forceinline__ float2 change() {
            return units.change(accumulator_units(this->scales.factors()));
        }
        __device__ __forceinline__ float2 last() const {
            return units.template after_levels<Grouped>();
        }
    };
    static constexpr bool has_units = true;
    static constexpr float residual_scale = Grouped::residual_scale;

    Sm80Context context;

    __device__ __forceinline__ bool begin_stage(const Sm80Block&, Kept&) const { return false; }
    __device__ __forceinline__ bool begin_block(const Sm80Block& block, Kept& kept) const {
        return kept.begin(context.call.records, block);
    }
    __device__ __forceinline__ Words load(const Sm80Block& block, const Kept&) const {
        return Grouped::load(block.codes_address(), static_cast<uint32_t>(Sm80Lane().id));
    }
    __device__ __forceinline__ void dequantize_half(const Words& words, const Kept& kept, int half,
                                                    uint32_t (&a)[2][4]) const {
#pragma unroll
        for (int j = 0; j < 2; ++j)
            Grouped::spread(words, NoValues(0, 0, 0), kept.scales, 2 * half + j, a[j]);
    }
};

// Types by block: it is quicker than values one by one. With bfloat16 operands E2M1 multiplies by
// an instruction of Hopper's there.
template <PackedType kind, Operand operand>
constexpr bool sm80_takes_blocks = kind == PackedType::q8_0 || is_grouped_grid(kind) ||
                                   (has_ggml_scales(kind) && !is_iq_grid(kind)) ||
                                   (operand == Operand::f16 &&
                                    (kind == PackedType::nvfp4 || kind == PackedType::mxfp4));

// Kernels of these have a form for grids whose groups are whole blocks. Of others it would take
// more space than it is worth: GPTQ and AWQ have four bits.
template <PackedType kind>
constexpr bool sm80_takes_levels = kind == PackedType::grid_4;

enum class Sm80Form : int8_t { any, levels };

template <PackedType kind, Operand operand, Sm80Form form, int k_blocks>
constexpr auto sm80_dequant() {
    if constexpr (!sm80_takes_blocks<kind, operand>) {
        return std::type_identity<Sm80ByValue<kind, operand, k_blocks>>{};
    } else {
        using Bf16 = GroupedDequant<kind>;
        using Grouped = std::conditional_t<operand == Operand::f16, InF16<Bf16>, Bf16>;
        if constexpr (form == Sm80Form::levels)
            return std::type_identity<Sm80ByLevel<Grouped>>{};
        else if constexpr (has_superblock(kind) && has_superblock_units<Grouped>)
            return std::type_identity<Sm80ByBlock<kind, InSuperblockUnits<Grouped>, k_blocks>>{};
        else
            return std::type_identity<Sm80ByBlock<kind, Grouped, k_blocks>>{};
    }
}
template <PackedType kind, Operand operand, Sm80Form form, int k_blocks>
using Sm80Dequant = typename decltype(sm80_dequant<kind, operand, form, k_blocks>())::type;

// Brings accumulators of a packed tile to the units that begin.
template <class Dequant, int fragments>
__device__ __forceinline__ void scale_if(bool begins, float (&accum)[fragments][4],
                                         typename Dequant::Kept& kept) {
    if constexpr (Dequant::has_units) {
        if (begins) scale_rows(accum, kept.change());
    }
}

}  // namespace moe::cuda
