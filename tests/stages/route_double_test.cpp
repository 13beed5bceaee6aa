// Every kind of router against a separate implementation in double, written from the steps of the
// specification.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "libmoe/base/half.hpp"
#include "tests/stages/route_case.hpp"

namespace moe {
namespace {

using namespace route_case;

using Doubles = std::vector<double>;

double double_score(moe_score score, double z) {
    if (score == MOE_SCORE_SIGMOID) return 1 / (1 + std::exp(-z));
    if (score == MOE_SCORE_SQRT_SOFTPLUS) return std::sqrt(z > 20 ? z : std::log1p(std::exp(z)));
    return z;
}

Doubles double_softmax(const Doubles& z) {
    const double top = *std::max_element(z.begin(), z.end());
    Doubles result;
    for (const double value : z) result.push_back(std::exp(value - top));
    const double sum = std::accumulate(result.begin(), result.end(), 0.0);
    for (double& value : result) value /= sum;
    return result;
}

Doubles double_scores(moe_score score, const Doubles& z) {
    if (score == MOE_SCORE_SOFTMAX) return double_softmax(z);
    Doubles result;
    for (const double value : z) result.push_back(double_score(score, value));
    return result;
}

Doubles double_logits(const Case& c) {
    Doubles z(c.logits.begin(), c.logits.end());
    for (double& value : z) {
        if (c.routing.round_logits) value = round_to_type(static_cast<float>(value), c.round_to);
        const double cap = c.routing.logit_softcap;
        if (cap > 0) value = cap * std::tanh(value / cap);
    }
    return z;
}

// Keys after the group limit, and how close the cut between groups was.
Doubles double_keys(const Case& c, const Doubles& scores, double* group_gap) {
    Doubles keys = scores;
    for (size_t i = 0; i < c.bias.size(); i++) keys[i] += c.bias[i];
    *group_gap = 1;
    if (c.routing.n_group < 2) return keys;
    const size_t n_group = static_cast<size_t>(c.routing.n_group), size = keys.size() / n_group;
    Doubles group;
    for (size_t g = 0; g < n_group; g++) {
        Doubles part(keys.begin() + long(g * size), keys.begin() + long((g + 1) * size));
        std::sort(part.rbegin(), part.rend());
        group.push_back(c.routing.group_score == MOE_GROUP_SCORE_MAX ? part[0] : part[0] + part[1]);
    }
    Doubles sorted = group;
    std::sort(sorted.rbegin(), sorted.rend());
    const auto kept = static_cast<size_t>(c.routing.topk_group);
    if (kept < n_group) *group_gap = sorted[kept - 1] - sorted[kept];
    for (size_t i = 0; i < keys.size(); i++) {
        if (group[i / size] < sorted[kept - 1])
            keys[i] = c.routing.group_mask == MOE_GROUP_MASK_ZERO ? 0 : -INFINITY;
    }
    return keys;
}

// Steps 7 to 10 for ids that are known.
Doubles double_weights(const Case& c, const Doubles& scores, const std::vector<int32_t>& ids) {
    Doubles w;
    for (const int32_t id : ids) w.push_back(scores[static_cast<size_t>(id)]);
    w = c.routing.post_score == MOE_SCORE_NONE ? w : double_scores(c.routing.post_score, w);
    const double sum = std::accumulate(w.begin(), w.end(), 0.0), eps = c.routing.renormalize_eps;
    const double divisor = c.routing.renormalize == MOE_RENORMALIZE_NONE      ? 1
                           : c.routing.renormalize == MOE_RENORMALIZE_SUM_ADD ? sum + eps
                                                                              : std::max(sum, eps);
    for (size_t j = 0; j < w.size(); j++) {
        w[j] = w[j] / divisor * c.routing.routed_scale;
        const auto id = static_cast<size_t>(ids[j]);
        if (id < c.scale.size()) w[j] *= c.scale[id];
    }
    return w;
}

// The ids must be the best of the keys, in order, up to what float32 can tell apart; the weights
// must be those of the ids.
bool check_against_double(const Case& c) {
    const Routed routed = route(c);
    double group_gap = 1;
    const Doubles scores = double_scores(c.routing.score, double_logits(c));
    Doubles keys = double_keys(c, scores, &group_gap);
    if (group_gap < 1e-5) return false;
    EXPECT_EQ(std::set<int32_t>(routed.ids.begin(), routed.ids.end()).size(), routed.ids.size());
    const Doubles weights = double_weights(c, scores, routed.ids);
    Doubles sorted = keys;
    std::sort(sorted.rbegin(), sorted.rend());
    for (size_t j = 0; j < routed.ids.size(); j++) {
        const double key = keys.at(static_cast<size_t>(routed.ids[j]));
        EXPECT_NEAR(key, sorted[j],
                    1e-6 * std::max(std::fabs(sorted[j]), c.bias.empty() ? 0.0 : 1.0))
            << c.name << " " << j;
        EXPECT_NEAR(routed.weights[j], weights[j], 4e-6 * std::fabs(weights[j]))
            << c.name << " " << j;
        EXPECT_NE(routed.weights[j], 0) << c.name;
    }
    return true;
}

constexpr Size sizes[] = {{16, 2, 50}, {64, 6, 50}, {256, 8, 40}, {512, 22, 20}, {4096, 64, 5}};

TEST(RouteDouble, EveryKind) {
    std::mt19937 random(20240511);
    for (const Kind& kind : kinds) {
        int32_t n_checked = 0, n_all = 0;
        for (const Size& size : sizes) {
            for (int32_t t = 0; t < size.n_tokens; t++, n_all++) {
                n_checked += check_against_double(random_case(kind, size, random));
            }
        }
        EXPECT_GT(n_checked, n_all * 9 / 10) << kind.name;
    }
}

TEST(RouteDouble, RoundedLogits) {
    std::mt19937 random(7);
    for (const moe_type type : {MOE_TYPE_BF16, MOE_TYPE_F16}) {
        for (int32_t t = 0; t < 20; t++) {
            Case c = random_case(kinds[0], {64, 6, 1}, random);
            c.routing.round_logits = true;
            c.round_to = type;
            check_against_double(c);
        }
    }
}

// Kind K: ids are the two largest logits; weights by the rule of the jitter.
double double_sparsemixer(const std::vector<float>& z, size_t chosen, int64_t out, double jitter) {
    double sum = 0;
    for (size_t i = 0; i < z.size(); i++) {
        const double away =
            (double{z[chosen]} - z[i]) / std::max<double>(std::fabs(z[i]), z[chosen]);
        if (int64_t(i) != out && away <= 2 * jitter) sum += std::exp(double{z[i]} - z[chosen]);
    }
    return 1 / sum;
}

TEST(RouteDouble, Sparsemixer) {
    std::mt19937 random(11);
    int32_t n_split = 0;
    for (int32_t t = 0; t < 300; t++) {
        // Small jitters in the logits would leave every weight at one; 0.2 does not.
        Case c{"K", sparsemixer(16), normal(random, 16, 1, 1), {}, {}};
        c.routing.sparsemixer_jitter = 0.2f;
        const Routed routed = route(c);
        std::vector<size_t> order(16);
        std::iota(order.begin(), order.end(), size_t{0});
        std::sort(order.begin(), order.end(),
                  [&](size_t a, size_t b) { return c.logits[a] > c.logits[b]; });
        EXPECT_EQ(routed.ids, (std::vector<int32_t>{int32_t(order[0]), int32_t(order[1])}));
        const double first = double_sparsemixer(c.logits, order[0], -1, 0.2f);
        EXPECT_NEAR(routed.weights[0], first, 1e-6);
        EXPECT_NEAR(routed.weights[1],
                    double_sparsemixer(c.logits, order[1], int64_t(order[0]), 0.2f), 1e-6);
        n_split += first < 0.9;
    }
    EXPECT_GT(n_split, 100);
}

TEST(RouteDouble, GivenIdsTakeWeightsFromTheScores) {
    Case c{
        "H", with_sum(routing_of(8, 3, MOE_SCORE_SQRT_SOFTPLUS), 0, 1.5f), golden_logits, {}, {}};
    c.routing.selection = MOE_SELECT_HASH;
    const int32_t given[] = {1, 6, 3};
    const Routed routed = route(c, given);
    EXPECT_EQ(routed.ids, (std::vector<int32_t>{1, 6, 3}));
    const Doubles scores = double_scores(MOE_SCORE_SQRT_SOFTPLUS, double_logits(c));
    const Doubles expected = double_weights(c, scores, routed.ids);
    expect_weights(routed, expected, "hash");
    EXPECT_EQ(routed.n_bad, 0);
}

}  // namespace
}  // namespace moe
