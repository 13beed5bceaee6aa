// The portable grouped GEMM (gemm_args.hpp): any packed type but f32, any shape, every GPU from
// sm_80 on, with mma.sync.m16n8k16, 16-bit operands and float32 accumulators.
//
// Inputs: packed weights (packed/layout.hpp) [experts][n_tiles * 16][k]; input rows of F32, F16 or
// BF16 with any stride and index; tiles of up to 128 rows of one expert (sm80_wide_tiles), or of up
// to 64 (sm80_narrow_tiles).
// Output: rows of gemm.out's type, after the epilogue.
// Preconditions: input rows have a multiple of 16 columns. Those of the operand type that begin on
// 16 bytes are copied, all others are converted. Rows of a matrix with a table come gathered.
//
// Work items are a token tile and eight packed tiles, 128 weight rows. Those of sm80_raster token
// tiles follow each other for the same weights, so that weights are read from memory once for them.
//
// 1. A block takes work items in turn (persistent kernel).
// 2. It fills pipeline stages with cp.async (sm80_stage.cuh) and
// 3. multiplies them (sm80_mainloop.cuh), for the narrowest width that holds the tile's rows.
// 4. Epilogue: accumulators pass through shared memory (sm80_epilogue.cuh).
//
// A row's result does not depend on the shape or on the other rows: its sum has the order of k.
#pragma once

#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_epilogue.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_instances.hpp"
#include "libmoe/cuda/grouped_gemm/sm80_mainloop.cuh"

namespace moe::cuda {

constexpr int sm80_raster = 8;  // token tiles

// The narrowest width that holds the rows.
template <class Shape, class Call>
__device__ __forceinline__ void with_width(int n_rows, const Call& call) {
    static_assert(sm80_widths == 3);
    if constexpr (Shape::first_width == 0) {
        if (n_rows <= sm80_rows_of_width<Shape>(0)) return call.template operator()<0>();
    }
    if (n_rows <= sm80_rows_of_width<Shape>(1)) return call.template operator()<1>();
    call.template operator()<2>();
}

// `tile` counts the token tiles of a launch, `item` its work items.
__device__ __forceinline__ void sm80_find_item(int64_t item, int n_tiles, int n_groups, int& tile,
                                               int& group) {
    const int64_t of_raster = int64_t{sm80_raster} * n_groups;
    const auto raster = static_cast<int>(item / of_raster);
    const auto rest = static_cast<int>(item - raster * of_raster);
    const int n = min(sm80_raster, n_tiles - raster * sm80_raster);
    group = rest / n;
    tile = raster * sm80_raster + rest % n;
}

template <PackedType kind, Operand operand, class Shape, int width>
__device__ __forceinline__ void sm80_multiply(const Sm80Call& call, const Sm80Work& work,
                                              Sm80Shared<Shape>& shared, std::byte* stages) {
    using Mainloop = Sm80Mainloop<kind, operand, Shape, width>;
    if (const auto row = static_cast<int>(threadIdx.x); row < Shape::max_rows)
        Mainloop::Fetch::TokenRows::store(shared.token_rows, row, shared.rows.in[row]);
    __syncthreads();
    typename Mainloop::Accumulators accum = {};
    const typename Mainloop::Fetch fetch(call, work, shared);
    Sm80Pipeline<typename Mainloop::Fetch> pipeline(fetch, shared_address(stages),
                                                    call.stages[width]);
    Mainloop(call, work, shared.codebook, stages).run(accum, pipeline);
    wait_copies<0>();
    __syncthreads();
    sm80_store_accum<Shape, Mainloop::fragments>(accum, reinterpret_cast<float*>(stages));
}

template <PackedType kind, Operand operand, class Shape>
__device__ __forceinline__ void sm80_run_item(const Sm80Call& call, const Sm80Work& work,
                                              Sm80Shared<Shape>& shared, std::byte* stages) {
    find_rows(call.gemm, work.tile, shared.rows);
    if constexpr (has_codebook(kind))
        load_codebook(call.gemm.weights, work.tile.expert, shared.codebook);
    with_width<Shape>(work.tile.n_rows, [&]<int width>() {
        sm80_multiply<kind, operand, Shape, width>(call, work, shared, stages);
    });
    __syncthreads();
    sm80_store_rows<Shape>(call, work, shared.rows, reinterpret_cast<const float*>(stages),
                           sm80_residual_scale<kind, operand>());
    __syncthreads();
}

template <PackedType kind, Operand operand, class Shape>
__global__ void __launch_bounds__(sm80_threads<Shape>, Shape::blocks_per_sm)
    sm80_grouped_kernel(const __grid_constant__ Sm80Call call) {
    extern __shared__ __align__(128) std::byte stages[];
    __shared__ Sm80Shared<Shape> shared;
    begin_after_previous_kernel();
    const GemmArgs& gemm = call.gemm;
    const PackedMatrix& weights = gemm.weights;
    const int n_tiles = gemm.n_tiles->all;
    const int n_groups = (weights.n_tiles + sm80_tiles_of_block - 1) / sm80_tiles_of_block;
    for (int64_t item = blockIdx.x; item < int64_t{n_tiles} * n_groups; item += gridDim.x) {
        int tile, group;
        sm80_find_item(item, n_tiles, n_groups, tile, group);
        Sm80Work work;
        work.tile = gemm.tiles[tile];
        work.first_tile = group * sm80_tiles_of_block;
        work.n_tiles = min(sm80_tiles_of_block, weights.n_tiles - work.first_tile);
        work.weights = weights.data + work.tile.expert * weights.expert_stride +
                       work.first_tile * call.tile_stride;
        sm80_run_item<kind, operand, Shape>(call, work, shared, stages);
    }
}

template <PackedType kind, Operand operand, class Shape>
Sm80Kernel sm80_kernel_of() {
    return {reinterpret_cast<const void*>(&sm80_grouped_kernel<kind, operand, Shape>),
            sm80_threads<Shape>, static_cast<int32_t>(sizeof(Sm80Shared<Shape>)),
            &sm80_config<kind, Shape>};
}

// The kernels of a type: square warp tiles for 16-bit weights.
template <PackedType kind, Operand operand>
Sm80Kernels sm80_kernels_of() {
    using Wide = std::conditional_t<code_bits(kind) == 16, Sm80Wide16, Sm80Wide>;
    return {sm80_kernel_of<kind, operand, Wide>(), sm80_kernel_of<kind, operand, Sm80Narrow>()};
}

// Those of the type, if it is one of the list.
template <PackedType... kinds>
Sm80Kernels sm80_kernels_among(PackedType type, Operand operand) {
    Sm80Kernels found{};
    const auto take = [&]<PackedType kind>() {
        if (kind_of(type) != kind) return;
        found = operand == Operand::bf16 ? sm80_kernels_of<kind, Operand::bf16>()
                                         : sm80_kernels_of<kind, Operand::f16>();
    };
    (take.template operator()<kinds>(), ...);
    return found;
}

}  // namespace moe::cuda
