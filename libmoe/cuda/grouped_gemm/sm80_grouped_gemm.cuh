// The portable grouped GEMM (gemm_args.hpp): any packed type but f32, any shape, every GPU from
// sm_80 on, with mma.sync.m16n8k16, 16-bit operands and float32 accumulators.
//
// Inputs: packed weights (packed/layout.hpp) [experts][n_tiles * 16][k]; input rows of F32, F16 or
// BF16 with any stride and index; tiles of up to 128 rows of one expert (sm80_wide_tiles), or of up
// to 64 (sm80_narrow_tiles, which narrow and middle kernels take).
// Output: rows of gemm.out's type, after the epilogue.
// Preconditions: input rows have a multiple of 16 columns. Those of the operand type that begin on
// 16 bytes are copied, all others are converted. Rows of a matrix with a table come gathered.
//
// Work items (Sm80Items) are a token tile and eight packed tiles, 128 weight rows.
//
// 1. A block takes work items in turn (persistent kernel).
// 2. It fills pipeline stages with cp.async (sm80_stage.cuh) and
// 3. multiplies them (sm80_mainloop.cuh), for the narrowest width that holds the tile's rows.
// 4. Epilogue: accumulators pass through shared memory (sm80_epilogue.cuh).
//
// Tiles of up to 16 rows have steps of their own (sm80_few_rows.cuh).
//
// A row's result does not depend on the shape or on the other rows: its sum has the order of k.
#pragma once

#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_epilogue.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_few_rows.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_instances.hpp"
#include "libmoe/cuda/grouped_gemm/sm80_mainloop.cuh"
#include "libmoe/cuda/kernel_types.hpp"

namespace moe::cuda {

// Finds the rows of an item and multiplies them. Accumulators end in the memory of the stages.
template <PackedType kind, Operand operand, Sm80Form form, class Shape, int width>
__device__ __forceinline__ void sm80_multiply(const Sm80Call& call, const Sm80Work& work,
                                              Sm80Shared<Shape>& shared, std::byte* memory) {
    using Fetch = Sm80Fetch<kind, operand, Shape, width>;
    using Mainloop = Sm80Mainloop<kind, operand, form, Shape, Fetch::rows, Fetch::k_blocks>;
    find_rows(call.gemm, work.tile, shared.rows);
    if (const auto row = static_cast<int>(threadIdx.x); row < Shape::max_rows)
        Fetch::TokenRows::store(shared.token_rows, row, shared.rows.in[row]);
    __syncthreads();
    typename Mainloop::Accumulators accum = {};
    const Fetch fetch(call, work, shared);
    const Sm80Stages& stages = call.stages[width];
    Sm80Pipeline<Fetch> pipeline(fetch, shared_address(memory), stages);
    const std::byte* weights =
        memory + Fetch::k_blocks * Fetch::token_bytes + Mainloop::first_tile() * stages.tile_bytes;
    Mainloop(call, work, stages, shared.codebook, shared_address(memory), weights)
        .run(accum, pipeline);
    wait_copies<0>();
    __syncthreads();
    sm80_store_accum<Shape, Mainloop::fragments>(accum, memory);
}

// The same for tiles of few rows.
template <PackedType kind, Operand operand, Sm80Form form, class Shape>
__device__ __forceinline__ void sm80_multiply_few(const Sm80Call& call, const Sm80Work& work,
                                                  Sm80Shared<Shape>& shared, std::byte* memory) {
    using FewRows = Sm80FewRows<kind, operand, form, Shape>;
    const FewRows few(call, work, shared, memory);
    find_rows(call.gemm, work.tile, shared.rows);
    __syncthreads();
    typename FewRows::Accumulators accum = {};
    few.run(accum);
    __syncthreads();
    sm80_store_accum<Shape, 2>(accum, memory);
}

// For the narrowest width, from `width` on, that holds the tile's rows.
template <PackedType kind, Operand operand, Sm80Form form, class Shape, int width = 0>
__device__ __forceinline__ void sm80_multiply_any(const Sm80Call& call, const Sm80Work& work,
                                                  Sm80Shared<Shape>& shared, std::byte* memory) {
    if constexpr (width + 1 < Shape::widths) {
        if (work.tile.n_rows > sm80_rows_of_width<Shape>(width))
            return sm80_multiply_any<kind, operand, form, Shape, width + 1>(call, work, shared,
                                                                            memory);
    }
    sm80_multiply<kind, operand, form, Shape, width>(call, work, shared, memory);
}

template <PackedType kind, Operand operand, Sm80Form form, class Shape>
__device__ __forceinline__ void sm80_run_item(const Sm80Call& call, const Sm80Work& work,
                                              Sm80Shared<Shape>& shared, std::byte* memory) {
    if constexpr (has_codebook(kind))
        load_codebook(call.gemm.weights, work.tile.expert, shared.codebook);
    if constexpr (Shape::few_rows > 0) {
        if (work.tile.n_rows <= Shape::few_rows)
            return sm80_multiply_few<kind, operand, form, Shape>(call, work, shared, memory);
    }
    sm80_multiply_any<kind, operand, form>(call, work, shared, memory);
}

template <PackedType kind, Operand operand, Sm80Form form, class Shape>
__global__ void __launch_bounds__(sm80_threads<Shape>, Shape::blocks_per_sm)
    sm80_grouped_kernel(const __grid_constant__ Sm80Call call) {
    extern __shared__ __align__(128) std::byte memory[];
    __shared__ Sm80Shared<Shape> shared;
    begin_after_previous_kernel();
    const Sm80Items items(call);
    for (uint32_t item = blockIdx.x; item < items.size(); item += gridDim.x) {
        const Sm80Work work = items.load(item);
        sm80_run_item<kind, operand, form, Shape>(call, work, shared, memory);
        __syncthreads();
        sm80_store_rows<Shape>(call, work, shared.rows, memory,
                               Sm80Dequant<kind, operand, form, 1>::residual_scale);
        __syncthreads();
    }
}

template <PackedType kind, Operand operand, Sm80Form form, class Shape>
Sm80Kernel sm80_kernel_of() {
    return {reinterpret_cast<const void*>(&sm80_grouped_kernel<kind, operand, form, Shape>),
            sm80_threads<Shape>, static_cast<int32_t>(sizeof(Sm80Shared<Shape>)),
            &sm80_config<kind, Shape>};
}

template <PackedType kind, Operand operand, Sm80Form form>
Sm80Kernel sm80_middle_of() {
    if constexpr (is_sm80_middle_kind(kind) &&
                  (form == Sm80Form::levels || !sm80_takes_levels<kind>))
        return sm80_kernel_of<kind, operand, form, Sm80Middle>();
    return {};
}

// The kernels of a type: square warp tiles for 16-bit weights.
template <PackedType kind, Operand operand, Sm80Form form>
Sm80Kernels sm80_kernels_of() {
    using Wide = std::conditional_t<code_bits(kind) == 16, Sm80Wide16, Sm80Wide>;
    using Narrow = std::conditional_t<sm80_is_by_value<kind>, Sm80NarrowByValue, Sm80Narrow>;
    return {sm80_kernel_of<kind, operand, form, Wide>(),
            sm80_kernel_of<kind, operand, form, Narrow>(), sm80_middle_of<kind, operand, form>()};
}
template <PackedType kind, Operand operand>
Sm80Kernels sm80_kernels_of(PackedType type) {
    if constexpr (sm80_takes_levels<kind>) {
        if (grid_records_of(type, 64).are_whole)
            return sm80_kernels_of<kind, operand, Sm80Form::levels>();
    }
    return sm80_kernels_of<kind, operand, Sm80Form::any>();
}

// Those of the type, if it is one of the list.
template <PackedType... kinds>
Sm80Kernels sm80_kernels_among(PackedType type, Operand operand) {
    Sm80Kernels found{};
    const auto take = [&]<PackedType kind>() {
        if (kind_of(type) != kind) return;
        found = operand == Operand::bf16 ? sm80_kernels_of<kind, Operand::bf16>(type)
                                         : sm80_kernels_of<kind, Operand::f16>(type);
    };
    (take.template operator()<kinds>(), ...);
    return found;
}

}  // namespace moe::cuda
