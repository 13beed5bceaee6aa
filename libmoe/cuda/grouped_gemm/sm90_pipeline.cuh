// Multistage shared-memory pipeline between the producer and the consumers of the sm90 grouped GEMM
// (sm90_grouped_gemm.cuh), with a full and an empty barrier per stage.
//
// A stage holds `per_stage` blocks of 64 k: token rows of 128 bytes, then eight packed tiles. Its
// header holds a work tile and a codebook. Inputs and outputs: shared addresses. Precondition:
// producer and consumers advance through the same stages, and the producer begins with phase 1.
#pragma once

#include "libmoe/cuda/dequant/grouped_blocks.cuh"
#include "libmoe/cuda/device/bulk_copy.cuh"
#include "libmoe/cuda/device/mbarrier.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_epilogue.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_packed_tile.cuh"

namespace moe::cuda {

// Position in the pipeline. Producer and consumers advance alike.
template <PackedType type, class Shape>
struct Pipeline {
    using Stages = moe::cuda::Stages<type, Shape>;
    TilePart part;
    uint32_t base;
    uint32_t headers;   // one per stage
    uint32_t barriers;  // full barriers of all stages, then empty barriers
    bool is_indexed;    // cp.async brings the tokens, so that wgmma needs a proxy fence
    uint32_t stage = 0;
    uint32_t phase = 0;

    __device__ uint32_t data() const {
        return base + stage * by_part([](TilePart of) { return Stages::bytes(of); });
    }
    __device__ uint32_t full() const { return barriers + 8 * stage; }
    __device__ static constexpr uint32_t empty_offset() { return 8 * Stages::most; }
    __device__ uint32_t empty() const { return full() + empty_offset(); }
    __device__ uint32_t header() const { return headers + stage_header_bytes<type> * stage; }
    __device__ void wait_full() const {
        mbarrier_wait(full(), phase);
        if (is_indexed) async_proxy_fence();
    }
    __device__ void advance() {
        if (++stage == count()) {
            stage = 0;
            phase ^= 1;
        }
    }
    __device__ uint32_t count() const {
        return by_part([](TilePart of) { return Stages::count(of); });
    }
    __device__ __forceinline__ uint32_t blocks_of(int32_t width) const {
        return Shape::with_width(width, [&]<int n>(Width<n>) {
            return by_part([](TilePart of) { return Stages::blocks(n, of); });
        });
    }

  private:
    // Calls with the launch's part, or with another one whose stages are the same.
    template <class Call>
    __device__ __forceinline__ uint32_t by_part(Call call) const {
        constexpr uint32_t of_large = call(TilePart::large), of_others = call(TilePart::all);
        return part == TilePart::large ? of_large : of_others;
    }
};

// One thread stores it before the stage is full; consumers load it afterwards.
__device__ __forceinline__ void store_work_tile(uint32_t to, const WorkTile& work_tile) {
    store_shared(
        to,
        uint4{static_cast<uint32_t>(work_tile.expert), static_cast<uint32_t>(work_tile.row),
              static_cast<uint32_t>(work_tile.n_rows), static_cast<uint32_t>(work_tile.row_block)});
    store_shared(to + 16, static_cast<uint32_t>(work_tile.width));
}

__device__ __forceinline__ WorkTile load_work_tile(uint32_t from) {
    const uint4 words = load_shared_16(from);
    return {static_cast<int32_t>(words.x), static_cast<int32_t>(words.y),
            static_cast<int32_t>(words.z), static_cast<int32_t>(words.w),
            static_cast<int32_t>(load_shared_4(from + 16))};
}

// Shared addresses of a codebook: float32 values, and a table of pairs where one is kept.
struct Codebooks {
    uint32_t values, pairs;
};

// A consumer warp's packed tile in the stages of a work tile.
template <class Dequant, class Shape>
struct StagedTile {
    static constexpr PackedType type = Dequant::type;
    uint32_t lane;
    int32_t width;
    uint32_t per_stage;
    uint32_t room;  // of the tile, from the stage
    PackedTile<type> packed;
    typename KeptScalesOf<Dequant>::Type kept;
    uint32_t kept_until = 0;  // of a grid: the first block that kept scales do not serve

    __device__ StagedTile(const LaneWork& work, const Pipeline<type, Shape>& pipeline)
        : lane(work.lane),
          width(work.work_tile.width),
          per_stage(pipeline.blocks_of(width)),
          room(per_stage * width * 128 + work.local_tile() * staged_tile_room(type, per_stage)),
          packed(work.gemm, work.work_tile.expert, work.packed_tile()) {}

    // The same packed tile, for another dequantizer of its type.
    template <class Other>
    __device__ explicit StagedTile(const StagedTile<Other, Shape>& other)
        : lane(other.lane),
          width(other.width),
          per_stage(other.per_stage),
          room(other.room),
          packed(other.packed) {}

    // The other members take this as `at`: of the stage at `data`, whose first block is number
    // `first` of the matrix.
    __device__ __forceinline__ uint32_t begin_of(uint32_t data, uint32_t first) const {
        return packed.staged_begin(data + room, first, per_stage);
    }
    // Codes and scales of block i of the stage; superblock scales come last.
    __device__ __forceinline__ uint32_t codes(uint32_t at, uint32_t i) const {
        return at + i * staged_block_bytes(type);
    }
    // The codes of a grid's block, number `block` of the matrix.
    __device__ __forceinline__ uint32_t grid_codes(uint32_t at, uint32_t block) const {
        return at + static_cast<uint32_t>(packed.records.codes(static_cast<int32_t>(block)));
    }
    __device__ __forceinline__ uint32_t scales(uint32_t at, uint32_t i) const {
        if constexpr (has_superblock(type))
            return codes(at, per_stage);
        else
            return codes(at, i) + block_code_bytes(type, 4);
    }

    // Loads the scales of block i of the stage, number `block` of the matrix, where those that are
    // kept do not serve it. Blocks come in order.
    template <class Kept>
    __device__ __forceinline__ void keep_scales(Kept& to, uint32_t at, uint32_t i, uint32_t block) {
        if constexpr (is_grid(type)) {
            const int32_t own = packed.records.record(static_cast<int32_t>(lane & 3));
            keep_record(to, at, block, static_cast<uint32_t>(own));
        } else if constexpr (has_superblock(type)) {
            const uint32_t number = Kept::holds_address ? i : block % 4;
            if (number == 0) to.load(scales(at, 0), lane);
        }
    }

    // The same of a grid whose groups are whole blocks. Returns whether a group begins.
    template <class Kept>
    __device__ __forceinline__ bool keep_scales_of_group(Kept& to, uint32_t at, uint32_t block) {
        return keep_record(to, at, block, 0);
    }

    __device__ __forceinline__ typename Dequant::Words load(uint32_t at, uint32_t i,
                                                            uint32_t block) {
        if constexpr (is_grid(type)) {
            return Dequant::load(grid_codes(at, block), lane);
        } else if constexpr (has_superblock(type)) {
            keep_scales(kept, at, i, block);
            return Dequant::load(codes(at, i), kept, lane, block % 4);
        } else {
            return Dequant::load(codes(at, i), scales(at, i), lane);
        }
    }

    // The operands of the block whose words these are. Scales of a grid are loaded here, because
    // those of the words that are loaded ahead would take a second set of registers.
    __device__ __forceinline__ void dequantize(const typename Dequant::Words& words,
                                               const typename Dequant::Table& table, uint32_t at,
                                               uint32_t i, uint32_t block, uint32_t (&a)[16]) {
        if constexpr (is_grid(type)) {
            keep_scales(kept, at, i, block);
            Dequant::dequantize(words, kept, table, a);
        } else {
            Dequant::dequantize(words, table, a);
        }
    }

  private:
    // A group begins with its unit, whose records are right before the codes. own: the offset of
    // this lane's.
    template <class Kept>
    __device__ __forceinline__ bool keep_record(Kept& to, uint32_t at, uint32_t block,
                                                uint32_t own) {
        if (block < kept_until) return false;
        kept_until = block + packed.records.group_blocks;
        const auto front = static_cast<uint32_t>(packed.records.front_bytes);
        to.load(packed.records, grid_codes(at, block) - front + own, lane);
        return true;
    }
};

}  // namespace moe::cuda
