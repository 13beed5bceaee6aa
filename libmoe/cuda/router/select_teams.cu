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
// Several warps look for the best of a softmax, without bias and groups, among the logits: the
// first of them does, while the second adds up the sum, so that steps 2 and 3 are one and only the
// few get scores. Where they are not few, or are far below the largest, it goes on as above.
#include <algorithm>

#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/parameters.cuh"
#include "libmoe/cuda/router/select.cuh"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

// What warps of a team tell each other.
struct alignas(16) Meeting {
    float maxima[most_warps];
    float top, sum;  // of a softmax
    int32_t n_candidates;
};

struct Team {
    int32_t n_warps;  // all of the block's, or one
    int32_t thread;   // of the team
    Meeting& meeting;

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
        if (lane_index() == 0) meeting.maxima[warp_index()] = value;
        __syncthreads();
        return warp_max(meeting.maxima[min(lane_index(), n_warps - 1)]);
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
__device__ RegisterOrder<n> order_of(const float* keys, int32_t n_keys) {
    float own[n];
#pragma unroll
    for (int32_t j = 0; j < n; j++) own[j] = keys[min(lane_index() + 32 * j, n_keys - 1)];
    return RegisterOrder<n>(own, n_keys);
}

template <int n>
__device__ Slots<int32_t> choose(const Routing& r, const WarpMemory& memory,
                                 Candidate* candidates) {
    if (r.n_group > 1) limit_groups(r, memory);
    RegisterOrder<n> order = order_of<n>(memory.keys, r.n_experts_all);
    if (r.top_k > most_candidates) return first_of(order, r.top_k);
    const int32_t n_found = order.find(order.bound_of_first(r.top_k, candidates), candidates);
    if (n_found > most_candidates) return first_of(order, r.top_k);
    const Candidate own = in_order(candidates, n_found);
    return {{lane_index() < r.top_k ? own.index : -1, -1}};
}

// ---- the best of a softmax, by their logits

// The order of scores is that of logits, but for scores that are equal or a rounding apart. A logit
// that is sure_distance below another has a lower score, if the other is within sure_range of the
// largest: then the other's score is a normal number, and they differ by far more than all
// roundings on the way to them.
constexpr float sure_distance = 0x1p-9f;
constexpr float sure_range = 64.0f;

__device__ bool goes_by_logits(const Team& team, const Routing& r, const WarpMemory& memory) {
    return team.n_warps > 1 && r.score == MOE_SCORE_SOFTMAX && memory.keys == memory.scores &&
           r.top_k <= most_candidates;
}

// How many can be among the first k: with their logits to `candidates`, unless they are too many.
template <int n>
__device__ int32_t find_by_logits(const Routing& r, const float* logits, Candidate* candidates) {
    const RegisterOrder<n> order = order_of<n>(logits, r.n_experts_all);
    const float last = key_of(order.bound_of_first(r.top_k, candidates));
    if (subtract(key_of(order.largest_rank()), last) > sure_range) return most_candidates + 1;
    return order.find(rank_of(subtract(last, sure_distance)), candidates);
}

// The bits of softmax.
__device__ void sum_by_logits(const Team& team, int32_t n, const float* logits) {
    float top = -largest;
#pragma unroll 4
    for (int32_t i = lane_index(); i < n; i += 32) top = fmaxf(top, logits[i]);
    top = warp_max(top);
    float sum = 0.0f;
#pragma unroll 4
    for (int32_t i = lane_index(); i < n; i += 32)
        sum = add(sum, exponential(subtract(logits[i], top)));
    sum = warp_sum(sum);
    if (lane_index() > 0) return;
    team.meeting.top = top;
    team.meeting.sum = sum;
}

// Of one warp.
__device__ void store_candidates(const Meeting& meeting, const SelectInput& input,
                                 const SelectOutput& output, int32_t t, Candidate* candidates) {
    if (lane_index() < meeting.n_candidates) {
        uint32_t& rank = candidates[lane_index()].rank;
        const float e = exponential(subtract(key_of(rank), meeting.top));
        rank = rank_of(divide(e, meeting.sum));
    }
    __syncwarp();
    const Candidate own = in_order(candidates, meeting.n_candidates);
    const bool is_chosen = lane_index() < input.routing.top_k;
    const Slots<int32_t> ids{{is_chosen ? own.index : -1, -1}};
    const Slots<float> scores{{is_chosen ? key_of(own.rank) : 0.0f, 0.0f}};
    store_slots(input, output, t, ids, score_weights(input.routing, ids, scores));
}

// All of the token; false where candidates are too many.
template <int n>
__device__ bool select_by_logits(const Team& team, const SelectInput& input,
                                 const SelectOutput& output, int32_t t, const float* logits,
                                 Candidate* candidates) {
    const Routing& r = input.routing;
    team.meet();
    if (team.thread < 32) {
        const int32_t n_found = find_by_logits<n>(r, logits, candidates);
        if (lane_index() == 0) team.meeting.n_candidates = n_found;
    } else if (team.thread < 64) {
        sum_by_logits(team, r.n_experts_all, logits);
    }
    team.meet();
    if (team.meeting.n_candidates > most_candidates) return false;
    if (team.thread < 32) store_candidates(team.meeting, input, output, t, candidates);
    return true;
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
                    *reinterpret_cast<Meeting*>(shared)};
    auto* candidates = reinterpret_cast<Candidate*>(shared + sizeof(Meeting));
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
    if constexpr (n > 0) {
        if (goes_by_logits(team, r, memory) &&
            select_by_logits<n>(team, input, output, t, memory.scores, candidates))
            return;
    }
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
    return sizeof(Meeting) + static_cast<size_t>(teams) * (most_candidates * sizeof(Candidate) +
                                                           floats_of_team * sizeof(float));
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
