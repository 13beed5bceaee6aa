// What the kernels of selection share: what is made of a logit, and, as the work of one warp, the
// first k in an order, ids that are not chosen, the weights of the experts, and the outputs. Lane l
// owns the chosen slots l and, where there are more than 32, l + 32.
#pragma once

#include "libmoe/base/half.hpp"
#include "libmoe/cuda/device/call.cuh"
#include "libmoe/cuda/router/order.cuh"
#include "libmoe/cuda/router/take_slot.cuh"

namespace moe::cuda {

using namespace routing_math;

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

__host__ __device__ inline bool has_own_keys(const SelectInput& input) {
    return input.selection_bias || input.routing.n_group > 1;
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
    if (input.logits.is_computed) z = fmaf(z, input.logits.scale, bias);
    if (published) published[i] = z;
    if (r.round_logits) z = round_to_type(z, input.round_to);
    if (r.logit_softcap > 0.0f) z = cap_logit(z, r.logit_softcap);
    return finite_logit(z);
}

// ---- selection

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
