// A packed tile in memory, and where its bytes go in a stage of the sm90 grouped GEMMs. Producers
// copy by it, and consumers find by it what was copied.
#pragma once

#include "libmoe/cuda/device/bulk_copy.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_call.hpp"
#include "libmoe/cuda/grouped_gemm/sm90_tile_shape.cuh"

namespace moe::cuda {

// Blocks have 64 k; their numbers count from the first column of the matrix.
template <PackedType type>
struct PackedTile {
    const std::byte* data;
    const GridRecords& records;  // of a grid

    __device__ PackedTile(const Sm90Call& gemm, int32_t expert, int32_t tile)
        : data(gemm.weights.data + expert * gemm.weights.expert_stride +
               tile * int64_t{stride(gemm)}),
          records(gemm.records) {}

    // Where the copy of a stage that begins with `block` begins: at the codes, of a grid at the
    // records of a unit that begins there.
    __device__ __forceinline__ uint32_t begin(uint32_t block) const {
        if constexpr (is_grid(type))
            return static_cast<uint32_t>(
                records.align_down(records.begin(static_cast<int32_t>(block))));
        else if constexpr (has_superblock(type))
            return block / 4 * superblock_bytes(type) + block % 4 * staged_block_bytes(type);
        else
            return block * staged_block_bytes(type);
    }
    // Bytes of n blocks and of the scales that come with them.
    __device__ __forceinline__ uint32_t bytes(uint32_t block, uint32_t n) const {
        if constexpr (is_grid(type))
            return static_cast<uint32_t>(records.align_up(
                       records.end(static_cast<int32_t>(block), static_cast<int32_t>(n)))) -
                   begin(block);
        else
            return staged_tile_bytes(type, n);
    }
    // Where they lie in the tile's room of a stage that has room for per_stage blocks.
    __device__ __forceinline__ uint32_t in_room(uint32_t block, uint32_t per_stage) const {
        const uint32_t mask = line_mask(type, per_stage);
        return (static_cast<uint32_t>(reinterpret_cast<uintptr_t>(data)) + begin(block)) & mask;
    }
    // Where `block`, the first of a stage, has its codes, with the tile's room at `room`; of a
    // grid, where the tile would begin that has them there.
    __device__ __forceinline__ uint32_t staged_begin(uint32_t room, uint32_t block,
                                                     uint32_t per_stage) const {
        const uint32_t at = room + in_room(block, per_stage);
        return is_grid(type) ? at - begin(block) : at;
    }

    // From the codes of `block` to the scales of its superblock.
    __device__ static uint32_t superblock_scales(uint32_t block) {
        return (4 - block % 4) * staged_block_bytes(type);
    }

    // Bytes to the next packed tile.
    static __device__ uint32_t stride(const Sm90Call& gemm) {
        if constexpr (is_grid(type))
            return static_cast<uint32_t>(gemm.records.tile_bytes);
        else
            return static_cast<uint32_t>(tile_bytes(type, gemm.weights.k));
    }
};

// Copies n_tiles packed tiles that are `stride` bytes apart, by one lane. step(from): how far the
// place of the tile at `from` is from that of the next. Sums instead of multiples of a number:
// those would be kept in local memory.
template <class Step>
__device__ __forceinline__ void copy_tiles(uint32_t n_tiles, uint32_t to, const std::byte* from,
                                           uint32_t stride, uint32_t bytes, uint32_t barrier,
                                           Step step) {
#pragma unroll 4
    for (uint32_t i = 0; i < n_tiles; ++i) {
        bulk_load_once(to, from, bytes, barrier);
        to += step(from);
        from += stride;
    }
}

}  // namespace moe::cuda
