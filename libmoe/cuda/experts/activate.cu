// run_activate: the activation by itself, for gate and up that lie in float32 rows (experts.hpp).
//
// in: rows [2 n_features] (gate first) or, of layers without a gate, [n_features]; row r of a tile
// is row r of in. out: any type and stride, through its index. One block of threads takes 256
// features of the rows of every gridDim.x-th tile; each output is rounded to round_to, then stored.
#include "libmoe/cuda/device/elements.cuh"
#include "libmoe/cuda/experts/experts.hpp"
#include "libmoe/cuda/runtime/check.hpp"
#include "libmoe/layer/activation.hpp"

namespace moe::cuda {
namespace {

constexpr int n_threads = 256;
constexpr int most_blocks_per_sm = 8;

__global__ void __launch_bounds__(n_threads)
    activate_rows(const __grid_constant__ ActivateRows rows) {
    const int32_t f = static_cast<int32_t>(blockIdx.y * n_threads + threadIdx.x);
    if (f >= rows.n_features) return;
    void* out = const_cast<void*>(rows.out.data);
    for (int32_t i = static_cast<int32_t>(blockIdx.x); i < *rows.n_tiles;
         i += static_cast<int32_t>(gridDim.x)) {
        const Tile tile = rows.tiles[i];
        for (int32_t r = tile.row; r < tile.row + tile.n_rows; ++r) {
            const int64_t to = row_offset(rows.out, r);
            if (to < 0) continue;
            const float* from = rows.in + r * rows.in_stride;
            const float gate = rows.activation.gated ? from[f] : 0.0f;
            const float up = rows.activation.gated ? from[int64_t{rows.n_features} + f] : from[f];
            const float value = activate(rows.activation, gate, up);
            store_element(out, rows.out.type, to + f, round_to_type(value, rows.round_to));
        }
    }
}

}  // namespace

void run_activate(const DeviceFacts& device, const ActivateRows& rows, cudaStream_t stream) {
    if (rows.max_tiles == 0 || rows.n_features == 0) return;
    const int64_t most = int64_t{most_blocks_per_sm} * device.n_sms;
    cudaLaunchConfig_t config = {};
    config.gridDim.x = static_cast<unsigned>(rows.max_tiles < most ? rows.max_tiles : most);
    config.gridDim.y = static_cast<unsigned>((rows.n_features + n_threads - 1) / n_threads);
    config.blockDim = n_threads;
    config.stream = stream;
    check(cudaLaunchKernelEx(&config, activate_rows, rows), "launch of the activation");
}

void prepare_activate() {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, activate_rows), "loading the activation");
}

}  // namespace moe::cuda
