// Values of rows of E4M3 (run_dequantize_rows, run_dequantize_sorted), for kernels that take x in
// 16 bits. A thread makes 16 columns, which have one scale.
#include "libmoe/cuda/dequant/e4m3.cuh"
#include "libmoe/cuda/device/call.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/element.cuh"
#include "libmoe/cuda/device/quantize.cuh"
#include "libmoe/cuda/dispatch/copy_rows.cuh"
#include "libmoe/cuda/fp8_blocks.hpp"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int n_threads = 128;
constexpr int32_t columns_at_once = 16;

// Rows in order, or by an index.
struct CountedRows {
    TokenCount tokens;
    const int32_t* index;

    __device__ int32_t used() const { return true_tokens(tokens); }
    __device__ int32_t source(int32_t r) const { return index ? load_global(index + r) : r; }
};

template <class Source>
__global__ void __launch_bounds__(n_threads)
    dequantize_rows(Fp8Rows rows, Source source, uint4* to, int32_t* index) {
    begin_after_previous_kernel();
    const int32_t of_row = rows.n_columns / columns_at_once;
    const int64_t n = int64_t{source.used()} * of_row;
    const int64_t step = int64_t{gridDim.x} * n_threads;
    for (int64_t i = int64_t{blockIdx.x} * n_threads + threadIdx.x; i < n; i += step) {
        const auto r = static_cast<int32_t>(i / of_row);
        const auto column = static_cast<int32_t>(i % of_row) * columns_at_once;
        const int64_t row = source.source(r);
        if (index && column == 0) index[r] = row < 0 ? -1 : r;
        if (row < 0) continue;
        const auto* data = static_cast<const uint8_t*>(rows.data);
        const uint4 words = load_16_codes(data + row * rows.stride + column);
        const float scale = rows.scales[row * rows.scale_stride + column / fp8_block_columns];
        uint32_t pairs[columns_at_once / 2];
#pragma unroll
        for (int j = 0; j < columns_at_once / 2; j++) {
            const FloatPair pair = e4m3_pair(word_of(words, j / 2) >> 16 * (j % 2));
            pairs[j] = bf16_pair(scale * pair.low, scale * pair.high);
        }
        to[2 * i] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        to[2 * i + 1] = make_uint4(pairs[4], pairs[5], pairs[6], pairs[7]);
    }
}

template <class Source>
void run(const DeviceFacts& device, const Fp8Rows& rows, const Source& source, int64_t most_rows,
         const ValueRows& out, cudaStream_t stream) {
    const int64_t n = most_rows * (rows.n_columns / columns_at_once);
    const int64_t blocks = (n + n_threads - 1) / n_threads;
    const int64_t most = int64_t{device.n_sms} * 16;
    launch("dequantize_rows", dequantize_rows<Source>, blocks < most ? blocks : most, n_threads, 0,
           stream, rows, source, static_cast<uint4*>(out.to), out.index);
}

}  // namespace

void run_dequantize_rows(const DeviceFacts& device, const Fp8Rows& rows, const TokenCount& tokens,
                         const ValueRows& out, cudaStream_t stream) {
    run(device, rows, CountedRows{tokens, out.from}, tokens.n, out, stream);
}

void run_dequantize_sorted(const DeviceFacts& device, const Fp8Rows& rows, const Rows& sorted,
                           const ValueRows& out, cudaStream_t stream) {
    run(device, rows, SortedRows{sorted, out.from, 1}, sorted.capacity, out, stream);
}

void prepare_dequantize_rows() {
    load("dequantize_rows", dequantize_rows<CountedRows>);
    load("dequantize_rows", dequantize_rows<SortedRows>);
}

}  // namespace moe::cuda
