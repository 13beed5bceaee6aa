// run_activate: out = act(gate, up) for float32 rows that a GEMM without fused activation wrote.
//
// Inputs: in, float32 rows [2 n_features], gate first, or [n_features] for layers without a gate;
// row r of a tile is row r of in.
// Output: out, any type and stride, at the rows of its index. Each value is rounded to round_to
// first.
// Precondition: tiles cover the rows of in.
//
// 1. A block takes work items (a tile and 256 features) in turn.
// 2. Each thread activates one feature of every row of the tile.
#include "libmoe/base/half.hpp"
#include "libmoe/cuda/activation/activate.hpp"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/tile_work.cuh"
#include "libmoe/cuda/runtime/launch.cuh"
#include "libmoe/layer/activation.hpp"

namespace moe::cuda {
namespace {

constexpr int n_threads = 256;
constexpr int most_blocks_per_sm = 8;

__device__ void activate_row(const ActivateRows& rows, int32_t r, int32_t f) {
    const int64_t to = row_offset(rows.out, r);
    if (to < 0) return;
    const float* from = rows.in + r * rows.in_stride;
    const float gate = rows.activation.gated ? from[f] : 0.0f;
    const float up = rows.activation.gated ? from[int64_t{rows.n_features} + f] : from[f];
    const float value = round_to_type(activate(rows.activation, gate, up), rows.round_to);
    store_value(const_cast<void*>(rows.out.data), rows.out.type, to + f, value);
}

MOE_HOST_DEVICE int64_t n_parts(const ActivateRows& rows) {
    return (int64_t{rows.n_features} + n_threads - 1) / n_threads;
}

__global__ void __launch_bounds__(n_threads)
    activate_rows(const __grid_constant__ ActivateRows rows) {
    begin_after_previous_kernel();
    const int64_t n_items = rows.n_tiles->all * n_parts(rows);
    for (int64_t item = blockIdx.x; item < n_items; item += gridDim.x) {
        const Tile tile = rows.tiles[item / n_parts(rows)];
        const auto f = static_cast<int32_t>(item % n_parts(rows) * n_threads + threadIdx.x);
        if (f >= rows.n_features) continue;
        for (int32_t i = 0; i < tile.n_rows; ++i) activate_row(rows, tile.row + i, f);
    }
}

}  // namespace

void run_activate(const DeviceFacts& device, const ActivateRows& rows, cudaStream_t stream) {
    const int64_t n_items = rows.max_tiles * n_parts(rows);
    const int64_t most = int64_t{most_blocks_per_sm} * device.n_sms;
    launch("activation", activate_rows, n_items < most ? n_items : most, n_threads, 0, stream,
           rows);
}

void prepare_activate() {
    load("activation", activate_rows);
}

}  // namespace moe::cuda
