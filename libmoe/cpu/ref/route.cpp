// Routing of one token, step by step in the order of moe.h section 4.
#include "libmoe/cpu/ref/route.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "libmoe/base/half.hpp"
#include "libmoe/layer/routing_math.hpp"

namespace moe {
namespace {

using namespace routing_math;

constexpr float infinity = std::numeric_limits<float>::infinity();

// A place in the order "largest key first, then lowest index".
struct Place {
    float key = infinity;
    int32_t index = -1;
};

bool comes_after(float key, int32_t index, const Place& place) {
    return key < place.key || (key == place.key && index > place.index);
}

// The first entry after `last`; keys hold no NaN. Index -1 past the end.
Place next_in_order(const float* keys, int32_t n, const Place& last) {
    Place best{-infinity, -1};
    for (int32_t i = 0; i < n; i++) {
        if (!comes_after(keys[i], i, last)) continue;
        if (best.index < 0 || keys[i] > best.key) best = {keys[i], i};
    }
    return best;
}

void softmax(const float* values, int32_t n, float* out) {
    const float top = *std::max_element(values, values + n);
    for (int32_t i = 0; i < n; i++) out[i] = exponential(values[i] - top);
    const float sum = sum_in_lanes(n, [&](int32_t i) { return out[i]; });
    for (int32_t i = 0; i < n; i++) out[i] = out[i] / sum;
}

float score_of(moe_score score, float z) {
    if (score == MOE_SCORE_SIGMOID) return sigmoid(z);
    if (score == MOE_SCORE_SQRT_SOFTPLUS) return sqrt_softplus(z);
    return z;
}

void apply_scores(moe_score score, const float* logits, int32_t n, float* scores) {
    if (score == MOE_SCORE_SOFTMAX) return softmax(logits, n, scores);
    for (int32_t i = 0; i < n; i++) scores[i] = score_of(score, logits[i]);
}

void finish_logits(const Routing& routing, moe_type round_to, float* logits) {
    const int32_t n = routing.n_experts_all;
    if (routing.round_logits) {
        for (int32_t i = 0; i < n; i++) logits[i] = round_to_type(logits[i], round_to);
    }
    if (routing.logit_softcap > 0.0f) {
        for (int32_t i = 0; i < n; i++) logits[i] = softcap(logits[i], routing.logit_softcap);
    }
    sanitize_logits(logits, n);
}

float group_score(moe_group_score rule, const float* keys, int32_t n) {
    const Place first = next_in_order(keys, n, Place{});
    if (rule != MOE_GROUP_SCORE_TOP2_SUM || n < 2) return first.key;
    return first.key + next_in_order(keys, n, first).key;
}

// Keys of the experts outside the best topk_group groups become the layer's mask.
void limit_groups(const Routing& routing, float* keys, float* group_scores) {
    const int32_t size = routing.n_experts_all / routing.n_group;
    for (int32_t g = 0; g < routing.n_group; g++) {
        group_scores[g] = group_score(routing.group_score, keys + g * size, size);
    }
    Place last;
    for (int32_t i = 0; i < routing.topk_group; i++) {
        last = next_in_order(group_scores, routing.n_group, last);
    }
    const float mask = routing.group_mask == MOE_GROUP_MASK_ZERO ? 0.0f : -infinity;
    for (int32_t g = 0; g < routing.n_group; g++) {
        if (comes_after(group_scores[g], g, last)) std::fill_n(keys + g * size, size, mask);
    }
}

void select_top_k(const Routing& routing, const float* selection_bias, const float* scores,
                  float* keys, float* group_scores, int32_t* ids) {
    const int32_t n = routing.n_experts_all;
    for (int32_t i = 0; i < n; i++) {
        keys[i] = finite_logit(selection_bias ? scores[i] + selection_bias[i] : scores[i]);
    }
    if (routing.n_group > 1) limit_groups(routing, keys, group_scores);
    Place last;
    for (int32_t j = 0; j < routing.top_k; j++) {
        last = next_in_order(keys, n, last);
        ids[j] = last.index;
    }
}

// Takes over given ids; answers how many were out of range.
int32_t take_ids(const Routing& routing, const int32_t* given, int32_t* ids) {
    int32_t n_bad = 0;
    for (int32_t j = 0; j < routing.top_k; j++) {
        const int32_t id = given ? given[j] : -1;
        const bool valid = id >= 0 && id < routing.n_experts_all;
        if (!valid && id != -1) n_bad++;
        ids[j] = valid ? id : -1;
    }
    return n_bad;
}

// Softmax weight of expert `chosen` among those whose logit is within the jitter of its own;
// `excluded` (or -1) is out.
float sparsemixer_weight(const float* z, int32_t n, float jitter, int32_t chosen,
                         int32_t excluded) {
    if (chosen < 0) return 0.0f;
    const float threshold = z[chosen];
    const auto kept = [&](int32_t i) {
        const float distance = (threshold - z[i]) / std::max(std::fabs(z[i]), threshold);
        return i == chosen || (i != excluded && !(distance > 2.0f * jitter));
    };
    float top = threshold;
    for (int32_t i = 0; i < n; i++) {
        if (kept(i)) top = std::max(top, z[i]);
    }
    const float sum =
        sum_in_lanes(n, [&](int32_t i) { return kept(i) ? exponential(z[i] - top) : 0.0f; });
    return exponential(threshold - top) / sum;
}

// The two largest logits, unless ids are given.
void route_sparsemixer(const Routing& routing, const float* logits, bool ids_given, int32_t* ids,
                       float* weights) {
    const int32_t n = routing.n_experts_all;
    if (!ids_given) {
        const Place first = next_in_order(logits, n, Place{});
        ids[0] = first.index;
        ids[1] = next_in_order(logits, n, first).index;
    }
    weights[0] = sparsemixer_weight(logits, n, routing.sparsemixer_jitter, ids[0], -1);
    weights[1] = sparsemixer_weight(logits, n, routing.sparsemixer_jitter, ids[1], ids[0]);
}

void post_softmax(int32_t k, const int32_t* ids, float* weights) {
    float top = -largest;
    for (int32_t j = 0; j < k; j++) {
        if (ids[j] >= 0) top = std::max(top, weights[j]);
    }
    for (int32_t j = 0; j < k; j++) {
        weights[j] = ids[j] < 0 ? 0.0f : exponential(weights[j] - top);
    }
    const float sum = sum_in_lanes(k, [&](int32_t j) { return weights[j]; });
    for (int32_t j = 0; j < k; j++) weights[j] = ids[j] < 0 ? 0.0f : weights[j] / sum;
}

void apply_post_score(moe_score score, int32_t k, const int32_t* ids, float* weights) {
    if (score == MOE_SCORE_SOFTMAX) return post_softmax(k, ids, weights);
    for (int32_t j = 0; j < k; j++) {
        weights[j] = ids[j] < 0 ? 0.0f : score_of(score, weights[j]);
    }
}

void apply_renormalize(const Routing& routing, float* weights) {
    if (routing.renormalize == MOE_RENORMALIZE_NONE) return;
    const int32_t k = routing.top_k;
    const float sum = sum_in_lanes(k, [&](int32_t j) { return weights[j]; });
    const float eps = routing.renormalize_eps;
    const float divisor =
        routing.renormalize == MOE_RENORMALIZE_SUM_ADD ? sum + eps : std::max(sum, eps);
    for (int32_t j = 0; j < k; j++) {
        const float quotient = weights[j] / divisor;
        weights[j] = std::isnan(quotient) ? 0.0f : quotient;
    }
}

void apply_scales(const Routing& routing, const RouteVectors& vectors, moe_type round_to,
                  const int32_t* ids, float* weights) {
    for (int32_t j = 0; j < routing.top_k; j++) {
        float weight = weights[j] * routing.routed_scale;
        if (vectors.expert_scale && ids[j] >= 0 && ids[j] < vectors.n_experts) {
            weight *= vectors.expert_scale[ids[j]];
        }
        if (routing.round_weights) weight = round_to_type(weight, round_to);
        weights[j] = ids[j] < 0 ? 0.0f : weight;
    }
}

}  // namespace

void sanitize_logits(float* logits, int64_t n) {
    for (int64_t i = 0; i < n; i++) logits[i] = finite_logit(logits[i]);
}

int64_t route_scratch_floats(const Routing& routing) {
    // scores and keys of every expert, and a score for every group
    return 2 * int64_t{routing.n_experts_all} + std::max(routing.n_group, 1);
}

int32_t route_token(const Routing& routing, const RouteVectors& vectors, float* logits,
                    float* scratch, const int32_t* given_ids, moe_type round_to, int32_t* ids,
                    float* weights) {
    const int32_t n = routing.n_experts_all;
    float* scores = scratch;
    float* keys = scratch + n;
    const bool ids_given = given_ids || routing.selection == MOE_SELECT_HASH;

    finish_logits(routing, round_to, logits);
    const int32_t n_bad = ids_given ? take_ids(routing, given_ids, ids) : 0;
    if (routing.selection == MOE_SELECT_SPARSEMIXER) {
        route_sparsemixer(routing, logits, ids_given, ids, weights);
    } else {
        apply_scores(routing.score, logits, n, scores);
        if (!ids_given) {
            select_top_k(routing, vectors.selection_bias, scores, keys, keys + n, ids);
        }
        for (int32_t j = 0; j < routing.top_k; j++) weights[j] = ids[j] < 0 ? 0.0f : scores[ids[j]];
        apply_post_score(routing.post_score, routing.top_k, ids, weights);
    }
    apply_renormalize(routing, weights);
    apply_scales(routing, vectors, round_to, ids, weights);
    return n_bad;
}

}  // namespace moe
