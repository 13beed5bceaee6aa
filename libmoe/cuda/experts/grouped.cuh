// The grouped product on wgmma (sm_90a): out = epilogue(W_expert v) for tiles of up to 256 rows.
//
// Shapes: weights packed (packed.hpp), k a multiple of 64 (q4_k: of 256), any number of tiles of 16
// rows; tokens in blocks (experts.hpp). Preconditions: Tile.row and capacity are multiples of 8,
// Tile.n_rows at most 256; rows up to the next multiple of 8 belong to the tile. A linear output
// has 16-byte aligned rows.
//
// 1. A block of threads takes pairs of a tile and 128 weight rows (8 packed tiles), a fixed share
// of
//    a list that every block computes alike.
// 2. A producer warp copies stages of a few blocks of 64 k, weights and tokens, into a ring.
// 3. Two warpgroups of consumers, 64 weight rows each, decode weights into A fragments and multiply
//    them with the tokens of the stage: D[64][width], width the least of a few that holds the tile.
// 4. The epilogue (grouped_epilogue.cuh) leaves through shared memory of its own, so that the
//    producer is already at the next pair.
#pragma once

#include <type_traits>

#include "libmoe/cuda/device/bulk_copy.cuh"
#include "libmoe/cuda/device/fragment.cuh"
#include "libmoe/cuda/device/mbarrier.cuh"
#include "libmoe/cuda/device/wgmma.cuh"
#include "libmoe/cuda/experts/grouped_epilogue.cuh"
#include "libmoe/cuda/experts/grouped_kernels.hpp"

namespace moe::cuda {

constexpr uint32_t grouped_threads = 384;
constexpr uint32_t tiles_per_block = 8;
constexpr uint32_t ring_bytes = 192 * 1024;

__host__ __device__ constexpr uint32_t round_up(uint32_t value, uint32_t to) {
    return (value + to - 1) / to * to;
}

// How a stage holds `n` blocks of one packed tile. The heads of q4_k come along with fewer than
// four blocks and lie where they belong otherwise.
__host__ __device__ constexpr uint32_t staged_tile_bytes(PackedType type, uint32_t n) {
    if (type != PackedType::q4_k) return n * static_cast<uint32_t>(block_bytes(type, 4));
    return n < 4 ? n * 512 + 256 : n / 4 * 2304;
}

template <PackedType type>
struct Stages {
    static constexpr uint32_t bytes =
        round_up(256 * 128 + tiles_per_block * staged_tile_bytes(type, 1), 1024);
    static constexpr uint32_t count = ring_bytes / bytes;

    static __host__ __device__ constexpr bool fits(uint32_t width, uint32_t n) {
        return n * width * 128 + tiles_per_block * staged_tile_bytes(type, n) <= bytes;
    }
    // Blocks of a stage for tiles of this width; q4_k: 1, 2 or a multiple of 4.
    static __host__ __device__ constexpr uint32_t blocks(uint32_t width) {
        uint32_t n = 1;
        if (type == PackedType::q4_k) {
            while (n < 8 && fits(width, 2 * n)) n *= 2;
        } else {
            while (n < 16 && fits(width, n + 1)) ++n;
        }
        return n;
    }
};

// Position in the ring, the same walk for producer and consumers.
template <PackedType type>
struct Ring {
    uint32_t base;
    uint32_t barriers;  // full of every stage, then empty
    uint32_t stage = 0;
    uint32_t phase = 0;

    __device__ uint32_t data() const { return base + stage * Stages<type>::bytes; }
    __device__ uint32_t full() const { return barriers + 8 * stage; }
    __device__ static constexpr uint32_t empty_offset() { return 8 * Stages<type>::count; }
    __device__ uint32_t empty() const { return full() + empty_offset(); }
    __device__ void advance() {
        if (++stage == Stages<type>::count) {
            stage = 0;
            phase ^= 1;
        }
    }
};

// The pairs of a launch: groups of eight tiles, in which the tiles of one block of weight rows
// follow each other. Blocks of threads that run at the same time so share both weights and tokens
// in L2.
struct WorkList {
    int32_t n_tiles;
    int32_t n_row_blocks;

    __device__ explicit WorkList(const GroupedProduct& product)
        : n_tiles(*product.n_tiles), n_row_blocks((product.weights.n_tiles + 7) / 8) {}

    __device__ int32_t size() const { return n_tiles * n_row_blocks; }

    struct Place {
        int32_t tile, row_block;
    };
    __device__ Place at(int32_t item) const {
        const int32_t first = item / (8 * n_row_blocks) * 8;
        const int32_t in_group = item - first * n_row_blocks;
        const int32_t n = min(8, n_tiles - first);
        return {first + in_group % n, in_group / n};
    }
};

__device__ __forceinline__ Tile load_tile(const Tile* tiles, int32_t index) {
    const int4 words = __ldg(reinterpret_cast<const int4*>(tiles) + index);
    return {words.x, words.y, words.z, words.w};
}

// The widths of the family. with_width(width, call) calls `call` with the width as a constant.
__device__ __forceinline__ int32_t width_of(int32_t n_rows) {
    const int32_t step = n_rows <= 32 ? 8 : n_rows <= 64 ? 16 : 32;
    return n_rows <= 8 ? 8 : (n_rows + step - 1) / step * step;
}

template <class Call>
__device__ __forceinline__ auto with_width(int32_t width, Call call) {
    switch (width) {
        case 8:
            return call(std::integral_constant<int, 8>{});
        case 16:
            return call(std::integral_constant<int, 16>{});
        case 24:
            return call(std::integral_constant<int, 24>{});
        case 32:
            return call(std::integral_constant<int, 32>{});
        case 48:
            return call(std::integral_constant<int, 48>{});
        case 64:
            return call(std::integral_constant<int, 64>{});
        case 96:
            return call(std::integral_constant<int, 96>{});
        case 128:
            return call(std::integral_constant<int, 128>{});
        case 160:
            return call(std::integral_constant<int, 160>{});
        case 192:
            return call(std::integral_constant<int, 192>{});
        case 224:
            return call(std::integral_constant<int, 224>{});
        default:
            return call(std::integral_constant<int, 256>{});
    }
}

template <PackedType type>
__device__ uint32_t blocks_of_stage(int32_t width) {
    return with_width(
        width, []<int n>(std::integral_constant<int, n>) { return Stages<type>::blocks(n); });
}

// Step 2 for one stage of n blocks from `block`, by a whole warp: lanes 0 to 7 copy a packed tile
// each, those after them the tokens of a block each.
template <PackedType type>
struct StageCopy {
    uint32_t lane, width, n_weight_tiles, n_rows;
    const std::byte* weights;  // this lane's packed tile
    const std::byte* tokens;   // the tile's rows in block column 0
    int64_t column_bytes;

    __device__ StageCopy(const GroupedProduct& product, const Tile& tile, int32_t row_block,
                         uint32_t lane_, uint32_t width_)
        : lane(lane_), width(width_) {
        const int32_t first = row_block * static_cast<int32_t>(tiles_per_block);
        n_weight_tiles = min(8, product.weights.n_tiles - first);
        n_rows = min(static_cast<int32_t>(width), product.capacity - tile.row);
        weights = product.weights.data + tile.expert * product.weights.expert_stride +
                  (first + static_cast<int64_t>(lane)) * tile_bytes(type, product.weights.k);
        tokens = product.in + int64_t(tile.row) * 128;
        column_bytes = int64_t(product.capacity) * 128;
    }

    // per_stage: what the stage is laid out for; n may be less at the end of k.
    __device__ void run(uint32_t block, uint32_t n, uint32_t per_stage, uint32_t data,
                        uint32_t full) const {
        const uint32_t tile_bytes = staged_tile_bytes(type, n);
        if (lane == 0) mbarrier_expect(full, n_weight_tiles * tile_bytes + n * n_rows * 128);
        __syncwarp();
        if (lane < n_weight_tiles) {
            const uint32_t to =
                data + per_stage * width * 128 + lane * staged_tile_bytes(type, per_stage);
            const BlockPlace place = place_of_block(type, int64_t(block) * 64, 4);
            if (type == PackedType::q4_k && per_stage < 4) {
                bulk_load(to, weights + place.codes, n * 512, full);
                bulk_load(to + per_stage * 512, weights + place.scales, 256, full);
            } else {
                bulk_load(to, weights + place.codes, tile_bytes, full);
            }
        } else if (lane >= tiles_per_block && lane - tiles_per_block < n) {
            const uint32_t column = lane - tiles_per_block;
            bulk_load(data + column * width * 128, tokens + (block + column) * column_bytes,
                      n_rows * 128, full);
        }
    }
};

template <PackedType type>
__device__ void produce(const GroupedProduct& product, Ring<type> ring, uint32_t lane) {
    const WorkList work(product);
    const uint32_t n_blocks = static_cast<uint32_t>(product.weights.k) / 64;
    ring.phase = 1;  // the ring begins empty
    for (int32_t item = blockIdx.x; item < work.size(); item += gridDim.x) {
        const WorkList::Place place = work.at(item);
        const Tile tile = load_tile(product.tiles, place.tile);
        const int32_t width = width_of(tile.n_rows);
        const StageCopy<type> copy(product, tile, place.row_block, lane,
                                   static_cast<uint32_t>(width));
        const uint32_t per_stage = blocks_of_stage<type>(width);
        for (uint32_t block = 0; block < n_blocks; block += per_stage) {
            mbarrier_wait(ring.empty(), ring.phase);
            copy.run(block, min(per_stage, n_blocks - block), per_stage, ring.data(), ring.full());
            ring.advance();
        }
    }
}

// The products of a block of 64 k, as one group. Only they differ from width to width: decoding,
// the sums and the fragments are common, so that they have one set of registers.
__device__ __forceinline__ void multiply_block(int32_t width, Sums& sums, const uint32_t (&a)[16],
                                               uint64_t rows) {
    with_width(width, [&]<int n>(std::integral_constant<int, n>) {
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < 4; ++j) wgmma<n>(sums, a + 4 * j, rows + 2 * j);
        wgmma_commit();
    });
}

// Step 3: a consumer warp's walk over the blocks of a pair.
template <class Fragment>
struct Multiplier {
    static constexpr PackedType type = Fragment::type;
    static constexpr uint32_t no_stage = 0;

    Ring<type>& ring;
    uint32_t lane;
    int32_t width;
    uint32_t per_stage;
    uint32_t tile_offset;  // of the warp's packed tile in a stage
    uint32_t codebook;
    uint32_t block = 0;
    uint32_t in_stage = 0;
    uint32_t passed = no_stage;  // empty barrier of the stage before, its products under way

    __device__ Multiplier(const LaneWork& work, Ring<type>& ring_, uint32_t codebook_)
        : ring(ring_),
          lane(work.lane),
          width(width_of(work.tile.n_rows)),
          per_stage(blocks_of_stage<type>(width)),
          tile_offset(per_stage * width * 128 +
                      work.local_tile() * staged_tile_bytes(type, per_stage)),
          codebook(codebook_) {}

    __device__ __forceinline__ void release() {
        if (passed != no_stage && lane == 0) mbarrier_arrive(passed);
        passed = no_stage;
    }

    __device__ __forceinline__ typename Fragment::Words load() const {
        const uint32_t tile = ring.data() + tile_offset;
        if constexpr (type == PackedType::q4_k) {
            const uint32_t super = tile + in_stage / 4 * 2304;
            const uint32_t heads = per_stage < 4 ? tile + per_stage * 512 : super + 2048;
            return Fragment::load(super + in_stage % 4 * 512, heads, lane, block % 4 * 2);
        } else {
            const uint32_t codes = tile + in_stage * block_bytes(type, 4);
            return Fragment::load(codes, codes + block_code_bytes(type, 4), lane);
        }
    }

    // One block of 64 k into `a`; the products before it, which read `other`, are over at the end,
    // and with `last` these too.
    __device__ __forceinline__ void step(Sums& sums, uint32_t (&a)[16], uint32_t (&other)[16],
                                         bool last) {
        if (in_stage == 0) mbarrier_wait(ring.full(), ring.phase);
        Fragment::decode(load(), codebook, a);
        const uint64_t rows = wgmma_descriptor(ring.data() + in_stage * width * 128);
        multiply_block(width, sums, a, rows);
        if (last) {
            wgmma_wait<0>();
        } else {
            wgmma_wait<1>();
        }
        keep(other);
        release();
        ++block;
        if (++in_stage == per_stage || last) {
            in_stage = 0;
            passed = ring.empty();
            ring.advance();
        }
    }

    __device__ __forceinline__ void run(Sums& sums, uint32_t n_blocks) {
        uint32_t a[2][16];
#pragma unroll
        for (int i = 0; i < 16; ++i) a[0][i] = a[1][i] = 0;
#pragma unroll
        for (int i = 0; i < most_tokens / 2; ++i) sums[i] = 0.0f;
        while (block < n_blocks) {
            step(sums, a[0], a[1], block + 1 == n_blocks);
            if (block == n_blocks) break;
            step(sums, a[1], a[0], block + 1 == n_blocks);
        }
        wgmma_wait<0>();  // nothing to wait for: tells the compiler that sums are complete
        keep(sums);
        release();
    }
};

// Of the expert, into the warpgroup's own table.
template <class Fragment>
__device__ __forceinline__ void load_codebook(const LaneWork& work, uint32_t table) {
    if constexpr (Fragment::has_codebook) {
        named_barrier(1 + work.warpgroup, 128);
        if (work.thread() < 64) {
            const float value =
                work.product.weights.codebook[int64_t(work.tile.expert) * 64 + work.thread()];
            store_shared(table + 4 * work.thread(), __float_as_uint(value));
        }
        named_barrier(1 + work.warpgroup, 128);
    }
}

template <class Fragment, bool activated>
__device__ __forceinline__ void consume_all(const GroupedProduct& product,
                                            Ring<Fragment::type> ring, uint32_t staging,
                                            uint32_t codebooks) {
    const uint32_t warpgroup = threadIdx.x / 128;
    const uint32_t codebook = codebooks + warpgroup * 256;
    const WorkList list(product);
    int32_t item = blockIdx.x;
    if (item >= list.size()) return;
    WorkList::Place place = list.at(item);
    Tile tile = load_tile(product.tiles, place.tile);
    while (true) {
        const LaneWork work{
            product,          tile,   place.row_block, warpgroup, threadIdx.x / 32 % 4,
            threadIdx.x % 32, staging};
        item += gridDim.x;
        const bool more = item < list.size();
        if (more) {  // asked for long before it is needed
            place = list.at(item);
            tile = load_tile(product.tiles, place.tile);
        }
        load_codebook<Fragment>(work, codebook);
        Sums sums;
        Multiplier<Fragment>(work, ring, codebook)
            .run(sums, static_cast<uint32_t>(product.weights.k) / 64);
        finish<activated>(work, Fragment::leftover, sums);
        if (!more) break;
    }
    bulk_store_wait();
}

// Shared memory: the ring, the staging of the epilogue, two codebooks, the barriers.
template <PackedType type>
struct GroupedShared {
    static constexpr uint32_t staging = Stages<type>::count * Stages<type>::bytes;
    static constexpr uint32_t codebooks = staging + staging_bytes;
    static constexpr uint32_t barriers = codebooks + 512;
    static constexpr uint32_t bytes = barriers + 16 * Stages<type>::count;
    static constexpr uint32_t alignment = 1024;
    static constexpr uint32_t allocated = bytes + alignment;
    static_assert(allocated <= 227 * 1024);
};

template <class Fragment, bool activated>
__global__ void __launch_bounds__(grouped_threads, 1)
    grouped_kernel(const __grid_constant__ GroupedProduct product) {
    using Shared = GroupedShared<Fragment::type>;
    extern __shared__ std::byte memory[];
    const uint32_t base = round_up(shared_address(memory), Shared::alignment);
    Ring<Fragment::type> ring{base, base + Shared::barriers};
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < Stages<Fragment::type>::count; ++i) {
            mbarrier_init(ring.full() + 8 * i, 1);
            mbarrier_init(ring.empty() + 8 * i, 8);  // consumer warps
        }
        mbarrier_fence_init();
    }
    __syncthreads();
    if (threadIdx.x >= 256) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x < 288) produce(product, ring, threadIdx.x % 32);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        consume_all<Fragment, activated>(product, ring, base + Shared::staging,
                                         base + Shared::codebooks);
    }
}

template <class Fragment>
GroupedKernel grouped_kernel_of() {
    return {reinterpret_cast<const void*>(&grouped_kernel<Fragment, false>),
            reinterpret_cast<const void*>(&grouped_kernel<Fragment, true>),
            GroupedShared<Fragment::type>::allocated};
}

}  // namespace moe::cuda
