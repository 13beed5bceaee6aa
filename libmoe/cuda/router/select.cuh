// What the kernels of selection share: a token's memory and logits, group limits, ids that are not
// chosen, the weights of the experts, and the outputs, all but the first the work of one warp. Lane
// l owns the experts l, l + 32, ... and the chosen slots l and l + 32.
#pragma once

#include "libmoe/base/half.hpp"
#include "libmoe/cuda/device/call.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/element.cuh"
#include "libmoe/cuda/device/memory.cuh"
#include "libmoe/cuda/router/order.cuh"
#include "libmoe/cuda/router/take_slot.cuh"

namespace moe::cuda {

using namespace routing_math;

constexpr int32_t most_warps = 8;

// A value for each slot of a lane: j = lane and, where there are two, lane + 32.
template <class T, int n = 2>
struct Slots {
    T at[n];
};

template <int n, class T>
__device__ __forceinline__ Slots<T, n> first_slots(const Slots<T>& all) {
    Slots<T, n> first;
    for (int32_t h = 0; h < n; h++) first.at[h] = all.at[h];
    return first;
}

struct WarpMemory {
    float* scores;
    float* keys;  // may be scores
    float* group_scores;
};

__host__ __device__ inline bool has_own_keys(const SelectInput& input) {
    return input.selection_bias || input.routing.n_group > 1;
}

__host__ __device__ inline int32_t warp_floats(const SelectInput& input) {
    const Routing& r = input.routing;
    return r.n_experts_all * (has_own_keys(input) ? 2 : 1) + (r.n_group > 1 ? r.n_group : 0);
}

__device__ inline WarpMemory memory_at(const SelectInput& input, float* scores) {
    float* keys = has_own_keys(input) ? scores + input.routing.n_experts_all : scores;
    return {scores, keys, keys + input.routing.n_experts_all};
}

// ---- logits

// Rare and long: not repeated for every value of a lane.
static __device__ __noinline__ float cap_logit(float z, float cap) {
    return softcap(z, cap);
}

// Of the sum of its parts: published, and what selection makes of it.
__device__ inline float take_logit(const SelectInput& input, int32_t i, float z, float bias,
                                   float* published) {
    const Routing& r = input.routing;
    if (input.logits.is_product) z = fmaf(z, input.logits.scale, bias);
    if (published) published[i] = z;
    if (r.round_logits) z = round_to_type(z, input.round_to);
    if (r.logit_softcap > 0.0f) z = cap_logit(z, r.logit_softcap);
    return finite_logit(z);
}

// The biases of n logits, first and every step-th; those past the end repeat the last. To be asked
// for before the parts, so that they come with them.
template <int n>
__device__ inline void ask_bias(const LogitParts& logits, int32_t first, int32_t step,
                                int32_t n_experts, float (&bias)[n]) {
#pragma unroll
    for (int32_t j = 0; j < n; j++)
        bias[j] =
            logits.bias ? load_global(logits.bias + min(first + j * step, n_experts - 1)) : 0.0f;
}

// The sums of parts of n logits, first and every step-th; those past the end repeat the last. Eight
// parts are on their way at once: additions without branches, which the loads would wait for. One
// past the last part is a copy of it and not added.
template <int n>
__device__ inline void add_parts(const LogitParts& logits, int32_t t, int32_t first, int32_t step,
                                 int32_t n_experts, float (&z)[n]) {
    constexpr int32_t at_once = 8;
    const float* at[n];
#pragma unroll
    for (int32_t j = 0; j < n; j++) {
        at[j] = logits.data + t * logits.stride + min(first + j * step, n_experts - 1);
        z[j] = load_global(at[j]);
    }
#pragma unroll 1
    for (int32_t p = 1; p < logits.n_parts; p += at_once) {
        float part[at_once][n];
#pragma unroll
        for (int32_t q = 0; q < at_once; q++) {
            const int64_t place = min(p + q, logits.n_parts - 1) * logits.part_stride;
#pragma unroll
            for (int32_t j = 0; j < n; j++) part[q][j] = load_global(at[j] + place);
        }
#pragma unroll
        for (int32_t q = 0; q < at_once; q++) {
#pragma unroll
            for (int32_t j = 0; j < n; j++) {
                const float sum = add(z[j], part[q][j]);
                z[j] = p + q < logits.n_parts ? sum : z[j];
            }
        }
    }
}

// ---- selection

// The two largest of some keys.
struct TopTwo {
    float first = -infinity;
    float second = -infinity;

    __device__ void take(const TopTwo& other) {
        second = fmaxf(fminf(first, other.first), fmaxf(second, other.second));
        first = fmaxf(first, other.first);
    }
};

__device__ inline float group_score(moe_group_score rule, const float* keys, int32_t n) {
    TopTwo top;
    for (int32_t i = lane_index(); i < n; i += 32) top.take({keys[i], -infinity});
#pragma unroll
    for (int32_t apart = 16; apart > 0; apart /= 2)
        top.take({__shfl_xor_sync(every_lane, top.first, apart),
                  __shfl_xor_sync(every_lane, top.second, apart)});
    return rule == MOE_GROUP_SCORE_TOP2_SUM && n > 1 ? add(top.first, top.second) : top.first;
}

// Of groups first, first + step, ...
__device__ inline void score_groups(const Routing& r, const WarpMemory& memory, int32_t first,
                                    int32_t step) {
    const int32_t size = r.n_experts_all / r.n_group;
    for (int32_t g = first; g < r.n_group; g += step) {
        const float score = group_score(r.group_score, memory.keys + g * size, size);
        if (lane_index() == 0) memory.group_scores[g] = score;
    }
}

// How many groups come before group g.
__device__ inline int32_t rank_of_group(const Routing& r, const float* scores, int32_t g) {
    const float own = scores[g];
    int32_t rank = 0;
#pragma unroll 8
    for (int32_t h = 0; h < r.n_group; h++) rank += comes_after(own, g, {scores[h], h}) ? 1 : 0;
    return rank;
}

// Keys of the experts outside the best topk_group groups, which have their scores, become -inf.
__device__ inline void limit_groups(const Routing& r, const WarpMemory& memory) {
    const int32_t size = r.n_experts_all / r.n_group;
    for (int32_t base = 0; base < r.n_group; base += 32) {
        const int32_t g = base + lane_index();
        const bool leaves =
            g < r.n_group && rank_of_group(r, memory.group_scores, g) >= r.topk_group;
        for (uint32_t left = __ballot_sync(every_lane, leaves); left != 0; left &= left - 1) {
            float* keys = memory.keys + (base + __ffs(static_cast<int32_t>(left)) - 1) * size;
            for (int32_t i = lane_index(); i < size; i += 32) keys[i] = -infinity;
        }
    }
    __syncwarp();
}

template <class Order>
__device__ Slots<int32_t> first_of(Order order, int32_t k) {
    Slots<int32_t> ids{{-1, -1}};
    for (int32_t j = 0; j < k; j++) {
        const int32_t index = order.next();
#pragma unroll
        for (int32_t h = 0; h < 2; h++)
            if (j == lane_index() + 32 * h) ids.at[h] = index;
    }
    return ids;
}

// The same by the places of the few that can be among the first k, where there are few.
template <int n>
__device__ Slots<int32_t> first_of(const RegisterOrder<n>& order, int32_t k,
                                   Candidate* candidates) {
    if (k > most_candidates) return first_of(order, k);
    const int32_t n_found = order.find(order.bound_of_first(k, candidates), candidates);
    if (n_found > most_candidates) return first_of(order, k);
    const int32_t index = in_order(candidates, n_found);
    return {{lane_index() < k ? index : -1, -1}};
}

// ---- ids that are not chosen here

__host__ __device__ inline bool has_ids(const SelectInput& input) {
    return input.given_ids || input.routing.selection == MOE_SELECT_HASH;
}

// A token's ids on their way from memory, those of slots lane and lane + 32.
struct AskedIds {
    int64_t at[2];
    bool is_known;  // false: the hash table has no such token
};

__device__ inline void ask_row(const void* ids, moe_type type, int64_t first, int32_t k,
                               AskedIds& asked) {
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        const int32_t j = lane_index() + 32 * h;
        if (j < k) asked.at[h] = id_at(ids, type, first + j);
    }
}

// Given, or from the hash table.
__device__ inline AskedIds ask_ids(const SelectInput& input, int32_t t) {
    const Routing& r = input.routing;
    AskedIds asked{{-1, -1}, true};
    if (input.given_ids) {
        ask_row(input.given_ids, input.given_ids_type, t * input.given_ids_stride, r.top_k, asked);
        return asked;
    }
    const int64_t id = id_at(input.token_ids, input.token_ids_type, t);
    asked.is_known = id >= 0 && id < r.hash_vocabulary;
    if (asked.is_known) ask_row(input.hash_table, MOE_TYPE_I32, id * r.top_k, r.top_k, asked);
    return asked;
}

__device__ inline Slots<int32_t> check_ids(const Routing& r, const AskedIds& asked,
                                           FaultWords* faults) {
    Slots<int32_t> ids;
    int32_t n_bad = 0;
#pragma unroll
    for (int32_t h = 0; h < 2; h++) ids.at[h] = checked_id(asked.at[h], r.n_experts_all, n_bad);
    if (n_bad) report_fault(faults, MOE_FAULT_ID_OUT_OF_RANGE, n_bad);
    if (!asked.is_known && lane_index() == 0)
        report_fault(faults, MOE_FAULT_TOKEN_ID_OUT_OF_RANGE, r.top_k);
    return ids;
}

// ---- weights

static __device__ __noinline__ float score_of(moe_score score, float z) {
    if (score == MOE_SCORE_SIGMOID) return sigmoid(z);
    if (score == MOE_SCORE_SQRT_SOFTPLUS) return sqrt_softplus(z);
    return z;
}

// Slots beyond k hold id -1 and weight 0 and add nothing.
template <int n>
__device__ inline float sum_of_slots(const Slots<float, n>& weights, int32_t k) {
    float sum = 0.0f;
    for (int32_t h = 0; h < n; h++) sum = add(sum, weights.at[h]);
    return warp_sum_of_first(sum, k);
}

// weight / divisor, 0 in slots without an expert: those are not divided, since a quotient of 0
// takes the long way of a division.
__device__ inline float divided(int32_t id, float weight, float divisor) {
    const float quotient = divide(id < 0 ? divisor : weight, divisor);
    return id < 0 ? 0.0f : quotient;
}

template <int n>
__device__ inline void post_softmax(const Slots<int32_t, n>& ids, int32_t k,
                                    Slots<float, n>& weights) {
    float top = -largest;
    for (int32_t h = 0; h < n; h++)
        if (ids.at[h] >= 0) top = fmaxf(top, weights.at[h]);
    top = warp_max(top);
    for (int32_t h = 0; h < n; h++) {
        const float e = exponential(subtract(weights.at[h], top));
        weights.at[h] = ids.at[h] < 0 ? 0.0f : e;
    }
    const float sum = sum_of_slots(weights, k);
    for (int32_t h = 0; h < n; h++) weights.at[h] = divided(ids.at[h], weights.at[h], sum);
}

template <int n>
__device__ inline Slots<float, n> scores_of(const float* scores, const Slots<int32_t, n>& ids) {
    Slots<float, n> chosen;
    for (int32_t h = 0; h < n; h++) chosen.at[h] = ids.at[h] < 0 ? 0.0f : scores[ids.at[h]];
    return chosen;
}

// Of the scores of the chosen, 0 in slots without an id.
template <int n>
__device__ inline Slots<float, n> score_weights(const Routing& r, const Slots<int32_t, n>& ids,
                                                Slots<float, n> weights) {
    if (r.post_score == MOE_SCORE_SOFTMAX) {
        post_softmax(ids, r.top_k, weights);
        return weights;
    }
    if (r.post_score == MOE_SCORE_NONE) return weights;
    for (int32_t h = 0; h < n; h++)
        weights.at[h] = ids.at[h] < 0 ? 0.0f : score_of(r.post_score, weights.at[h]);
    return weights;
}

template <int n>
__device__ inline void renormalize(const Routing& r, const Slots<int32_t, n>& ids,
                                   Slots<float, n>& weights) {
    if (r.renormalize == MOE_RENORMALIZE_NONE) return;
    const float sum = sum_of_slots(weights, r.top_k);
    const float eps = r.renormalize_eps;
    const float clamped = sum < eps ? eps : sum;
    const float divisor = r.renormalize == MOE_RENORMALIZE_SUM_ADD ? add(sum, eps) : clamped;
    for (int32_t h = 0; h < n; h++) {
        const float quotient = divided(ids.at[h], weights.at[h], divisor);
        weights.at[h] = quotient != quotient ? 0.0f : quotient;
    }
}

__device__ inline float scaled(const SelectInput& input, int32_t id, float weight) {
    if (id < 0) return 0.0f;
    weight = multiply(weight, input.routing.routed_scale);
    if (input.expert_scale && id < input.n_experts)
        weight = multiply(weight, input.expert_scale[id]);
    return input.routing.round_weights ? round_to_type(weight, input.round_to) : weight;
}

// Renormalises and scales the weights of the slots that there are, and stores both.
template <int n>
__device__ inline void store_slots(const SelectInput& input, const SelectOutput& output, int32_t t,
                                   const Slots<int32_t, n>& ids, Slots<float, n> weights) {
    const Routing& r = input.routing;
    for (int32_t h = 0; h < n; h++)
        if (lane_index() + 32 * h >= r.top_k) weights.at[h] = 0.0f;
    renormalize(r, ids, weights);
    for (int32_t h = 0; h < n; h++) {
        const int32_t j = lane_index() + 32 * h;
        if (j < r.top_k)
            publish(output, r.top_k, t, j, ids.at[h], scaled(input, ids.at[h], weights.at[h]));
    }
}

// select_block.cu: every rule but the sparse mixer, among few enough experts.
constexpr int32_t most_experts_of_block = 512;
void launch_block_select(cudaStream_t stream, const SelectInput& input, const TokenCount& tokens,
                         const SelectOutput& output, FaultWords* faults);
void prepare_block_select();

}  // namespace moe::cuda
