// The ring of stages between the producer and the consumers of the grouped kernel (grouped.cuh),
// and how a consumer warp reads its weights there.
#pragma once

#include "libmoe/cuda/device/bulk_copy.cuh"
#include "libmoe/cuda/device/fragment.cuh"
#include "libmoe/cuda/device/mbarrier.cuh"
#include "libmoe/cuda/experts/grouped_epilogue.cuh"
#include "libmoe/cuda/experts/grouped_shape.cuh"

namespace moe::cuda {

// Position in the ring, the same walk for producer and consumers.
template <PackedType type, class Shape>
struct Ring {
    using Stages = moe::cuda::Stages<type, Shape>;
    uint32_t base;
    uint32_t heads;     // of every stage
    uint32_t barriers;  // full of every stage, then empty
    bool is_indexed;    // tokens come by ordinary writes, which the tensor cores must be told of
    uint32_t stage = 0;
    uint32_t phase = 0;

    __device__ uint32_t data() const { return base + stage * Stages::bytes; }
    __device__ uint32_t full() const { return barriers + 8 * stage; }
    __device__ static constexpr uint32_t empty_offset() { return 8 * Stages::count; }
    __device__ uint32_t empty() const { return full() + empty_offset(); }
    __device__ uint32_t head() const { return heads + head_bytes<type> * stage; }
    __device__ void wait_full() const {
        mbarrier_wait(full(), phase);
        if (is_indexed) async_proxy_fence();
    }
    __device__ void advance() {
        if (++stage == Stages::count) {
            stage = 0;
            phase ^= 1;
        }
    }
};

// By one thread, before the stage is full; by others once it is.
__device__ __forceinline__ void store_piece(uint32_t to, const Piece& piece) {
    store_shared(
        to, uint4{static_cast<uint32_t>(piece.expert), static_cast<uint32_t>(piece.row),
                  static_cast<uint32_t>(piece.n_rows), static_cast<uint32_t>(piece.row_block)});
    store_shared(to + 16, static_cast<uint32_t>(piece.width));
}

__device__ __forceinline__ Piece load_piece(uint32_t from) {
    const uint4 words = load_shared_16(from);
    return {static_cast<int32_t>(words.x), static_cast<int32_t>(words.y),
            static_cast<int32_t>(words.z), static_cast<int32_t>(words.w),
            static_cast<int32_t>(load_shared_4(from + 16))};
}

// Shared addresses of a codebook: values in float32, and pairs of them where a table is kept.
struct Codebooks {
    uint32_t values, pairs;
};

// A consumer warp's packed tile in the stages of a piece.
template <class Fragment, class Shape>
struct StagedTile {
    static constexpr PackedType type = Fragment::type;
    uint32_t lane;
    int32_t width;
    uint32_t per_stage;
    uint32_t offset;

    __device__ explicit StagedTile(const LaneWork& work)
        : lane(work.lane),
          width(work.piece.width),
          per_stage(Stages<type, Shape>::blocks_of(width)),
          offset(per_stage * width * 128 + work.local_tile() * staged_tile_bytes(type, per_stage)) {
    }

    // Of the block `in_stage` of the stage at `data`: its codes, and its scales or their heads.
    __device__ __forceinline__ uint32_t codes(uint32_t data, uint32_t in_stage) const {
        return data + offset + in_stage * staged_block_bytes(type);
    }
    __device__ __forceinline__ uint32_t scales(uint32_t data, uint32_t in_stage) const {
        if constexpr (type == PackedType::q4_k)
            return codes(data, per_stage);
        else
            return codes(data, in_stage) + block_code_bytes(type, 4);
    }

    // Block `block` of the matrix, the one `in_stage` of the stage.
    __device__ __forceinline__ typename Fragment::Words load(uint32_t data, uint32_t in_stage,
                                                             uint32_t block) const {
        const uint32_t from = codes(data, in_stage), scale = scales(data, in_stage);
        if constexpr (type == PackedType::q4_k)
            return Fragment::load(from, scale, lane, block % 4 * 2);
        else
            return Fragment::load(from, scale, lane);
    }
};

}  // namespace moe::cuda
