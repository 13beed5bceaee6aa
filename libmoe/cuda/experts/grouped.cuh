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
//    ended: that one lets this one begin when tiles are known.
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

#include "libmoe/cuda/device/bulk_copy.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/memory.cuh"
#include "libmoe/cuda/experts/grouped_by_warp.cuh"
#include "libmoe/cuda/experts/grouped_by_warpgroup.cuh"
#include "libmoe/cuda/experts/grouped_kernels.hpp"
#include "libmoe/cuda/experts/grouped_wide.cuh"

namespace moe::cuda {

// The pairs of a launch: groups of eight tiles, in which the tiles of one block of weight rows
// follow each other. Blocks of threads that run at the same time so share both weights and tokens
// in L2.
struct WorkList {
    int32_t first_tile, n_tiles;
    int32_t n_row_blocks;

    __device__ WorkList(const GroupedProduct& product, TilePart part)
        : first_tile(part == TilePart::small ? product.n_tiles->large : 0),
          n_tiles((part == TilePart::large ? product.n_tiles->large : product.n_tiles->all) -
                  first_tile),
          n_row_blocks((product.weights.n_tiles + 7) / 8) {}

    __device__ int32_t size() const { return n_tiles * n_row_blocks; }

    struct Place {
        int32_t tile, row_block;
    };
    __device__ Place at(int32_t item) const {
        const int32_t first = item / (8 * n_row_blocks) * 8;
        const int32_t in_group = item - first * n_row_blocks;
        const int32_t n = min(8, n_tiles - first);
        return {first_tile + first + in_group % n, in_group / n};
    }
};

__device__ __forceinline__ Tile load_tile(const Tile* tiles, int32_t index) {
    const uint4 words = load_global_16(tiles + index);
    return {static_cast<int32_t>(words.x), static_cast<int32_t>(words.y),
            static_cast<int32_t>(words.z)};
}

// Step 1, by a whole warp.
struct Walk {
    const GroupedProduct& product;
    WorkList list;
    int32_t* taken;
    int32_t item;

    __device__ Walk(const GroupedProduct& product_, TilePart part)
        : product(product_),
          list(product_, part),
          taken(product_.taken + (part == TilePart::small ? 1 : 0)),
          item(static_cast<int32_t>(blockIdx.x)) {}

    __device__ bool done() const { return item >= list.size(); }

    __device__ Piece whole_tile() const {
        const WorkList::Place place = list.at(item);
        const Tile tile = load_tile(product.tiles, place.tile);
        return {tile.expert, tile.row, tile.n_rows, place.row_block, 0};
    }

    __device__ void next(uint32_t lane) {
        int32_t before = 0;
        if (lane == 0) before = atomicAdd(taken, 1);
        item = static_cast<int32_t>(gridDim.x) + __shfl_sync(0xFFFFFFFFu, before, 0);
    }
};

// Step 2 for one stage of n blocks from `block`, by a whole warp: lanes copy a packed tile or the
// tokens of a block each.
template <PackedType type>
struct StageCopy {
    uint32_t lane, width, n_weight_tiles, token_bytes;
    const std::byte* weights;  // this lane's packed tile
    const std::byte* tokens;   // the piece's rows in block column 0
    int64_t column_bytes;
    const float* codebook;

    __device__ StageCopy(const GroupedProduct& product, const Piece& piece, uint32_t lane_,
                         uint32_t width_)
        : lane(lane_), width(width_) {
        const int32_t first = piece.row_block * static_cast<int32_t>(tiles_per_block);
        n_weight_tiles = min(8, product.weights.n_tiles - first);
        token_bytes = round_up(piece.n_rows, 8) * 128;
        weights = product.weights.data + piece.expert * product.weights.expert_stride +
                  (first + static_cast<int64_t>(lane)) * tile_bytes(type, product.weights.k);
        tokens = product.in + int64_t(piece.row) * 128;
        column_bytes = int64_t(product.capacity) * 128;
        codebook = product.weights.codebook + int64_t(piece.expert) * 64;
    }

    // per_stage: what the stage is laid out for; n may be less at the end of k.
    template <class Ring>
    __device__ void load_weights(const Ring& ring, uint32_t block, uint32_t n,
                                 uint32_t per_stage) const {
        const uint32_t full = ring.full();
        const uint32_t tile_bytes = staged_tile_bytes(type, n);
        const bool brings_codebook = has_codebook(type) && block == 0;
        if (lane == 0)
            mbarrier_expect(full, n_weight_tiles * tile_bytes + n * token_bytes +
                                      (brings_codebook ? raw_codebook_bytes<type> : 0));
        __syncwarp();
        if (lane < n_weight_tiles) {
            const uint32_t to =
                ring.data() + per_stage * width * 128 + lane * staged_tile_bytes(type, per_stage);
            const BlockPlace place = place_of_block(type, any_k, int64_t(block) * 64, 4);
            if (type == PackedType::q4_k && per_stage < 4) {
                bulk_load(to, weights + place.codes, n * 512, full);
                bulk_load(to + per_stage * 512, weights + place.scales, 256, full);
            } else {
                bulk_load(to, weights + place.codes, tile_bytes, full);
            }
        } else if (brings_codebook && lane == tiles_per_block) {
            bulk_load(ring.head() + piece_bytes, codebook, raw_codebook_bytes<type>, full);
        }
    }

    template <class Ring>
    __device__ void load_tokens(const Ring& ring, uint32_t block, uint32_t n) const {
        if (lane >= n) return;
        bulk_load(ring.data() + lane * width * 128, tokens + (block + lane) * column_bytes,
                  token_bytes, ring.full());
    }
};

template <PackedType type, class Shape>
struct Producer {
    using Ring = moe::cuda::Ring<type, Shape>;

    const GroupedProduct& product;
    Ring ring;
    uint32_t lane;
    bool waits;  // for the kernel before this one, once the first weights are asked for

    // load(ring, block, n) for stages of a piece from `block` on, max_stages at most.
    template <class Load>
    __device__ uint32_t each_stage(Ring& at, uint32_t block, uint32_t per_stage,
                                   uint32_t max_stages, Load load) const {
        const uint32_t n_blocks = static_cast<uint32_t>(product.weights.k) / 64;
        for (uint32_t i = 0; i < max_stages && block < n_blocks; ++i, block += per_stage) {
            load(at, block, min(per_stage, n_blocks - block));
            at.advance();
        }
        return block;
    }

    __device__ void copy_piece(const Piece& piece) {
        const StageCopy<type> copy(product, piece, lane, static_cast<uint32_t>(piece.width));
        const uint32_t per_stage = Stages<type, Shape>::blocks_of(piece.width);
        const auto load_weights = [&](const Ring& at, uint32_t block, uint32_t n) {
            mbarrier_wait(at.empty(), at.phase);
            if (block == 0 && lane == 0) store_piece(at.head(), piece);
            copy.load_weights(at, block, n, per_stage);
        };
        uint32_t block = 0;
        if (waits) {
            waits = false;
            Ring ahead = ring;
            constexpr uint32_t n_early = Stages<type, Shape>::count;
            each_stage(ahead, 0, per_stage, n_early, load_weights);
            wait_for_previous_kernel();
            let_next_kernel_start();
            block = each_stage(
                ring, 0, per_stage, n_early,
                [&](const Ring& at, uint32_t from, uint32_t n) { copy.load_tokens(at, from, n); });
        }
        each_stage(ring, block, per_stage, UINT32_MAX,
                   [&](const Ring& at, uint32_t from, uint32_t n) {
                       load_weights(at, from, n);
                       copy.load_tokens(at, from, n);
                   });
    }

    // In pieces of most_rows.
    __device__ void copy_tile(Piece tile) {
        while (tile.n_rows > 0) {
            Piece piece = tile;
            piece.n_rows = min(tile.n_rows, Shape::most_rows);
            piece.width = Shape::width_of(piece.n_rows, product.batch_invariant);
            copy_piece(piece);
            tile.row += Shape::most_rows;
            tile.n_rows -= Shape::most_rows;
        }
    }

    __device__ void run(TilePart part) {
        ring.phase = 1;  // the ring begins empty
        for (Walk walk(product, part); !walk.done(); walk.next(lane)) copy_tile(walk.whole_tile());
        if (waits) {
            wait_for_previous_kernel();
            let_next_kernel_start();
        }
        mbarrier_wait(ring.empty(), ring.phase);
        if (lane != 0) return;
        store_piece(ring.head(), {});
        mbarrier_arrive(ring.full());
    }
};

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
            static_assert(pair_bytes == Fragment::pair_table_bytes);
            if (piece.width <= 8) {
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
    Ring<Fragment::type, Shape> ring{base, base + Shared::heads, base + Shared::barriers};
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < Stages<Fragment::type, Shape>::count; ++i) {
            mbarrier_init(ring.full() + 8 * i, 1);
            mbarrier_init(ring.empty() + 8 * i, 8);  // consumer warps
        }
        mbarrier_fence_init();
    }
    __syncthreads();
    const bool waits = part != TilePart::small;
    if (threadIdx.x >= 256) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Shape::producer_registers));
        if (threadIdx.x < 288)
            Producer<Fragment::type, Shape>{product, ring, threadIdx.x % 32, waits}.run(part);
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
