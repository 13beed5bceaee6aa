// Combine: the weighted sum over a token's slots with everything that is added to it, and the copy
// of rows to slots.
//
// Inputs: CombineInput: y rows [.., width] of F32, F16 or BF16; slot-to-row map, ids and weights
// [T, k]; optional identity input, down biases, routed sum, shared expert and its gate.
// Output: out [T, width] of F32, F16 or BF16, the sum in slot order and float32.
// Preconditions: k up to 64; out may be `routed` itself, because a thread reads its columns before
// it writes them.
//
// A thread block owns one token and 128 x n adjacent columns. n is 8 where every pointer and stride
// allows 16-byte accesses (`packets`) and the grid is large enough, else 1.
//   1. issue the loads that depend on no other: threads j < k load weight, expert and row of slot
//      j, all threads load the shared expert's columns; compute the gate's dot product, if it is
//      fused
//   2. store row, weight and expert of the slots to shared memory
//   3. load rows of y in slot order, several loads in flight at a time, and add each by one fma
//   4. add identity experts, down biases, the routed sum and the shared expert, in this order
//   5. scale, add the old value of out, round once
#include "libmoe/cuda/combine/row_dot.cuh"

#include "libmoe/cuda/device/call.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/parameters.cuh"
#include "libmoe/cuda/runtime/launch.cuh"
#include "libmoe/layer/routing_math.hpp"

namespace moe::cuda {
namespace {

constexpr int n_threads = 128;
constexpr int32_t max_slots = 64;
constexpr int32_t max_at_once = 16;

// Slot data of the block's token, in shared memory.
struct TokenSlots {
    int64_t row[max_slots + max_at_once];  // element offset of its row of y; -1: none
    float row_weight[max_slots + max_at_once];
    float identity_weight[max_slots];
    bool is_identity[max_slots];
    int32_t biased_expert[max_slots];  // -1: none
};

// Data of one slot whose loads may be in flight.
struct PrefetchedSlot {
    int32_t id = -1;
    float weight = 1.0f;
    int32_t row = 0;
};

__device__ PrefetchedSlot issue_slot_loads(const CombineInput& in, int32_t t, int32_t j) {
    PrefetchedSlot prefetched;
    if (j >= in.top_k) return prefetched;
    const int64_t slot = static_cast<int64_t>(t) * in.top_k + j;
    if (in.ids) prefetched.id = in.ids[slot];
    if (in.weights) prefetched.weight = in.weights[slot];
    if (in.slot_to_row) prefetched.row = in.slot_to_row[slot];
    return prefetched;
}

__device__ void store_slot(const CombineInput& in, int32_t t, int32_t j,
                           const PrefetchedSlot& prefetched, TokenSlots& slots) {
    const int32_t id = prefetched.id;
    const bool is_routed = id >= 0 && id < in.n_experts;
    const int64_t row =
        in.slot_to_row ? prefetched.row * in.y_stride : t * in.y_token_stride + j * in.y_stride;
    slots.row[j] = in.y && prefetched.row >= 0 && (is_routed || !in.ids) ? row : -1;
    slots.row_weight[j] = in.weighted ? prefetched.weight : 1.0f;
    slots.identity_weight[j] = prefetched.weight;
    slots.is_identity[j] = in.x && id >= in.n_experts && id < in.n_experts_all;
    slots.biased_expert[j] = in.down_bias && is_routed ? id : -1;
}

template <int n>
__device__ void add_scaled(float (&sum)[n], float factor, const float (&values)[n]) {
#pragma unroll
    for (int i = 0; i < n; i++) sum[i] = fmaf(factor, values[i], sum[i]);
}

template <moe_type y_type, int n>
__device__ void add_rows(const CombineInput& in, const TokenSlots& slots, int64_t column,
                         float (&sum)[n]) {
    constexpr int32_t at_once = n == 1 ? max_at_once : y_type == MOE_TYPE_F32 ? 4 : 8;
    for (int32_t j = 0; j < in.top_k; j += at_once) {
        Packet<y_type, n> packet[at_once];
#pragma unroll
        for (int32_t i = 0; i < at_once; i++) {
            const int64_t row = slots.row[j + i];
            if (row >= 0) packet[i].load(element_at(in.y, y_type, row + column));
        }
#pragma unroll
        for (int32_t i = 0; i < at_once; i++) {
            if (slots.row[j + i] < 0) continue;
            const float weight = slots.row_weight[j + i];
#pragma unroll
            for (int c = 0; c < n; c++) sum[c] = fmaf(weight, packet[i].value(c), sum[c]);
        }
    }
}

template <int n>
__device__ void add_identity(const CombineInput& in, const TokenSlots& slots, int32_t t,
                             int64_t column, float (&sum)[n]) {
    if (!in.x) return;
    float x[n];
    load_values(in.x, in.x_type, t * in.x_stride + column, x);
    for (int32_t j = 0; j < in.top_k; j++)
        if (slots.is_identity[j]) add_scaled(sum, slots.identity_weight[j], x);
}

template <int n>
__device__ void add_bias(const CombineInput& in, const TokenSlots& slots, int64_t column,
                         float (&sum)[n]) {
    if (!in.down_bias) return;
    for (int32_t j = 0; j < in.top_k; j++) {
        const int64_t expert = slots.biased_expert[j];
        if (expert < 0) continue;
        float bias[n];
        load_values(in.down_bias, MOE_TYPE_F32, expert * in.width + column, bias);
        add_scaled(sum, slots.row_weight[j], bias);
    }
}

template <int n>
__device__ void add_sums(const CombineInput& in, int32_t t, int64_t column,
                         const float (&shared)[n], float gate, float (&sum)[n]) {
    if (in.routed) {
        float values[n];
        load_values(in.routed, in.routed_type, t * in.routed_stride + column, values);
        add_scaled(sum, 1.0f, values);
    }
    if (in.shared) add_scaled(sum, in.shared_scale * gate, shared);
}

template <int n>
__device__ void store_sum(const CombineInput& in, const CombineOutput& out, int32_t t,
                          int64_t column, float (&sum)[n]) {
    const int64_t index = t * out.stride + column;
    float before[n] = {};
    if (out.accumulate) load_values(out.data, out.type, index, before);
#pragma unroll
    for (int i = 0; i < n; i++) sum[i] = fmaf(in.scale, sum[i], before[i]);
    store_values(out.data, out.type, index, sum);
}

template <moe_type y_type, int n, bool packets>
__global__ void __launch_bounds__(n_threads)
    combine_slots(const __grid_constant__ CombineInput in, TokenCount tokens,
                  const __grid_constant__ CombineOutput out, int32_t column_blocks) {
    __shared__ TokenSlots slots;
    __shared__ float gate_slices[n_slices];
    fetch_parameter(in);
    begin_after_previous_kernel();
    const auto t = static_cast<int32_t>(blockIdx.x / column_blocks);
    if (t >= true_tokens(tokens)) return;
    const auto j = static_cast<int32_t>(threadIdx.x);
    const int64_t column = (int64_t{blockIdx.x % column_blocks} * n_threads + threadIdx.x) * n;
    const bool has_columns = column < in.width;
    const PrefetchedSlot prefetched = issue_slot_loads(in, t, j);
    float shared[n] = {};
    if (in.shared && has_columns) {
        const int64_t row = t + (in.shared_first ? *in.shared_first : 0);
        load_values(in.shared, in.shared_type, row * in.shared_stride + column, shared);
    }
    const float gate_sum = in.shared_gate ? in.shared_gate[t] : 0.0f;
    if (in.gate.row) dot_slices<n_threads / 32, packets>(in.gate, t, gate_slices);
    if (j < in.top_k)
        store_slot(in, t, j, prefetched, slots);
    else if (j < in.top_k + max_at_once)
        slots.row[j] = -1;
    __syncthreads();
    if (!has_columns) return;

    float sum[n] = {};
    add_rows<y_type>(in, slots, column, sum);
    add_identity(in, slots, t, column, sum);
    add_bias(in, slots, column, sum);
    const float gate = in.gate.row      ? routing_math::sigmoid(add_slices(gate_slices))
                       : in.shared_gate ? routing_math::sigmoid(gate_sum)
                                        : 1.0f;
    add_sums(in, t, column, shared, gate, sum);
    store_sum(in, out, t, column, sum);
}

// ---- copies

struct CopyInput {
    const void* y;
    moe_type y_type;
    int64_t y_stride;
    const int32_t* slot_to_row;  // [T k]; null: row t k + j
    int32_t top_k;
    int32_t width;
    bool zero_missing;  // slots without a row: zero, or not written
};

template <int n>
__global__ void __launch_bounds__(n_threads)
    copy_rows(CopyInput in, TokenCount tokens, CombineOutput out, int32_t column_blocks) {
    begin_after_previous_kernel();
    const auto slot = static_cast<int64_t>(blockIdx.x / column_blocks);
    if (slot >= static_cast<int64_t>(true_tokens(tokens)) * in.top_k) return;
    const int64_t column = (int64_t{blockIdx.x % column_blocks} * n_threads + threadIdx.x) * n;
    const int64_t row = in.slot_to_row ? in.slot_to_row[slot] : slot;
    if (column >= in.width || (row < 0 && !in.zero_missing)) return;
    float values[n] = {};
    if (row >= 0) load_values(in.y, in.y_type, row * in.y_stride + column, values);
    const int64_t index = slot / in.top_k * out.stride + slot % in.top_k * in.width + column;
    store_values(out.data, out.type, index, values);
}

// ---- host

bool takes_packets_or_null(const void* data, int64_t stride) {
    return !data || takes_packets(data, stride);
}

bool all_take_packets(const CombineInput& in, const CombineOutput& out) {
    return takes_packets_or_null(in.y, in.y_stride) && in.y_token_stride % 8 == 0 &&
           takes_packets_or_null(in.x, in.x_stride) &&
           takes_packets_or_null(in.down_bias, in.width) &&
           takes_packets_or_null(in.routed, in.routed_stride) &&
           takes_packets_or_null(in.shared, in.shared_stride) &&
           takes_packets_or_null(in.gate.x, in.gate.stride) && in.gate.width % 8 == 0 &&
           takes_packets(out.data, out.stride) && in.width % 8 == 0;
}

int32_t column_blocks_of(int32_t width, bool packets) {
    const int32_t columns = n_threads * (packets ? 8 : 1);
    return (width + columns - 1) / columns;
}

using CombineKernel = void (*)(CombineInput, TokenCount, CombineOutput, int32_t);

template <int n, bool packets>
CombineKernel combine_kernel(moe_type y_type) {
    if (y_type == MOE_TYPE_F32) return combine_slots<MOE_TYPE_F32, n, packets>;
    if (y_type == MOE_TYPE_F16) return combine_slots<MOE_TYPE_F16, n, packets>;
    return combine_slots<MOE_TYPE_BF16, n, packets>;
}

CombineKernel combine_kernel(moe_type y_type, bool packets, bool wide) {
    if (!packets) return combine_kernel<1, false>(y_type);
    return wide ? combine_kernel<8, true>(y_type) : combine_kernel<1, true>(y_type);
}

void copy(const CopyInput& in, const TokenCount& tokens, const CombineOutput& out,
          cudaStream_t stream) {
    const bool packets = takes_packets(in.y, in.y_stride) && takes_packets(out.data, out.stride) &&
                         in.width % 8 == 0;
    const int32_t column_blocks = column_blocks_of(in.width, packets);
    launch("copy_rows", packets ? copy_rows<8> : copy_rows<1>,
           int64_t{tokens.n} * in.top_k * column_blocks, n_threads, 0, stream, in, tokens, out,
           column_blocks);
}

}  // namespace

void run_combine(const DeviceFacts& device, const CombineInput& input, const TokenCount& tokens,
                 const CombineOutput& output, cudaStream_t stream) {
    const bool packets = all_take_packets(input, output);
    const bool wide =
        packets && int64_t{tokens.n} * column_blocks_of(input.width, true) >= int64_t{device.n_sms};
    const int32_t column_blocks = column_blocks_of(input.width, wide);
    launch("combine_slots", combine_kernel(input.y_type, packets, wide),
           int64_t{tokens.n} * column_blocks, n_threads, 0, stream, input, tokens, output,
           column_blocks);
}

void run_store_slots(const DeviceFacts&, const void* y, moe_type y_type, int64_t y_stride,
                     const int32_t* slot_to_row, int32_t top_k, int32_t width,
                     const TokenCount& tokens, void* out, moe_type out_type, int64_t out_stride,
                     cudaStream_t stream) {
    copy({y, y_type, y_stride, slot_to_row, top_k, width, true}, tokens,
         {out, out_type, out_stride, false}, stream);
}

void run_store_rows(const DeviceFacts&, const void* y, moe_type y_type, int64_t y_stride,
                    const int32_t* slot_to_row, int32_t n_rows, int32_t width, void* out,
                    moe_type out_type, int64_t out_stride, cudaStream_t stream) {
    copy({y, y_type, y_stride, slot_to_row, 1, width, false}, {n_rows, nullptr, 0},
         {out, out_type, out_stride, false}, stream);
}

void prepare_combine() {
    for (const moe_type type : {MOE_TYPE_F32, MOE_TYPE_F16, MOE_TYPE_BF16}) {
        load("combine_slots", combine_kernel(type, true, true));
        load("combine_slots", combine_kernel(type, true, false));
        load("combine_slots", combine_kernel(type, false, false));
    }
    load("copy_rows", copy_rows<8>);
    load("copy_rows", copy_rows<1>);
    prepare_norm();
}

}  // namespace moe::cuda
