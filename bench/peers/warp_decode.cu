// The kernels of warp_decode.hpp. A lane takes a group of 16 weights of a row at a time: 8 bytes of
// codes, one scale, 32 bytes of the other operand.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "bench/peers/warp_decode.hpp"

namespace moe::bench {
namespace {

constexpr int n_warps = 8;
constexpr int group = 16;

// An e2m1 code as float32, put together from its bits.
__device__ float value_of_code(uint32_t code) {
    const uint32_t sign = code >> 3 & 1, exponent = code >> 1 & 3, mantissa = code & 1;
    const uint32_t bits = exponent != 0 ? sign << 31 | (exponent + 126u) << 23 | mantissa << 22
                                        : sign << 31 | mantissa * (126u << 23);
    return __uint_as_float(bits);
}

__device__ float value_of_scale(uint8_t scale) {
    const __half_raw half = __nv_cvt_fp8_to_halfraw(scale, __NV_E4M3);
    return __half2float(__half(half));
}

struct Values {
    float at[group];

    // `from`: 16 values of bfloat16.
    __device__ explicit Values(const __nv_bfloat16* from) {
        const auto* words = reinterpret_cast<const uint4*>(from);
        for (int i = 0; i < 2; ++i) {
            const uint4 w = words[i];
            const uint32_t pairs[4] = {w.x, w.y, w.z, w.w};
            for (int j = 0; j < 4; ++j) {
                at[8 * i + 2 * j] = __uint_as_float(pairs[j] << 16);
                at[8 * i + 2 * j + 1] = __uint_as_float(pairs[j] & 0xFFFF0000u);
            }
        }
    }
};

// The dot product with group `index` of a matrix, counted through all of its rows.
__device__ float dot(const Fp4Matrix& matrix, int64_t index, const Values& values) {
    const uint2 codes = reinterpret_cast<const uint2*>(matrix.codes)[index];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < group; ++i) {
        const uint32_t word = i < 8 ? codes.x : codes.y;
        sum = fmaf(value_of_code(word >> 4 * (i % 8) & 15), values.at[i], sum);
    }
    return sum * value_of_scale(matrix.scales[index]);
}

__device__ float warp_sum(float value) {
    for (int apart = 16; apart > 0; apart /= 2) value += __shfl_xor_sync(~0u, value, apart);
    return value;
}

__device__ int64_t own_warp() {
    return int64_t{blockIdx.x} * n_warps + threadIdx.x / 32;
}

// A warp for each neuron of each slot.
__global__ void __launch_bounds__(32 * n_warps) gate_up(WarpDecode layer, int32_t n_slots) {
    const int64_t slot = own_warp() / layer.intermediate;
    const int64_t neuron = own_warp() % layer.intermediate;
    if (slot >= n_slots) return;
    const int32_t n_groups = layer.hidden / group;
    const auto* x = static_cast<const __nv_bfloat16*>(layer.x) + slot / layer.top_k * layer.hidden;
    const int64_t row = (int64_t{layer.ids[slot]} * layer.intermediate + neuron) * n_groups;
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    float gate = 0.0f, up = 0.0f;
#pragma unroll 4
    for (int32_t i = lane; i < n_groups; i += 32) {
        const Values values(x + i * group);
        gate += dot(layer.gate, row + i, values);
        up += dot(layer.up, row + i, values);
    }
    gate = warp_sum(gate);
    up = warp_sum(up);
    if (lane == 0)
        static_cast<__nv_bfloat16*>(layer.h)[slot * layer.intermediate + neuron] =
            __float2bfloat16(gate / (1.0f + __expf(-gate)) * up);
}

// A warp for each output of each token.
__global__ void __launch_bounds__(32 * n_warps) down(WarpDecode layer, int32_t n_tokens) {
    const int64_t token = own_warp() / layer.hidden;
    const int64_t output = own_warp() % layer.hidden;
    if (token >= n_tokens) return;
    const int32_t n_groups = layer.intermediate / group;
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    float sum = 0.0f;
    for (int64_t slot = token * layer.top_k; slot < (token + 1) * layer.top_k; ++slot) {
        const auto* h = static_cast<const __nv_bfloat16*>(layer.h) + slot * layer.intermediate;
        const int64_t row = (int64_t{layer.ids[slot]} * layer.hidden + output) * n_groups;
        float of_slot = 0.0f;
#pragma unroll 2
        for (int32_t i = lane; i < n_groups; i += 32)
            of_slot += dot(layer.down, row + i, Values(h + i * group));
        sum = fmaf(layer.weights[slot], of_slot, sum);
    }
    sum = warp_sum(sum);
    if (lane == 0)
        static_cast<__nv_bfloat16*>(layer.out)[token * layer.hidden + output] =
            __float2bfloat16(sum);
}

unsigned blocks_for(int64_t n) {
    return static_cast<unsigned>((n + n_warps - 1) / n_warps);
}

}  // namespace

void run_warp_decode(const WarpDecode& layer, int32_t n_tokens, cudaStream_t stream) {
    const int32_t n_slots = n_tokens * layer.top_k;
    gate_up<<<blocks_for(int64_t{n_slots} * layer.intermediate), 32 * n_warps, 0, stream>>>(
        layer, n_slots);
    down<<<blocks_for(int64_t{n_tokens} * layer.hidden), 32 * n_warps, 0, stream>>>(layer,
                                                                                    n_tokens);
}

}  // namespace moe::bench
