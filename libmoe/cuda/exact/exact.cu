// run_exact: grouped GEMM (gemm_args.hpp) of any packed type in float32: dequantized weights,
// float32 inputs and fma; nothing is rounded to 16 bits before the output.
//
// Inputs: packed weights (packed/layout.hpp) [experts][n_tiles * 16][k]; input rows of F32, F16 or
// BF16 with any stride; tiles of up to 16 rows of one expert.
// Output: rows of gemm.out's type, after the epilogue.
// Precondition: input rows have a multiple of 16 columns.
//
// A block has 256 threads. A work item is 16 tokens and 128 weight rows; warp w owns weight tile w
// of eight.
//
// 1. A block takes work items in turn (persistent kernel).
// 2. Per block of 64 columns it stores the tokens to shared memory as float32.
// 3. Mainloop: lane (g, t) dequantizes its columns of rows g and g + 8, accumulates
//    their products over the block for each token, and adds that to the token's two accumulators.
//    Two levels keep the chain of rounded additions short.
// 4. The four lanes of a row are reduced, and accumulators pass through shared memory to the
//    epilogue (epilogue.cuh).
#include "libmoe/cuda/dequant/values.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/epilogue.cuh"
#include "libmoe/cuda/exact/exact.hpp"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int n_threads = 32 * tiles_of_group;
constexpr int max_rows = exact_tiles.max_rows;
constexpr int blocks_per_sm = 2;

struct Shared {
    TileRows<max_rows> rows;
    float codebook[64];
    alignas(16) float tokens[max_rows][64];
    float accum[max_rows * accum_stride];
};

__device__ int warp_id() {
    return static_cast<int>(threadIdx.x) / 32;
}

__device__ int lane_id() {
    return static_cast<int>(threadIdx.x) % 32;
}

// Four columns stay together. The upper half of a row is swizzled, so that the four t of a warp
// read without bank conflicts.
__device__ int column_offset(int vector) {
    return 4 * (vector ^ (vector >> 3 & 1));
}

// The block at k0; n_columns of its 64 are there.
__device__ void fetch_tokens(const DeviceRows& in, int64_t k0, int n_columns, Shared& shared) {
    for (int i = static_cast<int>(threadIdx.x); i < max_rows * 64; i += n_threads) {
        const int row = i / 64;
        const int column = i % 64;
        const int64_t offset = shared.rows.in[row];
        const bool present = offset >= 0 && column < n_columns;
        shared.tokens[row][column_offset(column / 4) + column % 4] =
            present ? load_value(in.data, in.type, offset + k0 + column) : 0.0f;
    }
}

// Dequantizes the lane's 32 weights of the block at k0: values[2 (4 step + register) + parity].
__device__ void dequantize_weights(const PackedMatrix& weights, const WorkItem& work,
                                   const float* codebook, int64_t k0, float (&values)[32]) {
    const BlockOffset offset = block_offset(weights.type, k0);
    const std::byte* codes = work.codes + offset.codes;
    const std::byte* scales = work.codes + offset.scales;
    with_packed_type(weights.type, [&]<PackedType type>() {
        const auto words = ValueDequant<type>::load(weights.type, codes, scales, lane_id(), k0);
        dequantize_floats<type>(words, codebook, values);
    });
}

// Accumulates four steps of 4 columns of every token for rows g and g + 8.
__device__ void accumulate(const float (&values)[32], const float (&tokens)[max_rows][64],
                           int n_rows, float (&accum)[max_rows][2]) {
    const int t = lane_id() % 4;
#pragma unroll
    for (int row = 0; row < max_rows; ++row) {
        if (row >= n_rows) break;
        float partial[2] = {};
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            const float* at = &tokens[row][column_offset(4 * t + step)];
            const float4 x = *reinterpret_cast<const float4*>(at);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float* w = values + 8 * step + 2 * half;
                partial[half] = fmaf(w[0], x.x, partial[half]);
                partial[half] = fmaf(w[1], x.y, partial[half]);
                partial[half] = fmaf(w[4], x.z, partial[half]);
                partial[half] = fmaf(w[5], x.w, partial[half]);
            }
        }
        accum[row][0] += partial[0];
        accum[row][1] += partial[1];
    }
}

__device__ void multiply(const GemmArgs& gemm, const WorkItem& work, Shared& shared,
                         float (&accum)[max_rows][2]) {
    const PackedMatrix& weights = gemm.weights;
    for (int k0 = 0; k0 < weights.k; k0 += 64) {
        __syncthreads();  // all warps have used the previous tokens
        fetch_tokens(gemm.in, k0, gemm.in_columns - k0, shared);
        __syncthreads();
        if (!work.codes) continue;
        float values[32];
        dequantize_weights(weights, work, shared.codebook, k0, values);
        accumulate(values, shared.tokens, work.tile.n_rows, accum);
    }
}

// Reduces the four lanes of a row; lane t stores every fourth token.
__device__ void store_accum(const float (&accum)[max_rows][2], float* to) {
    const int g = lane_id() / 4;
    const int t = lane_id() % 4;
#pragma unroll
    for (int row = 0; row < max_rows; ++row) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float total = accum[row][half];
            total += __shfl_xor_sync(~0u, total, 1);
            total += __shfl_xor_sync(~0u, total, 2);
            if (row % 4 == t) to[row * accum_stride + 16 * warp_id() + g + 8 * half] = total;
        }
    }
}

__global__ void __launch_bounds__(n_threads, blocks_per_sm)
    exact_gemm(const __grid_constant__ GemmArgs gemm) {
    __shared__ Shared shared;
    begin_after_previous_kernel();
    const int64_t n_items = int64_t{gemm.n_tiles->all} * groups_of_tiles(gemm.weights);
    for (int64_t item = blockIdx.x; item < n_items; item += gridDim.x) {
        const WorkItem work = load_work_item(gemm, item);
        find_rows(gemm, work.tile, shared.rows);
        load_codebook(gemm.weights, work.tile.expert, shared.codebook);
        float accum[max_rows][2] = {};
        multiply(gemm, work, shared, accum);
        store_accum(accum, shared.accum);
        __syncthreads();
        tile_epilogue(gemm, work.tile, shared.rows, work.first_tile, shared.accum, 1.0f);
        __syncthreads();  // the next work item overwrites rows and accumulators
    }
}

}  // namespace

void run_exact(const DeviceFacts& device, const GemmArgs& gemm, const KernelName& name,
               cudaStream_t stream) {
    const int64_t n_items = int64_t{gemm.max_tiles} * groups_of_tiles(gemm.weights);
    const int64_t resident = blocks_per_sm * int64_t{device.n_sms};
    launch(name.c_str(), exact_gemm, n_items < resident ? n_items : resident, n_threads, 0, stream,
           gemm);
}

void prepare_exact() {
    load("exact gemm", exact_gemm);
}

}  // namespace moe::cuda
