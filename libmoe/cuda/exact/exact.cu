// run_exact: a grouped gemm (gemm_args.hpp) of any packed type and shape in float32: decoded
// weights and float32 inputs, fma, nothing rounded to 16 bits before the output.
//
// Weights: the packed layout (weights/packed.hpp), k a multiple of 16. Tiles: up to 16 rows of one
// expert. Input rows: F32, F16 or BF16, any stride. One block of 256 threads works on 16 tokens and
// 128 weight rows at a time; warp w owns weight tile w of the eight.
//   1. Each block of threads takes (token tile, group of weight tiles) pairs in turn.
//   2. For every block of 64, 32 or 16 columns the tokens go to shared memory as float32.
//   3. Lane (g, t) decodes its columns of rows g and g + 8, sums their products with every token,
//   and
//      adds that to its two sums of the token: two levels, so that no chain of additions is long.
//   4. The four lanes of a row are added; the sums go through shared memory to the epilogue.
#include "libmoe/cuda/dequant/packed_value.hpp"
#include "libmoe/cuda/dequant/values.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/epilogue.cuh"
#include "libmoe/cuda/gemm_families.hpp"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int n_threads = 32 * tiles_of_group;
constexpr int max_rows = exact_tiles.max_rows;
constexpr int blocks_per_sm = 2;

struct Shared {
    RowPlaces<max_rows> rows;
    float codebook[64];
    alignas(16) float tokens[max_rows][64];
    float sums[max_rows * sum_stride];
};

__device__ int warp_id() {
    return static_cast<int>(threadIdx.x) / 32;
}

__device__ int lane_id() {
    return static_cast<int>(threadIdx.x) % 32;
}

// Four columns lie together, at another place for the upper half of a row, so that the four t of a
// warp read from different banks.
__device__ int column_place(int chunk) {
    return 4 * (chunk ^ (chunk >> 3 & 1));
}

__device__ void fetch_tokens(const DeviceRows& in, int64_t k0, int columns, Shared& shared) {
    for (int i = static_cast<int>(threadIdx.x); i < max_rows * columns; i += n_threads) {
        const int row = i / columns;
        const int column = i % columns;
        const int64_t offset = shared.rows.in[row];
        shared.tokens[row][column_place(column / 4) + column % 4] =
            offset < 0 ? 0.0f : load_value(in.data, in.type, offset + k0 + column);
    }
}

// The lane's 8 n weights of the block at k0: values[2 (4 step + register) + parity].
__device__ void decode_weights(const PackedMatrix& weights, const Work& work, const float* codebook,
                               int64_t k0, int n, float (&values)[32]) {
    const BlockOffset place = block_offset(weights.type, weights.k, k0, n);
    const std::byte* codes = work.codes + place.codes;
    const std::byte* scales = work.codes + place.scales;
    const int lane = lane_id();
    if (n == 4 && !weights.columns) {
        with_packed_type(weights.type, [&]<PackedType type>() {
            const auto words = ValueDequant<type>::load(weights.type, codes, scales, lane, k0 / 64);
            dequantize_floats<type>(words, codebook, values);
        });
        return;
    }
#pragma unroll 1
    for (int i = 0; i < 8 * n; ++i) {
        const CodeIndex at{i / 8, i / 2 % 4, i % 2};
        const float value =
            packed_value(weights.type, codes, scales, codebook,
                         weights.columns_of(work.tile.expert, at.reg & 1), k0, n, lane, at);
#pragma unroll
        for (int j = 0; j < 32; ++j) values[j] = j == i ? value : values[j];
    }
}

// Adds the products of n steps of 4 columns with every token to the lane's sums of rows g and g
// + 8.
template <int n>
__device__ void add_products(const float (&values)[32], const float (&tokens)[max_rows][64],
                             int n_rows, float (&sums)[max_rows][2]) {
    const int t = lane_id() % 4;
#pragma unroll
    for (int row = 0; row < max_rows; ++row) {
        if (row >= n_rows) break;
        float part[2] = {};
#pragma unroll
        for (int step = 0; step < n; ++step) {
            const float* at = &tokens[row][column_place(n * t + step)];
            const float4 x = *reinterpret_cast<const float4*>(at);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float* w = values + 8 * step + 2 * half;
                part[half] = fmaf(w[0], x.x, part[half]);
                part[half] = fmaf(w[1], x.y, part[half]);
                part[half] = fmaf(w[4], x.z, part[half]);
                part[half] = fmaf(w[5], x.w, part[half]);
            }
        }
        sums[row][0] += part[0];
        sums[row][1] += part[1];
    }
}

__device__ void multiply(const GemmArgs& gemm, const Work& work, Shared& shared,
                         float (&sums)[max_rows][2]) {
    const PackedMatrix& weights = gemm.weights;
    int n;
    for (int64_t k0 = 0; (n = steps_of_block(k0, weights.k)) > 0; k0 += 16 * n) {
        __syncthreads();  // the tokens of the block before have been used
        fetch_tokens(gemm.in, k0, 16 * n, shared);
        __syncthreads();
        if (!work.codes) continue;
        float values[32];
        decode_weights(weights, work, shared.codebook, k0, n, values);
        if (n == 4) add_products<4>(values, shared.tokens, work.tile.n_rows, sums);
        if (n == 2) add_products<2>(values, shared.tokens, work.tile.n_rows, sums);
        if (n == 1) add_products<1>(values, shared.tokens, work.tile.n_rows, sums);
    }
}

// Adds the four lanes of a row; lane t stores every fourth token.
__device__ void store_sums(const float (&sums)[max_rows][2], float* to) {
    const int g = lane_id() / 4;
    const int t = lane_id() % 4;
#pragma unroll
    for (int row = 0; row < max_rows; ++row) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float sum = sums[row][half];
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            if (row % 4 == t) to[row * sum_stride + 16 * warp_id() + g + 8 * half] = sum;
        }
    }
}

__global__ void __launch_bounds__(n_threads, blocks_per_sm)
    exact_gemm(const __grid_constant__ GemmArgs gemm) {
    __shared__ Shared shared;
    begin_after_previous_kernel();
    const int64_t n_items = int64_t{gemm.n_tiles->all} * groups_of_tiles(gemm.weights);
    for (int64_t item = blockIdx.x; item < n_items; item += gridDim.x) {
        const Work work = take_work(gemm, item);
        find_rows(gemm, work.tile, shared.rows);
        load_codebook(gemm.weights, work.tile.expert, shared.codebook);
        float sums[max_rows][2] = {};
        multiply(gemm, work, shared, sums);
        store_sums(sums, shared.sums);
        __syncthreads();
        finish_tile(gemm, work.tile, shared.rows, work.first_tile, shared.sums, 1.0f);
        __syncthreads();  // before the next pair overwrites rows and sums
    }
}

}  // namespace

void run_exact(const DeviceFacts& device, const GemmArgs& gemm, cudaStream_t stream) {
    const int64_t n_items = int64_t{gemm.max_tiles} * groups_of_tiles(gemm.weights);
    const int64_t resident = blocks_per_sm * int64_t{device.n_sms};
    launch("exact gemm", exact_gemm, n_items < resident ? n_items : resident, n_threads, 0, stream,
           gemm);
}

void prepare_exact() {
    load("exact gemm", exact_gemm);
}

}  // namespace moe::cuda
