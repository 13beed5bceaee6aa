// Steps 1 and 2 of the grouped kernel (grouped.cuh): the warps that take work and copy weights and
// tokens into the ring.
#pragma once

#include "libmoe/cuda/device/bulk_copy.cuh"
#include "libmoe/cuda/device/cp_async.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/memory.cuh"
#include "libmoe/cuda/experts/grouped_kernels.hpp"
#include "libmoe/cuda/experts/grouped_ring.cuh"

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

// Step 2 for one stage of n blocks from `block`, by a whole warp: lanes copy a packed tile or,
// unless the input is indexed, the tokens of a block each.
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
        token_bytes = product.in_index ? 0 : round_up(piece.n_rows, 8) * 128;
        weights = product.weights.data + piece.expert * product.weights.expert_stride +
                  (first + static_cast<int64_t>(lane)) * tile_bytes(type, product.weights.k);
        tokens = product.in + int64_t(piece.row) * 128;
        column_bytes = int64_t(product.in_capacity) * 128;
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
                bulk_load_once(to, weights + place.codes, n * 512, full);
                bulk_load_once(to + per_stage * 512, weights + place.scales, 256, full);
            } else {
                bulk_load_once(to, weights + place.codes, tile_bytes, full);
            }
        } else if (brings_codebook && lane == tiles_per_block) {
            bulk_load(ring.head() + piece_bytes, codebook, raw_codebook_bytes<type>, full);
        }
    }

    template <class Ring>
    __device__ void load_tokens(const Ring& ring, uint32_t block, uint32_t n) const {
        if (lane >= n || token_bytes == 0) return;
        bulk_load(ring.data() + lane * width * 128, tokens + (block + lane) * column_bytes,
                  token_bytes, ring.full());
    }
};

// Calls load(ring, block, n) for the stages of a piece from `block` on, max_stages at most, and
// returns the block it came to.
template <class Ring, class Load>
__device__ __forceinline__ uint32_t each_stage(const GroupedProduct& product, Ring& ring,
                                               uint32_t block, uint32_t per_stage,
                                               uint32_t max_stages, Load load) {
    const uint32_t n_blocks = static_cast<uint32_t>(product.weights.k) / 64;
    for (uint32_t i = 0; i < max_stages && block < n_blocks; ++i, block += per_stage) {
        load(ring, block, min(per_stage, n_blocks - block));
        ring.advance();
    }
    return block;
}

// How the producer gives each piece to the warps that bring the tokens of an indexed input: two
// places by turns, each with a barrier that says it has been given and one that all warps have
// taken it.
struct PieceExchange {
    uint32_t places;
    uint32_t turn = 0;
    uint32_t phase = 0;

    __device__ uint32_t place() const { return places + turn * (piece_bytes + 16); }
    __device__ uint32_t given() const { return place() + piece_bytes; }
    __device__ uint32_t taken() const { return given() + 8; }

    // By one thread of the block.
    __device__ void begin() const {
        for (PieceExchange each = *this; each.phase == 0; each.advance()) {
            mbarrier_init(each.given(), 1);
            mbarrier_init(each.taken(), token_threads / 32);
        }
    }
    __device__ void give(const Piece& piece, uint32_t lane) {
        mbarrier_wait(taken(), phase ^ 1);
        if (lane == 0) {
            store_piece(place(), piece);
            mbarrier_arrive(given());
        }
        __syncwarp();
        advance();
    }
    __device__ Piece take(uint32_t lane) {
        mbarrier_wait(given(), phase);
        const Piece piece = load_piece(place());
        __syncwarp();
        if (lane == 0) mbarrier_arrive(taken());
        advance();
        return piece;
    }

  private:
    __device__ void advance() {
        turn ^= 1;
        if (turn == 0) phase ^= 1;
    }
};

template <PackedType type, class Shape>
struct Producer {
    using Ring = moe::cuda::Ring<type, Shape>;

    const GroupedProduct& product;
    Ring ring;
    PieceExchange exchange;
    uint32_t lane;
    bool waits;  // for the kernel before this one, once the first weights are asked for

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
            each_stage(product, ahead, 0, per_stage, n_early, load_weights);
            wait_for_previous_kernel();
            let_next_kernel_start();
            block = each_stage(
                product, ring, 0, per_stage, n_early,
                [&](const Ring& at, uint32_t from, uint32_t n) { copy.load_tokens(at, from, n); });
        }
        each_stage(product, ring, block, per_stage, UINT32_MAX,
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
            if (product.in_index) exchange.give(piece, lane);
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
        if (product.in_index) exchange.give({}, lane);
        mbarrier_wait(ring.empty(), ring.phase);
        if (lane != 0) return;
        store_piece(ring.head(), {});
        mbarrier_arrive(ring.full());
    }
};

// The tokens of an indexed input: three warps, eight lanes a row, copy each row's 128 bytes of a
// block from where its token lies. A row of the tile swizzles by its own number, a row of the input
// by the token's.
template <PackedType type, class Shape>
struct TokenProducer {
    using Ring = moe::cuda::Ring<type, Shape>;
    static constexpr int32_t rows_at_once = token_threads / 8;
    static constexpr int rounds = (Shape::most_rows + rows_at_once - 1) / rows_at_once;

    const GroupedProduct& product;
    Ring ring;
    PieceExchange exchange;
    uint32_t lane;
    int32_t row;     // of the piece, in round 0
    uint32_t chunk;  // where this lane stores in the row

    __device__ TokenProducer(const GroupedProduct& product_, const Ring& ring_,
                             const PieceExchange& exchange_, uint32_t thread)
        : product(product_),
          ring(ring_),
          exchange(exchange_),
          lane(thread % 32),
          row(static_cast<int32_t>(thread / 8)),
          chunk(thread % 8) {}

    // Bytes from the beginning of a block column to what this lane copies. Padding has no token;
    // any will do, as nothing comes of it.
    __device__ __forceinline__ void find_rows(const Piece& piece, uint32_t (&from)[rounds]) const {
        const int32_t last = piece.n_rows - 1;
#pragma unroll
        for (int i = 0; i < rounds; ++i) {
            const int32_t r = row + i * rows_at_once;
            from[i] = static_cast<uint32_t>(product.in_index[piece.row + min(r, last)]);
        }
#pragma unroll
        for (int i = 0; i < rounds; ++i) {
            const auto r = static_cast<uint32_t>(row + i * rows_at_once);
            const uint32_t token = from[i] / static_cast<uint32_t>(product.in_divisor);
            from[i] = token * 128 + (((chunk ^ r ^ token) & 7) << 4);
        }
    }

    // One block, from its column of the input to its rows in a stage. What is the same for all rows
    // is in registers before the first: between two copies stand four instructions and no load.
    __device__ __forceinline__ void copy_block(const std::byte* column, uint32_t to, int32_t n_rows,
                                               const uint32_t (&from)[rounds]) const {
        compute_now(column);
        to += row * 128 + (chunk << 4);
        compute_now(to);
        int32_t left = n_rows - row;
        compute_now(left);
#pragma unroll
        for (int i = 0; i < rounds; ++i) {
            const int r = i * rows_at_once;
            if (left > r) copy_async_16(to + r * 128, column + from[i]);
        }
    }

    __device__ void copy_piece(const Piece& piece) {
        uint32_t from[rounds];
        find_rows(piece, from);
        const auto n_rows = static_cast<int32_t>(round_up(piece.n_rows, 8));
        const uint32_t per_stage = Stages<type, Shape>::blocks_of(piece.width);
        const int64_t column_bytes = int64_t(product.in_capacity) * 128;
        each_stage(product, ring, 0, per_stage, UINT32_MAX,
                   [&](const Ring& at, uint32_t block, uint32_t n) {
                       mbarrier_wait(at.empty(), at.phase);
                       for (uint32_t b = 0; b < n; ++b)
                           copy_block(product.in + (block + b) * column_bytes,
                                      at.data() + b * piece.width * 128, n_rows, from);
                       arrive_after_copies(at.full());
                   });
    }

    __device__ void run(bool waits) {
        ring.phase = 1;
        if (waits) wait_for_previous_kernel();
        for (Piece piece = exchange.take(lane); piece.n_rows > 0; piece = exchange.take(lane))
            copy_piece(piece);
        mbarrier_wait(ring.empty(), ring.phase);
        mbarrier_arrive(ring.full());
    }
};

}  // namespace moe::cuda
