// Device functions that both selection kernels share. take_logit works on one thread's logit. The
// others are the work of one warp: top k in an order, given or hashed ids, expert weights and
// outputs.
//
// Inputs and outputs are those of SelectInput and SelectOutput (router.hpp). Lane l owns the chosen
// slots l and, where k exceeds 32, l + 32.
#pragma once

#include "libmoe/base/half.hpp"
#include "libmoe/cuda/device/call.cuh"
#include "libmoe/cuda/router/order.cuh"
#include "libmoe/cuda/router/take_slot.cuh"

namespace moe::cuda {

using namespace routing_math;

// One value for each slot of a lane: slot lane and, for n = 2, slot lane + 32.
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

// Tells whether the second selection bias replaces the first one for token t. The preceding kernel
// in the stream may write what this reads.
__device__ __forceinline__ bool uses_second_bias(const SelectInput& input, int32_t t) {
    return input.uses_second_bias && input.uses_second_bias[t] != 0;
}

// The key of an expert outside the best groups.
__device__ __forceinline__ float masked_key(const Routing& r) {
    return r.group_mask == MOE_GROUP_MASK_ZERO ? 0.0f : -infinity;
}

// ---- logits

// Not inlined: the code is long, its use is rare, and a lane has several logits.
static __device__ __noinline__ float cap_logit(float z, float cap) {
    return softcap(z, cap);
}

// Publishes the logit, given the sum z of its parts, and returns the value that selection uses.
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

// ---- given and hashed ids

__host__ __device__ inline bool has_ids(const SelectInput& input) {
    return input.given_ids || input.routing.selection == MOE_SELECT_HASH;
}

// Ids of slots lane and lane + 32 of a token, whose loads may be in flight.
struct PrefetchedIds {
    int64_t at[2];
    bool is_known;  // false: the hash table has no such token
};

__device__ inline void issue_row_loads(const void* ids, moe_type type, int64_t first, int32_t k,
                                       PrefetchedIds& prefetched) {
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        const int32_t j = lane_index() + 32 * h;
        if (j < k) prefetched.at[h] = id_at(ids, type, first + j);
    }
}

// Ids are the caller's, or come from the hash table.
__device__ inline PrefetchedIds issue_id_loads(const SelectInput& input, int32_t t) {
    const Routing& r = input.routing;
    PrefetchedIds prefetched{{-1, -1}, true};
    if (input.given_ids) {
        issue_row_loads(input.given_ids, input.given_ids_type, t * input.given_ids_stride, r.top_k,
                        prefetched);
        return prefetched;
    }
    const int64_t id = id_at(input.token_ids, input.token_ids_type, t);
    prefetched.is_known = id >= 0 && id < r.hash_vocabulary;
    if (prefetched.is_known)
        issue_row_loads(input.hash_table, MOE_TYPE_I32, id * r.top_k, r.top_k, prefetched);
    return prefetched;
}

__device__ inline Slots<int32_t> check_ids(const Routing& r, const PrefetchedIds& prefetched,
                                           FaultWords* faults) {
    Slots<int32_t> ids;
    int32_t n_bad = 0;
#pragma unroll
    for (int32_t h = 0; h < 2; h++)
        ids.at[h] = checked_id(prefetched.at[h], r.n_experts_all, n_bad);
    if (n_bad) report_fault(faults, MOE_FAULT_ID_OUT_OF_RANGE, n_bad);
    if (!prefetched.is_known && lane_index() == 0)
        report_fault(faults, MOE_FAULT_TOKEN_ID_OUT_OF_RANGE, r.top_k);
    return ids;
}

// ---- weights

static __device__ __noinline__ float score_of(moe_score score, float z) {
    if (score == MOE_SCORE_SIGMOID) return sigmoid(z);
    if (score == MOE_SCORE_SQRT_SOFTPLUS) return sqrt_softplus(z);
    return z;
}

// Slots beyond k have id -1 and weight 0, which add nothing.
template <int n>
__device__ inline float sum_of_slots(const Slots<float, n>& weights, int32_t k) {
    float sum = 0.0f;
    for (int32_t h = 0; h < n; h++) sum = add(sum, weights.at[h]);
    return warp_sum_of_first(sum, k);
}

// Returns weight / divisor, or 0 in slots without an expert. Those divide divisor by itself,
// because a quotient of 0 takes the slow path of a division.
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

// Turns the scores of the chosen experts into weights, 0 in slots without an id.
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

// Renormalises and scales the weights of the first top_k slots, and stores ids and weights.
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

// select_block.cu serves every rule but the sparse mixer, up to this many experts.
void launch_block_select(cudaStream_t stream, const SelectInput& input, const TokenCount& tokens,
                         const SelectOutput& output, FaultWords* faults);
void prepare_block_select();

}  // namespace moe::cuda
