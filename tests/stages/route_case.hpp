// What the tests of routing share: a token to route with all that it takes, routers of every kind,
// random logits.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "libmoe/cpu/ref/route.hpp"

namespace moe {
namespace route_case {

inline const float infinity = std::numeric_limits<float>::infinity();
inline const float nan_value = std::numeric_limits<float>::quiet_NaN();

struct Case {
    const char* name = "";
    Routing routing;
    std::vector<float> logits, bias, scale;
    int32_t n_experts = 0;  // without identity experts; 0: all
    moe_type round_to = MOE_TYPE_NONE;
};

struct Routed {
    std::vector<int32_t> ids;
    std::vector<float> weights, logits;
    int32_t n_bad = 0;
};

inline const float* data_or_null(const std::vector<float>& values) {
    return values.empty() ? nullptr : values.data();
}

inline Routed route(const Case& c, const int32_t* given = nullptr) {
    const auto k = static_cast<size_t>(c.routing.top_k);
    Routed result{std::vector<int32_t>(k, -7), std::vector<float>(k, nan_value), c.logits};
    std::vector<float> scratch(static_cast<size_t>(route_scratch_floats(c.routing)) + 1, nan_value);
    scratch.back() = 42;
    const RouteVectors vectors{data_or_null(c.bias), data_or_null(c.scale),
                               c.n_experts ? c.n_experts : c.routing.n_experts_all};
    result.n_bad = route_token(c.routing, vectors, result.logits.data(), scratch.data(), given,
                               c.round_to, result.ids.data(), result.weights.data());
    EXPECT_EQ(scratch.back(), 42) << "wrote past its scratch";
    return result;
}

inline Routing routing_of(int32_t n, int32_t k, moe_score score) {
    Routing routing;
    routing.n_experts_all = n;
    routing.top_k = k;
    routing.score = score;
    return routing;
}

inline Routing with_groups(Routing routing, int32_t n_group, int32_t topk_group,
                           moe_group_score score) {
    routing.n_group = n_group;
    routing.topk_group = topk_group;
    routing.group_score = score;
    return routing;
}

inline Routing with_zero_mask(Routing routing) {
    routing.group_mask = MOE_GROUP_MASK_ZERO;
    return routing;
}

inline Routing with_sum(Routing routing, float eps, float scale,
                        moe_renormalize rule = MOE_RENORMALIZE_SUM_ADD) {
    routing.renormalize = rule;
    routing.renormalize_eps = eps;
    routing.routed_scale = scale;
    return routing;
}

inline Routing with_scale(Routing routing, float scale) {
    routing.routed_scale = scale;
    return routing;
}

inline Routing with_post(Routing routing, moe_score post) {
    routing.post_score = post;
    return routing;
}

inline Routing sparsemixer(int32_t n) {
    Routing routing = routing_of(n, 2, MOE_SCORE_NONE);
    routing.selection = MOE_SELECT_SPARSEMIXER;
    routing.sparsemixer_jitter = 0.01f;
    return routing;
}

inline const std::vector<float> golden_logits{0.5f, -1, 2, 1.25f, -0.25f, 1.5f, 0, 0.75f};

inline void expect_weights(const Routed& routed, const std::vector<double>& expected,
                           const char* name) {
    for (size_t j = 0; j < expected.size(); j++) {
        EXPECT_NEAR(routed.weights[j], expected[j], 4e-7 * expected[j] + 6e-9) << name << " " << j;
    }
}

struct Kind {
    const char* name;
    Routing (*make)(int32_t n, int32_t k);
    bool bias, scale;
};

inline const Kind kinds[] = {
    {"A", [](int32_t n, int32_t k) { return with_sum(routing_of(n, k, MOE_SCORE_SOFTMAX), 0, 1); },
     false, false},
    {"A scaled",
     [](int32_t n, int32_t k) { return with_sum(routing_of(n, k, MOE_SCORE_SOFTMAX), 0, 1); },
     false, true},
    {"B", [](int32_t n, int32_t k) { return routing_of(n, k, MOE_SCORE_SOFTMAX); }, false, false},
    {"C",
     [](int32_t n, int32_t k) {
         return with_post(routing_of(n, k, MOE_SCORE_NONE), MOE_SCORE_SOFTMAX);
     },
     false, false},
    {"D",
     [](int32_t n, int32_t k) {
         return with_groups(with_scale(routing_of(n, k, MOE_SCORE_SOFTMAX), 16), 8, 3,
                            MOE_GROUP_SCORE_MAX);
     },
     false, false},
    {"E",
     [](int32_t n, int32_t k) {
         return with_groups(with_sum(routing_of(n, k, MOE_SCORE_SIGMOID), 1e-20f, 2.5f), 8, 4,
                            MOE_GROUP_SCORE_TOP2_SUM);
     },
     true, false},
    {"E masked by zero",
     [](int32_t n, int32_t k) {
         return with_zero_mask(
             with_groups(with_sum(routing_of(n, k, MOE_SCORE_SIGMOID), 1e-20f, 2.5f), 8, 4,
                         MOE_GROUP_SCORE_TOP2_SUM));
     },
     true, false},
    {"F",
     [](int32_t n, int32_t k) {
         return with_sum(routing_of(n, k, MOE_SCORE_SIGMOID), 1e-20f, 2.827f);
     },
     true, false},
    {"G",
     [](int32_t n, int32_t k) {
         return with_sum(routing_of(n, k, MOE_SCORE_SQRT_SOFTPLUS), 0x1p-14f, 1.5f,
                         MOE_RENORMALIZE_SUM_CLAMP);
     },
     true, false},
    {"I sum",
     [](int32_t n, int32_t k) {
         return with_sum(routing_of(n, k, MOE_SCORE_SOFTMAX), 1e-12f, 1, MOE_RENORMALIZE_SUM_CLAMP);
     },
     true, false},
    {"I scaled",
     [](int32_t n, int32_t k) { return with_scale(routing_of(n, k, MOE_SCORE_SOFTMAX), 6); }, true,
     true},
    {"J",
     [](int32_t n, int32_t) {
         return with_post(routing_of(n, 1, MOE_SCORE_NONE), MOE_SCORE_SIGMOID);
     },
     false, false},
    {"J biased",
     [](int32_t n, int32_t k) {
         return with_post(routing_of(n, k, MOE_SCORE_NONE), MOE_SCORE_SIGMOID);
     },
     true, false},
    {"L", [](int32_t n, int32_t k) { return routing_of(n, k, MOE_SCORE_SIGMOID); }, false, false},
    {"softcap",
     [](int32_t n, int32_t k) {
         Routing r = routing_of(n, k, MOE_SCORE_SIGMOID);
         r.logit_softcap = 3;
         return r;
     },
     true, false},
};

struct Size {
    int32_t n, k, n_tokens;
};

inline std::vector<float> normal(std::mt19937& random, int32_t n, float middle, float spread) {
    std::normal_distribution<float> distribution(middle, spread);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = distribution(random);
    return values;
}

inline Case random_case(const Kind& kind, const Size& size, std::mt19937& random) {
    Case c{kind.name, kind.make(size.n, size.k), normal(random, size.n, 0, 1.5f), {}, {}};
    if (kind.bias) c.bias = normal(random, size.n, 0, 0.3f);
    if (kind.scale) c.scale = normal(random, size.n, 1, 0.1f);
    return c;
}

}  // namespace route_case
}  // namespace moe
