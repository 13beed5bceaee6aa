// Plain selection, the best k of up to 32 n experts, for the shortest way from logits to ids: a
// lane keeps its n values in registers from the logits to the order of keys, so that loads,
// exponentials and divisions of different experts overlap. The same functions and sums in the same
// order as select.cu, which serves every other rule.
//
// One warp per token. Shared memory of a warp as there; the kernel may be launched while the one
// that makes the logits runs.
//   1. biases into registers; wait for the logits; their parts added, published, sanitised
//   2. scores, also to shared memory, where the weights of chosen experts are found
//   3. keys; with groups they go through shared memory
//   4. ids in order, weights, outputs
#include "libmoe/cuda/router/select.cuh"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

template <int n>
__device__ void load_biases(const float* biases, int32_t n_experts, float (&bias)[n]) {
#pragma unroll
    for (int32_t j = 0; j < n; j++)
        bias[j] = biases ? biases[min(lane_index() + 32 * j, n_experts - 1)] : 0.0f;
}

template <int n>
__device__ void take_logits(const SelectInput& input, const SelectOutput& output, int32_t t,
                            const float (&bias)[n], float (&z)[n]) {
    const int32_t n_experts = input.routing.n_experts_all;
    add_parts(input.logits, t, lane_index(), n_experts, z);
    float* published = output.out_logits;
    if (published) published += t * output.out_logits_stride;
#pragma unroll
    for (int32_t j = 0; j < n; j++) {
        const int32_t i = lane_index() + 32 * j;
        z[j] = finish_logit(input.logits, z[j], bias[j]);
        if (published && i < n_experts) published[i] = z[j];
        z[j] = i < n_experts ? sanitized(input, z[j]) : -largest;
    }
}

// Values past the end are the least there is: they add nothing.
template <int n>
__device__ void softmax(float (&z)[n]) {
    float top = z[0];
#pragma unroll
    for (int32_t j = 1; j < n; j++) top = fmaxf(top, z[j]);
    top = warp_max(top);
#pragma unroll
    for (int32_t j = 0; j < n; j++) z[j] = exponential(subtract(z[j], top));
    float sum = 0.0f;
#pragma unroll
    for (int32_t j = 0; j < n; j++) sum = add(sum, z[j]);
    sum = warp_sum(sum);
#pragma unroll
    for (int32_t j = 0; j < n; j++) z[j] = divide(z[j], sum);
}

template <int n>
__device__ void apply_score(moe_score score, float (&z)[n]) {
    if (score == MOE_SCORE_SOFTMAX) {
        softmax(z);
    } else if (score == MOE_SCORE_SIGMOID) {
#pragma unroll
        for (int32_t j = 0; j < n; j++) z[j] = sigmoid(z[j]);
    } else if (score != MOE_SCORE_NONE) {
#pragma unroll
        for (int32_t j = 0; j < n; j++) z[j] = score_of(score, z[j]);
    }
}

template <int n>
__device__ void share_values(const float (&values)[n], int32_t n_experts, float* to) {
#pragma unroll
    for (int32_t j = 0; j < n; j++)
        if (lane_index() + 32 * j < n_experts) to[lane_index() + 32 * j] = values[j];
    __syncwarp();
}

template <int n>
__global__ void __launch_bounds__(most_warps * 32)
    top_k_experts(SelectInput input, TokenCount tokens, SelectOutput output) {
    extern __shared__ float shared[];
    const auto t = static_cast<int32_t>(blockIdx.x * (blockDim.x / 32)) + warp_index();
    const Routing& r = input.routing;
    const int32_t n_experts = r.n_experts_all;
    const WarpMemory memory = memory_of_warp(input, shared);
    float logit_bias[n];
    float selection_bias[n];
    load_biases(input.logits.bias, n_experts, logit_bias);
    load_biases(input.selection_bias, n_experts, selection_bias);
    wait_for_previous_kernel();
    if (t >= true_tokens(tokens)) return;

    float z[n];
    take_logits(input, output, t, logit_bias, z);
    apply_score(r.score, z);
    share_values(z, n_experts, memory.scores);
    if (input.selection_bias) {
#pragma unroll
        for (int32_t j = 0; j < n; j++) z[j] = finite_logit(add(z[j], selection_bias[j]));
    }
    if (r.n_group > 1) {
        share_values(z, n_experts, memory.keys);
        limit_groups(r, memory);
#pragma unroll
        for (int32_t j = 0; j < n; j++)
            z[j] = memory.keys[min(lane_index() + 32 * j, n_experts - 1)];
    }
    const Slots<int32_t> ids = first_of(RegisterOrder<n>(z, n_experts), r.top_k);
    store_slots(input, output, t, ids, score_weights(r, memory.scores, ids));
}

using TopKKernel = void (*)(SelectInput, TokenCount, SelectOutput);

TopKKernel top_k_kernel(int32_t n_experts) {
    return n_experts <= 128   ? top_k_experts<4>
           : n_experts <= 256 ? top_k_experts<8>
                              : top_k_experts<16>;
}

}  // namespace

void launch_top_k(const DeviceFacts& device, int64_t n_blocks, int64_t warps, int64_t bytes,
                  cudaStream_t stream, const SelectInput& input, const TokenCount& tokens,
                  const SelectOutput& output) {
    if (n_blocks <= 0) return;
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(n_blocks));
    config.blockDim = dim3(static_cast<unsigned>(warps * 32));
    config.dynamicSmemBytes = static_cast<size_t>(bytes);
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = input.logits.is_product && device.major >= 9 ? 1 : 0;
    check(cudaLaunchKernelEx(&config, top_k_kernel(input.routing.n_experts_all), input, tokens,
                             output),
          "top_k_experts");
}

void prepare_top_k() {
    for (const int32_t n : {128, 256, 512}) load("top_k_experts", top_k_kernel(n));
}

}  // namespace moe::cuda
