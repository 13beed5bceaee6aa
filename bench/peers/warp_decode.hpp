// Warp decode, our own kernels after the description in morphllm's article "Morph-Decode" (April
// 2026): the baseline for small batches in NVFP4. Two kernels from expert ids to the weighted sum,
// a warp for every output, weights dequantized to float32 by arithmetic and multiplied on the CUDA
// cores.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace moe::bench {

// Shapes: gate and up [experts][intermediate][hidden], down [experts][hidden][intermediate], rows
// of e2m1 codes (the lower half of a byte first) with an E4M3 scale for 16 of them. hidden and
// intermediate are multiples of 16.
struct Fp4Matrix {
    const uint8_t* codes;
    const uint8_t* scales;
};
struct WarpDecode {
    int32_t hidden, intermediate, top_k;
    Fp4Matrix gate, up, down;
    const void* x;         // [n_tokens][hidden] bfloat16
    const int32_t* ids;    // [n_tokens][top_k]
    const float* weights;  // [n_tokens][top_k]
    void* h;               // [n_tokens][top_k][intermediate] bfloat16
    void* out;             // [n_tokens][hidden] bfloat16
};
void run_warp_decode(const WarpDecode& layer, int32_t n_tokens, cudaStream_t stream);

}  // namespace moe::bench
