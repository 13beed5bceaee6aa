// The grouped product of sm_90a: out = epilogue(W_expert v) for tiles of up to 256 rows.
//
// Shapes: weights packed (packed.hpp), k a multiple of 64 (q4_k: of 256), any number of tiles of 16
// rows; tokens in blocks (experts.hpp). Preconditions: Tile.row and capacity are multiples of 8,
// Tile.n_rows at most 256; rows up to the next multiple of 8 belong to the tile. A linear output
// has 16-byte aligned rows.
//
// 1. A producer warp takes pairs of a tile and 128 weight rows (8 packed tiles) for its block of
//    threads: the first by its number, then whichever is next, from a counter in memory, so that
//    tiles of any sizes keep all blocks busy. Which block has a pair does not matter for the
//    result.
// 2. It copies stages of a few blocks of 64 k, weights and tokens, into a ring. The first stage of
//    a piece, as many rows of the tile as fit at once, says which piece it is and brings the
//    codebook. Weights of the very first piece are asked for before the kernel before this one has
//    ended: that one lets this one begin when tiles are known. Tokens of an indexed input come row
//    by row from three warps more.
// 3. Eight consumer warps, a packed tile each, decode weights into A fragments and multiply them
//    with the tokens of the stage: as two warpgroups with wgmma (grouped_wide.cuh, and
//    grouped_by_warpgroup.cuh for few rows) or each by itself with mma.sync (grouped_by_warp.cuh,
//    for very few). The width of a product is the least of a few that holds the piece.
// 4. The epilogue (grouped_epilogue.cuh) leaves through shared memory of its own, so that the
//    producer is already at the next pair.
//
// Of the two launches of a product the second, for small tiles, does not wait at its beginning, so
// that it fills the multiprocessors that the first leaves: the first lets it begin only after its
// own wait, when all that both read has been written. It waits at its end, which keeps the chain of
// dependent_launch.cuh.
#pragma once

#include "libmoe/cuda/experts/grouped_by_warp.cuh"
#include "libmoe/cuda/experts/grouped_by_warpgroup.cuh"
#include "libmoe/cuda/experts/grouped_kernels.hpp"
#include "libmoe/cuda/experts/grouped_producer.cuh"
#include "libmoe/cuda/experts/grouped_wide.cuh"

namespace moe::cuda {

template <class Fragment, class Shape>
__device__ __forceinline__ void multiply(const LaneWork& work, Ring<Fragment::type, Shape>& ring,
                                         const Codebooks& codebooks, Sums<Shape>& sums) {
    const auto run = [&]<class Multiplier>(Multiplier multiplier) {
        multiplier.run(sums, static_cast<uint32_t>(work.product.weights.k) / 64, work.piece.n_rows);
    };
    if constexpr (std::is_same_v<Shape, Wide>) {
        run(WideMultiplier<Fragment, Shape>(work, ring, codebooks));
    } else if (work.piece.width <= Shape::most_rows_by_warp) {
        run(WarpMultiplier<Fragment, Shape>(work, ring, codebooks));
    } else {
        run(WarpgroupMultiplier<Fragment, Shape>(work, ring, codebooks));
    }
}

// Where the multipliers find the codebook of the piece that begins. In the head of the stage for
// those that take it into registers; else a copy that lasts.
template <class Fragment, class Shape>
__device__ __forceinline__ Codebooks take_codebook(uint32_t head, const Piece& piece,
                                                   uint32_t warpgroup, uint32_t base) {
    using Shared = GroupedShared<Fragment::type, Shape>;
    Codebooks codebooks{head + piece_bytes, base + Shared::pairs};
    if constexpr (has_codebook(Fragment::type)) {
        if constexpr (Fragment::table_in_memory) {
            const uint32_t thread = threadIdx.x % 128;
            const uint32_t copy =
                base + Shared::codebooks + warpgroup * raw_codebook_bytes<Fragment::type>;
            named_barrier(1 + warpgroup, 128);
            if (thread < 64)
                store_shared(copy + 4 * thread, load_shared_4(codebooks.values + 4 * thread));
            named_barrier(1 + warpgroup, 128);
            codebooks.values = copy;
        }
        // One table for both warpgroups.
        constexpr uint32_t pair_bytes = pair_table_bytes<Fragment::type, Shape>;
        if constexpr (pair_bytes > 0) {
            static_assert(pair_bytes == Fragment::Values::table_bytes);
            constexpr int32_t most = Fragment::groups_apart ? Shape::most_rows_by_warp : 8;
            if (piece.width <= most) {
                named_barrier(3, 256);
                Fragment::Values::store(codebooks.values, codebooks.pairs, threadIdx.x);
                named_barrier(3, 256);
            }
        }
    }
    return codebooks;
}

template <class Fragment, class Shape, bool activated>
__device__ __forceinline__ void consume_all(const GroupedProduct& product,
                                            Ring<Fragment::type, Shape> ring, uint32_t base) {
    const uint32_t warpgroup = threadIdx.x / 128;
    const uint32_t staging = base + GroupedShared<Fragment::type, Shape>::staging;
    ring.wait_full();
    Piece piece = load_piece(ring.head());
    while (piece.n_rows > 0) {
        const LaneWork work{product,          piece,  warpgroup, threadIdx.x / 32 % 4,
                            threadIdx.x % 32, staging};
        const Codebooks codebooks =
            take_codebook<Fragment, Shape>(ring.head(), piece, warpgroup, base);
        const RowFacts facts(work);  // asked for long before they are needed
        Sums<Shape> sums;
        multiply<Fragment, Shape>(work, ring, codebooks, sums);
        finish<Shape, activated>(work, Affine(facts, Fragment::leftover), sums);
        ring.wait_full();
        piece = load_piece(ring.head());
    }
    bulk_store_wait();
}

template <class Fragment, class Shape, bool activated>
__global__ void __launch_bounds__(Shape::threads, Shape::blocks_per_sm)
    grouped_kernel(const __grid_constant__ GroupedProduct product, TilePart part) {
    using Shared = GroupedShared<Fragment::type, Shape>;
    extern __shared__ std::byte memory[];
    const uint32_t base = round_up(shared_address(memory), Shared::alignment);
    const bool is_indexed = activated && product.in_index;
    Ring<Fragment::type, Shape> ring{base, base + Shared::heads, base + Shared::barriers,
                                     is_indexed};
    const PieceExchange exchange{base + Shared::pieces};
    if (threadIdx.x == 0) {
        exchange.begin();
        for (uint32_t i = 0; i < Stages<Fragment::type, Shape>::count; ++i) {
            mbarrier_init(ring.full() + 8 * i, 1 + (is_indexed ? token_threads : 0));
            mbarrier_init(ring.empty() + 8 * i, 8);  // consumer warps
        }
        mbarrier_fence_init();
    }
    __syncthreads();
    const bool waits = part != TilePart::small;
    if (threadIdx.x >= 256) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Shape::producer_registers));
        if (threadIdx.x < 288)
            Producer<Fragment::type, Shape>{product, ring, exchange, threadIdx.x % 32, waits}.run(
                part);
        else if (is_indexed)
            TokenProducer<Fragment::type, Shape>(product, ring, exchange, threadIdx.x - 288)
                .run(waits);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Shape::consumer_registers));
        if (waits) wait_for_previous_kernel();
        let_next_kernel_start();
        consume_all<Fragment, Shape, activated>(product, ring, base);
    }
    if (!waits) wait_for_previous_kernel();
}

template <class Fragment, class Shape>
GroupedKernel grouped_kernel_of() {
    return {reinterpret_cast<const void*>(&grouped_kernel<Fragment, Shape, false>),
            reinterpret_cast<const void*>(&grouped_kernel<Fragment, Shape, true>), Shape::threads,
            Shape::blocks_per_sm, GroupedShared<Fragment::type, Shape>::allocated};
}

static_assert(grouped_tiles.max_rows == Wide::most_rows);
static_assert(grouped_tiles.most_small == Narrow::most_rows);

template <class Fragment>
GroupedKernels grouped_kernels_of() {
    return {grouped_kernel_of<Fragment, Wide>(), grouped_kernel_of<Fragment, Narrow>()};
}

}  // namespace moe::cuda
