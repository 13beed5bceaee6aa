// Plain selection, the best k of up to 512 experts, for the shortest way from logits to ids. The
// same functions and sums in the same order as select.cu, which serves every other rule.
//
// A team of warps works on a token: 8 of them, the block, where there are few tokens, otherwise
// one. Its threads take the experts in turn; the code is in loops and not repeated for every expert
// of a thread, because one warp that runs through it once waits for instructions more than for
// results. Shared memory of a team as in select.cu. The kernel may be launched while the one that
// makes the logits runs.
//   1. wait for the logits; their parts added, published, sanitised, to shared memory
//   2. scores in place; the sum of a softmax is added by every warp, in the one order
//   3. the first warp: keys into registers, n of a lane; with groups only after those are limited
//   4. ids in order, weights, outputs
#include <algorithm>

#include "libmoe/cuda/router/select.cuh"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

struct Team {
    int32_t n_warps;  // all of the block's, or one
    int32_t thread;   // of the team
    float* maxima;    // one of each warp, where there are several

    __device__ int32_t step() const { return 32 * n_warps; }
    __device__ void meet() const {
        if (n_warps > 1)
            __syncthreads();
        else
            __syncwarp();
    }
    __device__ float max(float value) const {
        value = warp_max(value);
        if (n_warps == 1) return value;
        if (lane_index() == 0) maxima[warp_index()] = value;
        __syncthreads();
        return warp_max(maxima[min(lane_index(), n_warps - 1)]);
    }
};

// Returns the largest that the thread has taken.
__device__ float take_logits(const Team& team, const SelectInput& input, const SelectOutput& output,
                             int32_t t, float* scores) {
    const int32_t n = input.routing.n_experts_all;
    float* published = output.out_logits;
    if (published) published += t * output.out_logits_stride;
    float top = -largest;
#pragma unroll 1
    for (int32_t i = team.thread; i < n; i += 2 * team.step()) {
        float z[2];
        add_parts(input.logits, t, i, team.step(), n, z);
#pragma unroll
        for (int32_t j = 0; j < 2; j++) {
            const int32_t e = i + j * team.step();
            if (e >= n) continue;
            scores[e] = take_logit(input, e, z[j], published);
            top = fmaxf(top, scores[e]);
        }
    }
    return top;
}

// Each thread its own experts; ends with all of them done.
__device__ void softmax(const Team& team, int32_t n, float top, float* scores) {
    top = team.max(top);
#pragma unroll 2
    for (int32_t i = team.thread; i < n; i += team.step())
        scores[i] = exponential(subtract(scores[i], top));
    team.meet();
    float sum = 0.0f;
#pragma unroll 4
    for (int32_t i = lane_index(); i < n; i += 32) sum = add(sum, scores[i]);
    sum = warp_sum(sum);
    team.meet();
#pragma unroll 2
    for (int32_t i = team.thread; i < n; i += team.step()) scores[i] = divide(scores[i], sum);
}

__device__ void make_scores(const Team& team, const SelectInput& input, float top,
                            const WarpMemory& memory) {
    const Routing& r = input.routing;
    const int32_t n = r.n_experts_all;
    if (r.score == MOE_SCORE_SOFTMAX) {
        softmax(team, n, top, memory.scores);
    } else if (r.score != MOE_SCORE_NONE) {
#pragma unroll 1
        for (int32_t i = team.thread; i < n; i += team.step())
            memory.scores[i] = score_of(r.score, memory.scores[i]);
    }
    if (memory.keys == memory.scores) return;
    const float* bias = input.selection_bias;
#pragma unroll 1
    for (int32_t i = team.thread; i < n; i += team.step()) {
        const float score = memory.scores[i];
        memory.keys[i] = finite_logit(bias ? add(score, bias[i]) : score);
    }
}

template <int n>
__global__ void __launch_bounds__(most_warps * 32)
    top_k_experts(SelectInput input, TokenCount tokens, SelectOutput output,
                  int32_t warps_of_team) {
    extern __shared__ float shared[];
    const auto warps = static_cast<int32_t>(blockDim.x / 32);
    const int32_t teams = warps / warps_of_team;
    const int32_t own = warps_of_team > 1 ? 0 : warp_index();
    const auto t = static_cast<int32_t>(blockIdx.x) * teams + own;
    const Team team{warps_of_team, static_cast<int32_t>(threadIdx.x) - own * 32, shared};
    const WarpMemory memory = memory_at(input, shared + most_warps + own * warp_floats(input));
    wait_for_previous_kernel();
    if (t >= true_tokens(tokens)) return;

    const Routing& r = input.routing;
    const float top = take_logits(team, input, output, t, memory.scores);
    make_scores(team, input, top, memory);
    team.meet();
    if (team.thread >= 32) return;
    if (r.n_group > 1) limit_groups(r, memory);
    float keys[n];
#pragma unroll
    for (int32_t j = 0; j < n; j++)
        keys[j] = memory.keys[min(lane_index() + 32 * j, r.n_experts_all - 1)];
    const Slots<int32_t> ids = first_of(RegisterOrder<n>(keys, r.n_experts_all), r.top_k);
    store_slots(input, output, t, ids, score_weights(r, memory.scores, ids));
}

using TopKKernel = void (*)(SelectInput, TokenCount, SelectOutput, int32_t);

TopKKernel top_k_kernel(int32_t n_experts) {
    return n_experts <= 128   ? top_k_experts<4>
           : n_experts <= 256 ? top_k_experts<8>
                              : top_k_experts<16>;
}

}  // namespace

void launch_top_k(const DeviceFacts& device, cudaStream_t stream, const SelectInput& input,
                  const TokenCount& tokens, const SelectOutput& output) {
    if (tokens.n <= 0) return;
    const bool few = tokens.n <= 4 * device.n_sms;
    const int32_t warps =
        few ? std::min(most_warps, (input.routing.n_experts_all + 31) / 32) : most_warps;
    const int32_t teams = few ? 1 : warps;
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>((tokens.n + teams - 1) / teams));
    config.blockDim = dim3(static_cast<unsigned>(warps * 32));
    config.dynamicSmemBytes =
        (most_warps + static_cast<size_t>(teams * warp_floats(input))) * sizeof(float);
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = input.logits.is_product && device.major >= 9 ? 1 : 0;
    check(cudaLaunchKernelEx(&config, top_k_kernel(input.routing.n_experts_all), input, tokens,
                             output, warps / teams),
          "top_k_experts");
}

void prepare_top_k() {
    for (const int32_t n : {128, 256, 512}) load("top_k_experts", top_k_kernel(n));
}

}  // namespace moe::cuda
