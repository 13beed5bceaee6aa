// Building blocks that gemv_gate_up and gemv_down share beside the slots (gemv_slots.cuh). One
// block of threads serves one token.
//
// 1. Codebooks: fill lookup tables in shared memory, per expert or shared.
// 2. Mainloop: multiply a k_block of packed weights (16 rows) with the operands, and reduce the
//    accumulators over lanes and warps.
//
// Inputs: packed weights of a warp's pipeline stage, 16-bit x or h. Output: float32 accumulators of
// rows g and g + 8. Precondition: a k_block holds whole splits, Dequant::min_split blocks of 64 k
// each.
#pragma once

#include <type_traits>

#include "libmoe/cuda/dequant/codebook_lanes.cuh"
#include "libmoe/cuda/dequant/gemv_blocks.cuh"
#include "libmoe/cuda/device/cp_async.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/stream_pipeline.cuh"
#include "libmoe/cuda/gemv/gemv_operands.cuh"
#include "libmoe/cuda/gemv/gemv_slots.cuh"

namespace moe::cuda {

// Returns n / d for n d < 2^31, given reciprocal_of(d). An integer division by a run-time number is
// too slow in the prologue.
__device__ __forceinline__ int32_t divide(int32_t n, uint32_t reciprocal) {
    return static_cast<int32_t>(__umulhi(2 * static_cast<uint32_t>(n), reciprocal));
}

// Divides n_items among n: range `index` is [first, last), and the first ranges have one item more.
struct EvenPartition {
    int32_t first, last;

    __device__ __forceinline__ EvenPartition(int32_t n_items, int32_t index, int32_t n,
                                             uint32_t reciprocal) {
        const int32_t each = divide(n_items, reciprocal);
        const int32_t remainder = n_items - each * n;
        first = index * each + min(index, remainder);
        last = first + each + (index < remainder ? 1 : 0);
    }
};

// ---- codebooks

// Loads the tables of listed slots [begin, end). The loads are issued before the weight copies,
// behind which they would queue.
template <class Dequant>
struct SlotTables {
    static constexpr int32_t bytes = table_bytes(Dequant::type, CodebookMode::per_expert);
    static constexpr int32_t entries = bytes / 4;
    const PackedMatrix& matrix;
    const int32_t* slots;
    int32_t begin;
    int32_t n;
    float2 held;

    __device__ __forceinline__ SlotTables(const PackedMatrix& weights, const int32_t* list,
                                          int32_t first, int32_t end)
        : matrix(weights), slots(list), begin(first), n((end - first) * entries), held{} {
        if (static_cast<int32_t>(threadIdx.x) < n) held = load(static_cast<int32_t>(threadIdx.x));
    }
    __device__ __forceinline__ float2 load(int32_t i) const {
        const int64_t expert = slot_expert(slots[begin + i / entries]);
        return Dequant::load_entry(i % entries, matrix.codebook + 64 * expert);
    }
    // The caller synchronizes the block afterwards.
    __device__ __forceinline__ void store(unsigned char* to) const {
        float2 values = held;
        for (int32_t i = static_cast<int32_t>(threadIdx.x); i < n;) {
            Dequant::store_entry(to + i / entries * bytes, i % entries, values);
            i += static_cast<int32_t>(blockDim.x);
            if (i < n) values = load(i);
        }
    }
};

// The shared codebook, replicated per lane to avoid bank conflicts. A lane loads the value of code
// lane % 16 for M half lane / 16.
template <class Dequant>
class SharedLaneTable {
  public:
    __device__ __forceinline__ SharedLaneTable(const PackedMatrix& matrix, int32_t lane)
        : value_(load_global(matrix.codebook + 32 * (lane >> 4) + (lane & 15))) {}
    // The caller synchronizes the block afterwards.
    __device__ __forceinline__ void store(uint32_t to) const {
        using Lanes = LaneTable<Dequant::bits>;
        static_assert(table_bytes(Dequant::type, CodebookMode::shared_lanes) == Lanes::bytes);
        const auto rows = [&](uint32_t low, uint32_t high) {
            return Dequant::Operand::pair(value(0, low), value(1, high));
        };
        for (uint32_t i = threadIdx.x; i < Lanes::n_entries; i += blockDim.x)
            Lanes::store(to, i, rows);
    }

  private:
    __device__ __forceinline__ float value(uint32_t half, uint32_t code) const {
        return __shfl_sync(~0u, value_, static_cast<int>(16 * half + code));
    }
    float value_;
};

// The shared codebook as bytes, which arrive with the kernel's parameters.
class SharedByteTable {
  public:
    __device__ __forceinline__ SharedByteTable(const PackedMatrix& matrix, int32_t)
        : values_{matrix.byte_codebook.values[0], matrix.byte_codebook.values[1]} {}
    // The caller synchronizes the block afterwards.
    __device__ __forceinline__ void store(uint32_t to) const {
        if (threadIdx.x == 0) store_shared(to, values_);
    }

  private:
    uint2 values_;
};

// Residual scale of all accumulators of a matrix.
template <class Dequant>
__device__ __forceinline__ float residual_scale_of(const PackedMatrix& matrix) {
    if constexpr (Dequant::codebook_mode == CodebookMode::shared_bytes)
        return matrix.byte_codebook.scale;
    return Dequant::residual_scale;
}

// Tables that follow from the type alone.
template <class Dequant>
struct TypeTables {
    __device__ __forceinline__ TypeTables(const PackedMatrix&, int32_t) {}
    // The caller synchronizes the block afterwards.
    __device__ __forceinline__ void store(uint32_t to) const {
        Dequant::store_tables(to, static_cast<int32_t>(threadIdx.x),
                              static_cast<int32_t>(blockDim.x));
    }
};

// Stands in where a type has no table to load.
struct NoTables {
    __device__ __forceinline__ NoTables(const PackedMatrix&, const int32_t*, int32_t, int32_t) {}
    __device__ __forceinline__ NoTables(const PackedMatrix&, int32_t) {}
    __device__ __forceinline__ void store(unsigned char*) const {}
    __device__ __forceinline__ void store(uint32_t) const {}
};

template <class Dequant, CodebookMode codebook_mode = Dequant::codebook_mode>
struct CodebookTables {
    using PerSlot = NoTables;
    using Shared = SharedLaneTable<Dequant>;
};
template <class Dequant>
struct CodebookTables<Dequant, CodebookMode::none> {
    using PerSlot = NoTables;
    using Shared = std::conditional_t<(iq_table_shape(Dequant::type, true).entries > 0),
                                      TypeTables<Dequant>, NoTables>;
};
template <class Dequant>
struct CodebookTables<Dequant, CodebookMode::shared_bytes> {
    using PerSlot = NoTables;
    using Shared = SharedByteTable;
};
template <class Dequant>
struct CodebookTables<Dequant, CodebookMode::per_expert> {
    using PerSlot = SlotTables<Dequant>;
    using Shared = NoTables;
};

// ---- stages of the pipeline

template <class Dequant>
using StageItem = std::conditional_t<Dequant::brings_records, TwoCopyItem, StreamItem>;

// From a tile to what comes with a split of it.
template <class Dequant, class Params>
__device__ __forceinline__ int32_t split_offset(const Params& call, int32_t split) {
    if constexpr (Dequant::brings_records)
        return call.records.begin(split);
    else
        return split * Dequant::min_split_bytes;
}
template <class Dequant, class Params>
__device__ __forceinline__ int64_t tile_stride_of(const Params& call, int32_t tile_splits) {
    if constexpr (Dequant::brings_records)
        return call.records.tile_bytes;
    else
        return int64_t{tile_splits} * Dequant::min_split_bytes;
}

// Copies are of whole vectors. Fronts of grids of more than three bits are, too.
template <class Dequant>
__device__ __forceinline__ int32_t align_down(int32_t offset) {
    return code_bits(Dequant::type) > 3 ? offset : GridRecords::align_down(offset);
}
template <class Dequant>
__device__ __forceinline__ int32_t align_up(int32_t offset) {
    return code_bits(Dequant::type) > 3 ? offset : GridRecords::align_up(offset);
}

// Where a stage has the records that are copied apart.
template <class Params>
__device__ __forceinline__ int32_t records_apart(const Params& call) {
    return call.tiling.stage_bytes - GridRecords::room_apart(call.records.front_bytes);
}

// The copy of n splits of a tile, at least one; `from` is where split first_split of it is. Where a
// grid's stage begins within a unit, the records of this are copied apart.
template <class Dequant, class Params>
__device__ __forceinline__ StageItem<Dequant> stage_item(const Params& call, const std::byte* from,
                                                         int32_t first_split, int32_t n) {
    StageItem<Dequant> item;
    if constexpr (Dequant::brings_records) {
        const GridRecords& grid = call.records;
        const int32_t begin = grid.begin(first_split), aligned = align_down<Dequant>(begin);
        item.from = from - (begin - aligned);
        item.bytes = align_up<Dequant>(grid.end(first_split, n)) - aligned;
        if (!grid.begins_unit(first_split)) {
            const int32_t records = grid.records(first_split);
            const int32_t aligned_records = align_down<Dequant>(records);
            item.second = from - (begin - aligned_records);
            item.second_bytes = align_up<Dequant>(records + grid.front_bytes) - aligned_records;
            item.second_at = records_apart(call);
        }
    } else {
        item.from = from;
        item.bytes = n * Dequant::min_split_bytes;
    }
    return item;
}

template <class Dequant>
__device__ __forceinline__ uint32_t line_mask_of(const GemvTiling& tiling) {
    return gemv_copies_in_lines(Dequant::type) ? tiling.line_mask : 0;
}

// A k_block that has arrived in the stage at this shared address; first_block is its first of 64 k
// in the matrix. `tile` counts the tiles of one matrix, or of several through.
template <class Dequant, class Params>
__device__ __forceinline__ typename Dequant::KBlock k_block_at(const Params& call, uint32_t stage,
                                                               int32_t tile, int32_t first_block) {
    const auto in_line = [&](uint32_t begin) {
        const int32_t tile_splits = call.matrix.k / (64 * Dequant::min_split);
        const auto stride = static_cast<uint32_t>(tile_stride_of<Dequant>(call, tile_splits));
        return (static_cast<uint32_t>(tile) * stride + begin) & line_mask_of<Dequant>(call.tiling);
    };
    if constexpr (Dequant::brings_records) {
        const GridRecords& grid = call.records;
        const auto begin = static_cast<uint32_t>(align_down<Dequant>(grid.begin(first_block)));
        const int32_t records = grid.records(first_block);
        const int32_t in_vector = records - align_down<Dequant>(records);
        return {stage + in_line(begin) - begin,
                stage + static_cast<uint32_t>(records_apart(call) + in_vector), first_block, grid};
    } else {
        return stage + in_line(static_cast<uint32_t>(
                           split_offset<Dequant>(call, first_block / Dequant::min_split)));
    }
}

// ---- mainloop

// Addresses of a lane's B operand. An mma of a pair of blocks takes columns 0-3 from the even block
// and 4-7 from the odd one; column n holds the 16 k of lane n % 4. Both blocks are multiplied by
// the same B registers, and four columns of each accumulator are used. All other lanes read zeros,
// which lie in other banks than the x that two of the same eight lanes read. With byte operands,
// columns 0 and 1, 4 and 5 hold the high and low bytes of the first 32 k of a block, the other four
// those of the last 32. With BytesOf16, columns 2 i and 2 i + 1 hold the high and the low bytes of
// the 16 k of lane i, of one block. Where operands have low parts, blocks are multiplied without a
// pair, and columns 4-7 hold the low parts of what columns 0-3 have; the sum over the lanes of a
// quad adds both.
struct OperandAddresses {
    uint32_t pair, pair_stride;      // of block 0, and bytes from block to block
    uint32_t single, single_stride;  // the same for a block without a pair
    bool has_low;                    // blocks have no pairs, see above

    template <class Operand>
    static __device__ __forceinline__ OperandAddresses of(uint32_t x, uint32_t all_zeros,
                                                          int32_t lane, int32_t low_part) {
        constexpr bool are_bytes = Operand::are_bytes;
        constexpr bool of_16 = Operand::are_of_16;
        const int32_t column = lane >> 2;
        const uint32_t zeros = all_zeros + (lane & (of_16 ? 16 : 8) ? 0 : 64);
        const bool mine = of_16       ? (lane & 3) == column >> 1
                          : are_bytes ? (lane >> 1 & 1) == (column >> 1 & 1)
                                      : (lane & 3) == (column & 3);
        const bool has_low = !Operand::has_block_exponent && low_part != 0;
        const bool alone = mine && (of_16 || has_low || column < 4);
        const uint32_t own = 32 * (lane & 3) + (are_bytes ? 16 * (column & 1) : 0);
        OperandAddresses addresses;
        addresses.pair = mine ? x + (of_16 ? 0 : 128 * (column >> 2)) + own : zeros;
        addresses.pair_stride = mine ? 128 : 0;
        addresses.single = alone ? addresses.pair : zeros;
        if (has_low && mine) addresses.single = x + own + (column < 4 ? 0 : low_part);
        addresses.single_stride = alone ? 128 : 0;
        addresses.has_low = has_low;
        return addresses;
    }
    template <int n>
    __device__ __forceinline__ uint32_t at(int32_t block) const {
        return n == 2 ? pair + block * pair_stride : single + block * single_stride;
    }
};

// n blocks of 64 k, dequantized to A operands.
template <class Dequant, int n>
struct DequantizedBlocks {
    using Operand = typename Dequant::Operand;
    static constexpr int n_mma = Operand::are_bytes ? 2 : 4;  // instructions per block
    static constexpr int n_parts = Dequant::n_parts;          // of operands that are sums
    uint32_t a[n_parts][n_mma * n][4];
    typename Dequant::Factors factors;

    // `block` is the first of them in the k_block; group_scales belong to its split.
    __device__ __forceinline__ void dequantize(const typename Dequant::KBlock& k_block,
                                               int32_t block, int32_t lane,
                                               const typename Dequant::Table& table,
                                               const typename Dequant::GroupScales& group_scales) {
        typename Dequant::template Words<n> words;
        Dequant::load(words, k_block, block, lane);
#pragma unroll
        for (int j = 0; j < 4 * n; j += 2) {
            if constexpr (n_parts == 2) {
                Dequant::two_steps(words, j / 2, table, a[0][j / 2], a[1][j / 2]);
            } else if constexpr (Operand::are_bytes) {
                Dequant::two_steps(words, j / 2, table, a[0][j / 2]);
            } else {
                Dequant::step(words, j, table, a[0][j]);
                Dequant::step(words, j + 1, table, a[0][j + 1]);
            }
        }
        if constexpr (Dequant::min_split > 1)
            factors = Dequant::factors(group_scales, block);
        else
            factors = Dequant::factors(words);
    }

    // Accumulates the mma with x from x_block on.
    __device__ __forceinline__ void multiply(int32_t x_block, const OperandAddresses& addresses,
                                             int32_t lane, float (&acc)[2]) const {
        const uint32_t at = addresses.template at<n>(x_block);
        uint4 b[n_mma / 2];
#pragma unroll
        for (int j = 0; j < n_mma / 2; ++j) b[j] = load_shared_16(at + 16 * j);
        // A single block divides its chain of mma in two, unless the blocks of a superblock are
        // there to hide it.
        constexpr bool is_divided = n == 1 && Dequant::min_split == 1;
        typename Operand::Accumulator c[2][4] = {};
        typename Operand::Accumulator x[4] = {};
#pragma unroll
        for (int j = 0; j < n_mma; ++j) {
            const uint32_t first = j & 1 ? b[j / 2].z : b[j / 2].x;
            const uint32_t second = j & 1 ? b[j / 2].w : b[j / 2].y;
#pragma unroll
            for (int i = 0; i < n * n_parts; ++i)
                Operand::multiply(c[is_divided ? j & 1 : i % n], a[i / n][n_mma * (i % n) + j],
                                  first, second);
            if constexpr (Dequant::ones != 0)
                Operand::multiply(x, {Dequant::ones, Dequant::ones, Dequant::ones, Dequant::ones},
                                  first, second);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if constexpr (n == 2)
                c[0][i] = lane & 2 ? c[1][i] : c[0][i];
            else if constexpr (is_divided)
                c[0][i] += c[1][i];
        }
        if constexpr (Dequant::ones != 0)
            Dequant::add(factors, c[0], x, acc);
        else
            Dequant::add(factors, c[0], acc);
    }
};

// `block` of a k_block, or block 0 of its superblock: offsets in a superblock are then constants.
template <class Dequant>
struct FirstBlock {
    typename Dequant::KBlock k_block;
    int32_t block;
};
template <class Dequant>
__device__ __forceinline__ FirstBlock<Dequant> first_block_of(
    const typename Dequant::KBlock& k_block, int32_t block) {
    if constexpr (Dequant::min_split > 1)
        return {k_block + block / Dequant::min_split * Dequant::min_split_bytes, 0};
    else
        return {k_block, block};
}

// Accumulates blocks [block, n_blocks) of a k_block times x, whose first block is x_block. `block`
// and n_blocks are multiples of min_split.
template <class Dequant>
__device__ __forceinline__ void add_k_block(const typename Dequant::KBlock& k_block, int32_t block,
                                            int32_t n_blocks, int32_t x_block,
                                            const OperandAddresses& addresses, int32_t lane,
                                            uint32_t tables, float (&acc)[2]) {
    const typename Dequant::Table table(Dequant::table_of(tables, lane));
    constexpr int32_t step =
        Dequant::min_split > Dequant::span ? Dequant::min_split : Dequant::span;
    const int32_t end_of_pairs = Dequant::span == 2 && addresses.has_low ? 0 : n_blocks;
#pragma unroll 1
    for (; block + step <= end_of_pairs; block += step) {
        __builtin_assume(block % Dequant::min_split == 0);
        const auto [from, first] = first_block_of<Dequant>(k_block, block);
        const typename Dequant::GroupScales group_scales(from, first, lane);
#pragma unroll
        for (int32_t i = 0; i < step; i += Dequant::span) {
            DequantizedBlocks<Dequant, Dequant::span> blocks;
            blocks.dequantize(from, first + i, lane, table, group_scales);
            blocks.multiply(x_block + block + i, addresses, lane, acc);
        }
    }
    if constexpr (Dequant::span == 2 && Dequant::min_split == 1) {
#pragma unroll 1
        for (; block < n_blocks; ++block) {
            DequantizedBlocks<Dequant, 1> last;
            last.dequantize(k_block, block, lane, table, {k_block, block, lane});
            last.multiply(x_block + block, addresses, lane, acc);
        }
    }
}

// Reduces over the lanes of a quad: lanes 0 and 1 return the accumulators of rows g and g + 8.
__device__ __forceinline__ float add_quad(const float (&acc)[2], int32_t lane) {
    const bool odd = lane & 1;
    const float other = __shfl_xor_sync(~0u, odd ? acc[0] : acc[1], 1);
    const float own = (odd ? acc[1] : acc[0]) + other;
    return own + __shfl_xor_sync(~0u, own, 2);
}

// Adds a row's accumulators of up to eight warps in a fixed order.
__device__ __forceinline__ float add_eight_warps(const float* row, int32_t n_warps) {
    float part[8];
#pragma unroll
    for (int32_t warp = 0; warp < 8; ++warp) part[warp] = warp < n_warps ? row[16 * warp] : 0.0f;
    return ((part[0] + part[1]) + (part[2] + part[3])) +
           ((part[4] + part[5]) + (part[6] + part[7]));
}

// Adds those of up to sixteen warps.
__device__ __forceinline__ float add_warps(const float* row, int32_t n_warps) {
    const float acc = add_eight_warps(row, n_warps);
    return n_warps <= 8 ? acc : acc + add_eight_warps(row + 16 * 8, n_warps - 8);
}

__device__ __forceinline__ float gemv_global_scale(const PackedMatrix& matrix, int32_t expert,
                                                   int32_t half) {
    return matrix.global_scale ? matrix.global_scale[2 * expert + half] : 1.0f;
}

}  // namespace moe::cuda
