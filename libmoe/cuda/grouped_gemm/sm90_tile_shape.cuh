// Tile shapes, stages and shared-memory layout of the sm90 grouped GEMM (sm90_grouped_gemm.cuh).
// All shapes process 128 weight rows per work tile and differ in tokens and occupancy:
//
//   Wide    up to 288 rows at once; one block per SM, all registers for accumulators
//   Middle  up to 96 rows at once; two blocks per SM, so that twice as many warps dequantize and
//           one block computes during the other's prologue or epilogue
//   Narrow  up to 48 rows at once, more in turns; as Middle, and mma.sync for few rows
//
// Inputs: packed type and shape, at compile time. Outputs: constants of the kernel and its launch.
// Precondition: Shape::blocks_per_sm blocks fit the 228 KB of shared memory of an SM.
#pragma once

#include <type_traits>

#include "libmoe/cuda/dequant/grid_records.hpp"
#include "libmoe/cuda/device/codebook_mode.hpp"
#include "libmoe/cuda/grouped_gemm/sm90_instances.hpp"

namespace moe::cuda {

constexpr uint32_t tiles_per_block = 8;

__host__ __device__ constexpr uint32_t round_up(uint32_t value, uint32_t to) {
    return (value + to - 1) / to * to;
}

template <int n>
using Width = std::integral_constant<int, n>;

// with_width(width, call) calls `call` with the run-time width as a constant; the width comes from
// width_of. tokens_at_once is the unroll of the epilogue: enough to hide latency, and no more than
// most work tiles have. The epilogue of unusual activations stores rows_of_pass at once.
struct Wide {
    static constexpr int most_rows = 288;
    static constexpr int rows_of_pass = 32;
    static constexpr uint32_t threads = 384;
    static constexpr uint32_t blocks_per_sm = 1;
    static constexpr uint32_t consumer_registers = 224;
    static constexpr uint32_t producer_registers = 56;
    static constexpr uint32_t pipeline_bytes = 210 * 1024;
    static constexpr uint32_t staging_bytes = 8 * 1024;  // per warpgroup
    static constexpr int tokens_at_once = 32;
    static constexpr int most_rows_by_warp = 0;

    // Large tiles beside small ones have far fewer than most_rows on average, which leaves half of
    // the stages empty. `room` is that of all stages.
    static __host__ __device__ constexpr uint32_t min_stage_bytes(PackedType type, TilePart part,
                                                                  uint32_t room) {
        return part == TilePart::large && code_bits(type) < 8 ? room / 3 : 0;
    }

    static __device__ __forceinline__ int32_t width_of(int32_t n_rows, bool) {
        if (n_rows <= 64) return 64;
        const int32_t step = n_rows <= 160 ? 32 : 16;
        return (n_rows + step - 1) / step * step;
    }
    template <class Call>
    static __device__ __forceinline__ auto with_width(int32_t width, Call call) {
        switch (width) {
            case 64:
                return call(Width<64>{});
            case 96:
                return call(Width<96>{});
            case 128:
                return call(Width<128>{});
            case 160:
                return call(Width<160>{});
            case 176:
                return call(Width<176>{});
            case 192:
                return call(Width<192>{});
            case 208:
                return call(Width<208>{});
            case 224:
                return call(Width<224>{});
            case 240:
                return call(Width<240>{});
            case 256:
                return call(Width<256>{});
            case 272:
                return call(Width<272>{});
            default:
                return call(Width<288>{});
        }
    }
};

// Middle and Narrow have these in common.
struct HalfOfSm {
    static constexpr uint32_t threads = 384;
    static constexpr uint32_t blocks_per_sm = 2;
    static constexpr uint32_t consumer_registers = 104;
    static constexpr uint32_t producer_registers = 32;
    static constexpr uint32_t pipeline_bytes = 102 * 1024;
    static constexpr uint32_t staging_bytes = 4 * 1024;

    // A stage of half the pipeline holds a superblock at every width, so that its scales come with
    // its codes, by one copy.
    static __host__ __device__ constexpr uint32_t min_stage_bytes(PackedType type, TilePart,
                                                                  uint32_t room) {
        if (code_bits(type) == 16) return 0;
        const bool is_half = has_superblock(type) || (is_grid(type) && !has_codebook(type));
        return room / (is_half ? 2 : 3);
    }
};

struct Middle : HalfOfSm {
    static constexpr int most_rows = 96;
    static constexpr int rows_of_pass = 16;
    static constexpr int tokens_at_once = 16;
    static constexpr int most_rows_by_warp = 0;

    static __device__ __forceinline__ int32_t width_of(int32_t n_rows, bool) {
        return n_rows <= 32 ? 32 : n_rows <= 64 ? 64 : 96;
    }
    template <class Call>
    static __device__ __forceinline__ auto with_width(int32_t width, Call call) {
        switch (width) {
            case 32:
                return call(Width<32>{});
            case 64:
                return call(Width<64>{});
            default:
                return call(Width<96>{});
        }
    }
};

struct Narrow : HalfOfSm {
    static constexpr int most_rows = 48;
    static constexpr int rows_of_pass = 16;
    static constexpr int tokens_at_once = 8;
    // Up to this many rows each warp uses mma.sync (sm90_mainloop_warp.cuh), unless results must
    // not depend on the number of rows.
    static constexpr int most_rows_by_warp = 16;

    static __device__ __forceinline__ int32_t width_of(int32_t n_rows, bool batch_invariant) {
        if (n_rows <= most_rows_by_warp && !batch_invariant) return n_rows <= 8 ? 8 : 16;
        return n_rows <= 32 ? 32 : 48;
    }
    template <class Call>
    static __device__ __forceinline__ auto with_width(int32_t width, Call call) {
        switch (width) {
            case 8:
                return call(Width<8>{});
            case 16:
                return call(Width<16>{});
            case 32:
                return call(Width<32>{});
            default:
                return call(Width<48>{});
        }
    }
};

// Bytes of the superblock scales of one packed tile; 0 of types that have none.
__host__ __device__ constexpr uint32_t superblock_scale_bytes(PackedType type) {
    return has_superblock(type) ? 16 * static_cast<uint32_t>(ggml_scale_bytes(type)) : 0;
}
// Bytes for the records of n blocks of a grid, wherever they begin; 0 of other types.
__host__ __device__ constexpr uint32_t grid_record_room(PackedType type, uint32_t n) {
    return is_grid(type) ? n * grouped_grid_record_bytes + 16 : 0;
}
// Bytes of n blocks of one packed tile in a stage. Blocks follow each other, as they do in memory;
// a type with superblock scales has at most four, with the scales behind the codes.
__host__ __device__ constexpr uint32_t staged_block_bytes(PackedType type) {
    return static_cast<uint32_t>(has_superblock(type) ? block_code_bytes(type, 4)
                                                      : block_bytes(type, 4));
}
__host__ __device__ constexpr uint32_t staged_tile_bytes(PackedType type, uint32_t n) {
    return n * staged_block_bytes(type) + superblock_scale_bytes(type) + grid_record_room(type, n);
}
// Bytes of four blocks of a packed tile with their superblock scales.
__host__ __device__ constexpr uint32_t superblock_bytes(PackedType type) {
    return 4 * staged_block_bytes(type) + superblock_scale_bytes(type);
}

// Bulk copies are slow unless both addresses are equal modulo a line. So a packed tile begins in
// its room of a stage where it does in its line of memory; not of codebooks, iq2 and iq3, which
// that made no faster (bench/notes/grouped_gemm.md).
constexpr uint32_t line_bytes = 128;
__host__ __device__ constexpr bool copies_in_lines(PackedType type) {
    return is_grid(type) || (!has_codebook(type) && !is_iq_grid(type));
}

// Those bits of an address in its line that differ between copies of n blocks of a packed tile; 0
// where all of them begin with a line if the tile does.
__host__ __device__ constexpr uint32_t line_mask(PackedType type, uint32_t n) {
    if (!copies_in_lines(type)) return 0;
    if (is_grid(type)) return line_bytes - 16;
    const uint32_t unit = has_superblock(type) ? superblock_bytes(type) : staged_block_bytes(type);
    const uint32_t copied = has_superblock(type) ? unit : n * unit;
    const uint32_t power_of_two = unit & (0u - unit);  // the largest that divides it
    return copied % line_bytes == 0 ? 0 : line_bytes - power_of_two;
}
__host__ __device__ constexpr uint32_t staged_tile_room(PackedType type, uint32_t n) {
    const uint32_t mask = line_mask(type, n);
    return round_up(staged_tile_bytes(type, n) + mask, mask == 0 ? 16 : line_bytes);
}

// The part of a work item that a block processes at once: up to most_rows rows, 128 weight rows.
struct WorkTile {
    int32_t expert, row, n_rows;  // n_rows 0: no work is left
    int32_t row_block;            // 8 packed tiles each
    int32_t width;
};

// Threads of the warps that gather the tokens of an indexed input.
constexpr uint32_t token_threads = 96;

// A stage header holds a work tile and the codebook of its expert.
constexpr uint32_t work_tile_bytes = 32;
template <PackedType type>
constexpr uint32_t raw_codebook_bytes = has_codebook(type) ? 256 : 0;
template <PackedType type>
constexpr uint32_t stage_header_bytes = work_tile_bytes + raw_codebook_bytes<type>;

// Shared memory of the lookup tables of unscaled values (dequant/kbit.cuh), which loops by warps
// use, and of grids those of warpgroups. A large table takes its bytes from the stages.
template <PackedType type>
constexpr uint32_t pair_table_bytes_of_bits() {
    constexpr int bits = code_bits(type);
    return bits == 4 ? 32 * 1024 : 2 * 4 << (bits <= 3 ? 2 * bits : bits);
}
template <PackedType type, class Shape>
constexpr uint32_t pair_table_bytes = has_codebook(type) &&
                                              (Shape::most_rows_by_warp > 0 ||
                                               (is_grid(type) && Shape::blocks_per_sm == 2))
                                          ? pair_table_bytes_of_bits<type>()
                                          : 0;

// The stages of a launch, as many as fit: each has room for a block of the most rows, and the bytes
// that its shape asks for at least. Mainloops of small tiles rely on `all` having those of `small`.
template <PackedType type, class Shape>
struct Stages {
    static_assert(superblock_scale_bytes(type) % 16 == 0, "bulk copies are of 16 bytes");
    static constexpr uint32_t needed =
        round_up(Shape::most_rows * 128 + tiles_per_block * staged_tile_room(type, 1), 1024);
    static constexpr uint32_t table_bytes = pair_table_bytes<type, Shape>;
    // With one block per SM the codebooks of stages and warpgroups take 2 KB of the stages.
    static constexpr uint32_t codebook_room =
        has_codebook(type) && Shape::blocks_per_sm == 1 ? 2048 : 0;
    static constexpr uint32_t room = Shape::pipeline_bytes -
                                     round_up(grouped_table_bytes(type), 1024) -
                                     (table_bytes > 1024 ? table_bytes : 0) - codebook_room;

    static __host__ __device__ constexpr uint32_t bytes(TilePart part) {
        const uint32_t least = Shape::min_stage_bytes(type, part, room) / 1024 * 1024;
        return needed > least ? needed : least;
    }
    static __host__ __device__ constexpr uint32_t count(TilePart part) {
        return room / bytes(part);
    }
    static constexpr uint32_t most = count(TilePart::all);
    static_assert(most >= count(TilePart::large) && most >= count(TilePart::small));
    // Bytes of all stages of any launch.
    static constexpr uint32_t all_bytes = [] {
        uint32_t most_bytes = 0;
        for (const TilePart part : {TilePart::all, TilePart::large, TilePart::small})
            if (count(part) * bytes(part) > most_bytes) most_bytes = count(part) * bytes(part);
        return most_bytes;
    }();

    // Tiles of few rows are slower with more than four blocks in a stage, but not those of grids
    // (bench/notes/grouped_gemm.md). Types of less than four bits were not compared.
    static constexpr uint32_t most_blocks = code_bits(type) < 4 || is_grid(type) ? 16 : 4;

    // Blocks of 64 k per stage at this width; of a superblock 1, 2 or 4.
    static __host__ __device__ constexpr uint32_t blocks(uint32_t width, TilePart part) {
        const auto fits = [=](uint32_t n) {
            return n * width * 128 + tiles_per_block * staged_tile_room(type, n) <= bytes(part);
        };
        uint32_t n = has_superblock(type) ? 4 : most_blocks;
        while (n > 1 && !fits(n)) n = has_superblock(type) ? n / 2 : n - 1;
        return n;
    }
};

// Shared-memory layout: pipeline stages, epilogue staging, pair table, a codebook per warpgroup,
// stage headers, barriers, the work tile queue of an indexed input, and fixed tables.
template <PackedType type, class Shape>
struct GroupedShared {
    static constexpr uint32_t staging = Stages<type, Shape>::all_bytes;
    static constexpr uint32_t pairs = staging + 2 * Shape::staging_bytes;
    static constexpr uint32_t codebooks = pairs + pair_table_bytes<type, Shape>;
    static constexpr uint32_t headers = codebooks + 2 * raw_codebook_bytes<type>;
    static constexpr uint32_t barriers =
        headers + stage_header_bytes<type> * Stages<type, Shape>::most;
    static constexpr uint32_t work_tiles = barriers + 16 * Stages<type, Shape>::most;
    // Behind the two entries of WorkTileQueue: tables that follow from the type.
    static constexpr uint32_t fixed_tables = round_up(work_tiles + 2 * (work_tile_bytes + 16), 16);
    static constexpr uint32_t bytes = fixed_tables + grouped_table_bytes(type);
    static constexpr uint32_t alignment = 1024;
    static_assert(Shape::blocks_per_sm * (bytes + 1024) <= 228 * 1024);
};

}  // namespace moe::cuda
