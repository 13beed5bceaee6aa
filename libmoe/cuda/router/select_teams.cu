// Selection among up to 512 experts, for the shortest way from logits to weights: the best k, or
// ids that are given or stand in the hash table. The same functions and sums in the same order as
// select.cu, which serves every other rule.
//
// A team of warps works on a token: the block, 8 of them or one for 32 experts, where there are few
// tokens, otherwise one. Its threads take the experts in turn; the code is in loops and not
// repeated for every expert of a thread, because one warp that runs through it once waits for
// instructions more than for results. Shared memory of a team as in select.cu.
//   1. while the kernel before runs: several warps ask for biases; then ids that are not chosen are
//      asked for; logits: their parts added, published, sanitised, to shared memory
//   2. scores in place; the sum of a softmax is added by every warp, in the one order
//   3. scores of groups; the first warp: keys outside the best groups as -inf, keys into registers,
//      n of a lane; ids in order, by the places of the few that can be among the first k, where
//      there are few. With n = 0: the ids asked for
//   4. weights, outputs
#include <algorithm>

#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/parameters.cuh"
#include "libmoe/cuda/router/select.cuh"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

struct Team {
    int32_t n_warps;  // all of the block's, or one
    int32_t thread;   // of the team
    float* maxima;    // of its warps

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

// Biases come from memory: they are on their way while the kernel before is still at work.
__device__ void ask_for_biases(const Team& team, const SelectInput& input) {
    const int32_t first = 8 * team.thread;
    if (team.n_warps == 1 || first >= input.routing.n_experts_all) return;
    if (input.logits.bias) prefetch_l2(input.logits.bias + first);
    if (input.selection_bias && !has_ids(input)) prefetch_l2(input.selection_bias + first);
}

// Returns the largest that the thread has taken.
__device__ float take_logits(const Team& team, const SelectInput& input, const SelectOutput& output,
                             int32_t t, float* scores) {
    const int32_t n = input.routing.n_experts_all;
    float* published = output.out_logits;
    if (published) published += t * output.out_logits_stride;
    float top = -largest;
    const auto take = [&](int32_t e, float z, float bias) {
        scores[e] = take_logit(input, e, z, bias, published);
        top = fmaxf(top, scores[e]);
    };
    if (n <= team.step()) {
        float z[1], bias[1];
        ask_bias(input.logits, team.thread, 0, n, bias);
        add_parts(input.logits, t, team.thread, 0, n, z);
        if (team.thread < n) take(team.thread, z[0], bias[0]);
        return top;
    }
#pragma unroll 1
    for (int32_t i = team.thread; i < n; i += 2 * team.step()) {
        float z[2], bias[2];
        ask_bias(input.logits, i, team.step(), n, bias);
        add_parts(input.logits, t, i, team.step(), n, z);
#pragma unroll
        for (int32_t j = 0; j < 2; j++)
            if (i + j * team.step() < n) take(i + j * team.step(), z[j], bias[j]);
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
}

__device__ void make_keys(const Team& team, const SelectInput& input, const WarpMemory& memory) {
    const int32_t n = input.routing.n_experts_all;
    const float* bias = input.selection_bias;
#pragma unroll 1
    for (int32_t i = team.thread; i < n; i += team.step()) {
        const float score = memory.scores[i];
        memory.keys[i] = finite_logit(bias ? add(score, bias[i]) : score);
    }
}

template <int n>
__device__ Slots<int32_t> choose(const Routing& r, const WarpMemory& memory,
                                 Candidate* candidates) {
    if (r.n_group > 1) limit_groups(r, memory);
    float keys[n];
#pragma unroll
    for (int32_t j = 0; j < n; j++)
        keys[j] = memory.keys[min(lane_index() + 32 * j, r.n_experts_all - 1)];
    RegisterOrder<n> order(keys, r.n_experts_all);
    if (r.top_k > most_candidates) return first_of(order, r.top_k);
    const int32_t n_found = order.find(order.bound_of_first(r.top_k, candidates), candidates);
    if (n_found > most_candidates) return first_of(order, r.top_k);
    const int32_t index = in_order(candidates, n_found);
    return {{lane_index() < r.top_k ? index : -1, -1}};
}

// ---- the kernel

template <int n>
__global__ void __launch_bounds__(most_warps * 32)
    select_in_teams(const __grid_constant__ SelectInput input, TokenCount tokens,
                    const __grid_constant__ SelectOutput output, FaultWords* faults,
                    int32_t warps_of_team) {
    extern __shared__ __align__(16) std::byte shared[];
    const auto warps = static_cast<int32_t>(blockDim.x / 32);
    const int32_t teams = warps / warps_of_team;
    const int32_t own = warps_of_team > 1 ? 0 : warp_index();
    const auto t = static_cast<int32_t>(blockIdx.x) * teams + own;
    const Team team{warps_of_team, static_cast<int32_t>(threadIdx.x) - own * 32,
                    reinterpret_cast<float*>(shared)};
    auto* candidates = reinterpret_cast<Candidate*>(shared + most_warps * sizeof(float));
    const WarpMemory memory =
        memory_at(input, reinterpret_cast<float*>(candidates + teams * most_candidates) +
                             own * warp_floats(input));
    candidates += own * most_candidates;
    fetch_parameter(input);
    fetch_parameter(output);
    ask_for_biases(team, input);
    begin_after_previous_kernel();
    if (t >= true_tokens(tokens)) return;

    const Routing& r = input.routing;
    AskedIds asked{};
    if (n == 0 && team.thread < 32) asked = ask_ids(input, t);
    const float top = take_logits(team, input, output, t, memory.scores);
    make_scores(team, input, top, memory);
    if (n > 0 && memory.keys != memory.scores) make_keys(team, input, memory);
    team.meet();
    if (n > 0 && r.n_group > 1) {
        score_groups(r, memory, team.thread / 32, team.n_warps);
        team.meet();
    }
    if (team.thread >= 32) return;
    Slots<int32_t> ids;
    if constexpr (n > 0)
        ids = choose<n>(r, memory, candidates);
    else
        ids = check_ids(r, asked, faults);
    store_slots(input, output, t, ids, score_weights(r, ids, scores_of(memory.scores, ids)));
}

using TeamKernel = void (*)(SelectInput, TokenCount, SelectOutput, FaultWords*, int32_t);

TeamKernel team_kernel(bool has_ids, int32_t n_experts) {
    return has_ids            ? select_in_teams<0>
           : n_experts <= 128 ? select_in_teams<4>
           : n_experts <= 256 ? select_in_teams<8>
                              : select_in_teams<16>;
}

size_t shared_bytes(int32_t teams, int32_t floats_of_team) {
    const size_t of_team = most_candidates * sizeof(Candidate) + floats_of_team * sizeof(float);
    return most_warps * sizeof(float) + static_cast<size_t>(teams) * of_team;
}

}  // namespace

void launch_teams(const DeviceFacts& device, cudaStream_t stream, const SelectInput& input,
                  const TokenCount& tokens, const SelectOutput& output, FaultWords* faults) {
    const bool few = tokens.n <= 4 * device.n_sms;
    const int32_t warps =
        few ? std::min(most_warps, (input.routing.n_experts_all + 31) / 32) : most_warps;
    const int32_t teams = few ? 1 : warps;
    launch("select_in_teams", team_kernel(has_ids(input), input.routing.n_experts_all),
           (tokens.n + teams - 1) / teams, warps * 32, shared_bytes(teams, warp_floats(input)),
           stream, input, tokens, output, faults, warps / teams);
}

void prepare_teams() {
    // Teams of one warp, the most experts, a group each.
    const size_t most_bytes = shared_bytes(most_warps, 3 * most_experts_of_teams);
    const auto prepare = [&](auto* kernel) {
        load("select_in_teams", kernel, static_cast<int>(most_bytes));
        want_most_shared_memory("select_in_teams", kernel);  // as the one-token kernels
    };
    prepare(team_kernel(true, 0));
    for (const int32_t n : {128, 256, 512}) prepare(team_kernel(false, n));
}

}  // namespace moe::cuda
