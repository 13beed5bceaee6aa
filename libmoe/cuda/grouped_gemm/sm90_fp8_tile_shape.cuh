// Tile shapes, pipeline and shared-memory layout of the sm90 grouped GEMM of E4M3
// (sm90_fp8_grouped_gemm.cuh).
#pragma once

#include "libmoe/cuda/device/bulk_copy.cuh"
#include "libmoe/cuda/device/mbarrier.cuh"
#include "libmoe/cuda/fp8_blocks.hpp"
#include "libmoe/cuda/grouped_gemm/sm90_pipeline.cuh"

namespace moe::cuda {

// A lane has the sums of a work tile in registers, and the products of a block of 128 k with up to
// most_at_once tokens, or weight rows.
//
//   Fp8Wide    128 weight rows, up to 256 tokens, beyond 128 in two turns; one block per SM
//   Fp8Narrow  128 weight rows, up to 48 tokens; two blocks per SM, so that one reads weights
//              during the other's epilogue
//   Fp8Middle  tokens are the rows of A, 64 to a warpgroup, so that a lane's two tokens have their
//              scales in registers (sm90_fp8_tokens_mainloop.cuh): 256 weight rows in two turns;
//              one block per SM
struct Fp8Wide {
    static constexpr uint32_t packed_tiles = 8;
    static constexpr int most_rows = 256;
    static constexpr int most_at_once = 128;
    static constexpr uint32_t threads = 384;
    static constexpr uint32_t blocks_per_sm = 1;
    static constexpr uint32_t consumer_registers = 224;
    static constexpr uint32_t producer_registers = 56;
    static constexpr uint32_t pipeline_bytes = 156 * 1024;
    static constexpr uint32_t staging_bytes = 16 * 1024;  // per warpgroup
    static constexpr int tokens_at_once = 32;

    static __device__ __forceinline__ int32_t width_of(int32_t n_rows) {
        return (n_rows + 63) / 64 * 64;  // wgmma takes as long for 32 rows
    }
    template <class Call>
    static __device__ __forceinline__ void with_width(int32_t width, Call call) {
        switch (width) {
            case 64:
                return call(Width<64>{});
            case 128:
                return call(Width<128>{});
            case 192:
                return call(Width<192>{});
            default:
                return call(Width<256>{});
        }
    }
};

struct Fp8Middle {
    static constexpr uint32_t packed_tiles = 16;
    static constexpr int most_rows = 128;
    static constexpr int most_at_once = 128;
    static constexpr uint32_t threads = 384;
    static constexpr uint32_t blocks_per_sm = 1;
    static constexpr uint32_t consumer_registers = 232;
    static constexpr uint32_t producer_registers = 40;
    static constexpr uint32_t pipeline_bytes = 204 * 1024;
    static constexpr uint32_t staging_bytes = 8 * 1024;  // per warpgroup

    static __device__ __forceinline__ int32_t width_of(int32_t) { return most_rows; }
};

struct Fp8Narrow {
    static constexpr uint32_t packed_tiles = 8;
    static constexpr int most_rows = 48;
    static constexpr int most_at_once = 48;
    static constexpr uint32_t threads = 384;
    static constexpr uint32_t blocks_per_sm = 2;
    static constexpr uint32_t consumer_registers = 104;
    static constexpr uint32_t producer_registers = 32;
    static constexpr uint32_t pipeline_bytes = 99 * 1024;
    static constexpr uint32_t staging_bytes = 6 * 1024;
    static constexpr int tokens_at_once = 16;

    static __device__ __forceinline__ int32_t width_of(int32_t n_rows) {
        return n_rows <= 8 ? 8 : (n_rows + 15) / 16 * 16;
    }
    template <class Call>
    static __device__ __forceinline__ void with_width(int32_t width, Call call) {
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

// Bytes that the gated epilogue stages of a row: 128 features of bfloat16.
constexpr uint32_t fp8_staged_row_bytes = 2 * fp8_block_columns;

// Are tokens the rows of A? Then wgmma reads the weights where they lie in a stage, so that packed
// tiles are the same number of bytes apart; else each begins where its bytes do in their line.
template <class Shape>
constexpr bool tokens_as_a = Shape::packed_tiles > tiles_per_block;

// From one packed tile of two blocks to the next in a stage: as far as in memory but for whole
// lines, so that all copies are from line to line.
__device__ __forceinline__ uint32_t even_tile_step(PackedType type, uint32_t stride) {
    const uint32_t bytes = staged_tile_bytes(type, 2);
    return bytes + ((stride - bytes) & (line_bytes - 1));
}

// A stage holds 128 k: token rows of 128 bytes, the packed tiles, and the scales of the tokens.
template <PackedType type, class Shape>
struct Fp8Shared {
    static constexpr uint32_t tile_bytes =
        tokens_as_a<Shape> ? round_up(staged_tile_bytes(type, 2), 16) + line_bytes - 16
                           : staged_tile_room(type, 2);
    static constexpr uint32_t tiles = Shape::most_rows * fp8_block_columns;
    static constexpr uint32_t token_scales =
        tiles + Shape::packed_tiles * tile_bytes + (tokens_as_a<Shape> ? line_bytes : 0);
    static constexpr uint32_t stage_bytes = round_up(token_scales + 4 * Shape::most_rows, 1024);
    static constexpr uint32_t n_stages = Shape::pipeline_bytes / stage_bytes;

    static constexpr uint32_t staging = n_stages * stage_bytes;
    // Each warpgroup stages in the linear epilogue, both together in the gated one.
    static constexpr uint32_t linear_bytes = 2 * Shape::staging_bytes;
    static constexpr uint32_t gated_bytes =
        tokens_as_a<Shape> ? linear_bytes : fp8_staged_row_bytes * Shape::most_rows;
    static constexpr uint32_t staging_bytes =
        linear_bytes > gated_bytes ? linear_bytes : gated_bytes;
    static constexpr uint32_t headers = staging + staging_bytes;
    static constexpr uint32_t barriers = headers + n_stages * work_tile_bytes;
    static constexpr uint32_t work_tiles = barriers + 16 * n_stages;
    static constexpr uint32_t bytes = work_tiles + 2 * (work_tile_bytes + 16);
    static constexpr uint32_t alignment = 1024;
    static_assert(Shape::blocks_per_sm * (bytes + 1024) <= 228 * 1024);
};

// Position in the pipeline. Producers and consumers advance alike, and producers begin with phase
// 1.
template <PackedType type, class Shape>
struct Fp8Pipeline {
    using Shared = Fp8Shared<type, Shape>;
    uint32_t base;
    bool is_indexed;  // cp.async brings the tokens, so that wgmma needs a proxy fence
    uint32_t stage = 0;
    uint32_t phase = 0;

    __device__ uint32_t data() const { return base + stage * Shared::stage_bytes; }
    __device__ uint32_t header() const { return base + Shared::headers + stage * work_tile_bytes; }
    __device__ uint32_t full() const { return base + Shared::barriers + 8 * stage; }
    __device__ uint32_t empty() const { return full() + 8 * Shared::n_stages; }
    __device__ void wait_full() const {
        mbarrier_wait(full(), phase);
        if (is_indexed) async_proxy_fence();
    }
    __device__ void wait_empty() const { mbarrier_wait(empty(), phase); }
    __device__ void advance() {
        if (++stage == Shared::n_stages) {
            stage = 0;
            phase ^= 1;
        }
    }
};

// A consumer warp's packed tile in the stages of a work tile. Blocks have 64 k and come in order; a
// stage begins with an even one.
template <class Dequant, class Shape>
struct Fp8StagedTile {
    static constexpr PackedType type = Dequant::type;
    using Shared = Fp8Shared<type, Shape>;
    uint32_t lane;
    uint32_t offset;
    PackedTile<type> packed;
    typename KeptScalesOf<Dequant>::Type kept;
    uint32_t kept_until = 0;  // of a grid: the first block that kept scales do not serve

    __device__ explicit Fp8StagedTile(const LaneWork& work)
        : lane(work.lane),
          offset(Shared::tiles + work.local_tile() * Shared::tile_bytes),
          packed(work.gemm, work.work_tile.expert, work.packed_tile()) {}

    // The operands of n blocks of the stage at `data`, whose first block has this number in the
    // matrix. Returns the scales of rows g and g + 8 of the lane.
    template <int n>
    __device__ __forceinline__ float2 operands(uint32_t data, uint32_t first,
                                               uint32_t (&a)[8 * n]) {
        if constexpr (is_grid(type)) {
            const float2 of_rows = scales(data, first);
#pragma unroll
            for (int i = 0; i < n; ++i)
                Dequant::operands(codes(data, first, static_cast<uint32_t>(i)), lane, kept,
                                  a + 8 * i);
            return of_rows;
        } else if constexpr (requires { Dequant::finds_scales; }) {
            return Dequant::template operands<n>(
                [&](int i) { return codes(data, first, static_cast<uint32_t>(i)); }, lane, a);
        } else {
#pragma unroll
            for (int i = 0; i < n; ++i)
                Dequant::operands(codes(data, first, static_cast<uint32_t>(i)), lane, a + 8 * i);
            return scales(data, first);
        }
    }

  private:
    // The codes of block i of the stage at `data`.
    __device__ __forceinline__ uint32_t codes(uint32_t data, uint32_t first, uint32_t i) const {
        const uint32_t at = packed.staged_begin(data + offset, first, 2);
        if constexpr (is_grid(type))
            return at +
                   static_cast<uint32_t>(packed.records.codes(static_cast<int32_t>(first + i)));
        else
            return at + i * staged_block_bytes(type);
    }
    // The scales of row g and of row g + 8 of the lane, which hold for all of the stage.
    __device__ __forceinline__ float2 scales(uint32_t data, uint32_t first) {
        const uint32_t at = codes(data, first, 0);
        if constexpr (is_grid(type)) {
            if (first >= kept_until) {
                kept_until = first + packed.records.group_blocks;
                kept.load(packed.records, at - static_cast<uint32_t>(packed.records.front_bytes),
                          lane);
            }
            return kept.scale;
        } else {
            return Dequant::scales(at + block_code_bytes(type, 4));
        }
    }
};

// Blocks of 64 k, and of 128 k, of the weights.
__device__ __forceinline__ uint32_t weight_blocks(const GemmArgs& gemm) {
    return static_cast<uint32_t>(gemm.weights.k) / 64;
}
__device__ __forceinline__ uint32_t token_blocks(const GemmArgs& gemm) {
    return (weight_blocks(gemm) + 1) / 2;
}

// Row blocks of 8 packed tiles of an item: of a gated GEMM two, which have the 128 features of a
// scale; and those of a work tile.
template <class Shape>
__host__ __device__ constexpr int32_t row_blocks_of_item(Epilogue epilogue) {
    return tokens_as_a<Shape> || epilogue == Epilogue::gated ? 2 : 1;
}
template <class Shape>
constexpr int32_t row_blocks_of_work_tile = Shape::packed_tiles / tiles_per_block;

}  // namespace moe::cuda
