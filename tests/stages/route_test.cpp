// Routing of a token: computed values, given ids, scales and rounding, and the corner cases that
// must not cost an id its range.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "libmoe/base/half.hpp"
#include "tests/stages/route_case.hpp"

namespace moe {
namespace {

using namespace route_case;

// ---- computed values

struct Golden {
    const char* name;
    Routing routing;
    bool with_bias;
    std::vector<int32_t> ids;
    std::vector<double> weights;
};

const std::vector<float> golden_bias{0.30f, 0, -0.40f, 0.05f, 0.35f, -0.10f, 0, 0.25f};

std::vector<Golden> goldens() {
    const Routing softmax = routing_of(8, 3, MOE_SCORE_SOFTMAX);
    const Routing sigmoid = with_sum(routing_of(8, 3, MOE_SCORE_SIGMOID), 1e-20f, 2.5f);
    const Routing root = with_sum(routing_of(8, 3, MOE_SCORE_SQRT_SOFTPLUS), 0, 1.5f);
    const Routing plain = routing_of(8, 3, MOE_SCORE_NONE);
    return {
        {"softmax", softmax, false, {2, 5, 3}, {.34733634, .21067014, .16407007}},
        {"softmax, sum",
         with_sum(softmax, 0, 1),
         false,
         {2, 5, 3},
         {.48102426, .29175596, .22721977}},
        {"then softmax",
         with_post(plain, MOE_SCORE_SOFTMAX),
         false,
         {2, 5, 3},
         {.48102426, .29175596, .22721977}},
        {"top-1 sigmoid",
         with_post(routing_of(8, 1, MOE_SCORE_NONE), MOE_SCORE_SIGMOID),
         false,
         {2},
         {.88079708}},
        {"sigmoid, bias", sigmoid, true, {7, 0, 3}, {.81673760, .74853046, .93473194}},
        {"two groups of four",
         with_groups(sigmoid, 4, 2, MOE_GROUP_SCORE_TOP2_SUM),
         true,
         {7, 4, 5},
         {.87768387, .56578721, 1.05652891}},
        {"group maximum",
         with_groups(with_scale(softmax, 16), 4, 2, MOE_GROUP_SCORE_MAX),
         false,
         {2, 5, 3},
         {5.55738149, 3.37072226, 2.62512114}},
        {"sqrt softplus", root, true, {7, 0, 3}, {.48779976, .45152586, .56067437}},
        {"softmax, bias",
         with_scale(softmax, 6),
         true,
         {4, 0, 7},
         {.21965389, .46500728, .59708117}},
        {"softmax, bias, sum",
         with_sum(softmax, 1e-12f, 1, MOE_RENORMALIZE_SUM_CLAMP),
         true,
         {4, 0, 7},
         {.17137133, .36279310, .46583557}},
        {"sparsemixer", sparsemixer(8), false, {2, 5}, {1, 1}},
    };
}

TEST(Route, ComputedValues) {
    for (const Golden& golden : goldens()) {
        Case c{golden.name, golden.routing, golden_logits, {}, {}};
        if (golden.with_bias) c.bias = golden_bias;
        const Routed routed = route(c);
        EXPECT_EQ(routed.ids, golden.ids) << golden.name;
        expect_weights(routed, golden.weights, golden.name);
    }
}

// Kolibri-1: the bias is added to the logit, and the weight is the sigmoid of the logit alone. A
// bias on the sigmoid would choose 7, 0 and 3.
TEST(Route, BiasedLogitsWithSigmoidWeights) {
    const Routing routing = with_post(routing_of(8, 3, MOE_SCORE_NONE), MOE_SCORE_SIGMOID);
    const std::vector<float> bias{0.3f, 0, -0.9f, 0.05f, 0.35f, -0.1f, 0, 0.6f};
    const std::vector<int32_t> ids{5, 7, 3};
    const Routed routed = route({"", routing, golden_logits, bias, {}});
    EXPECT_EQ(routed.ids, ids);
    expect_weights(routed, {.81757448, .67917870, .77729986}, "biased logits");
    const Routed normal = route({"", with_sum(routing, 1e-20f, 1), golden_logits, bias, {}});
    EXPECT_EQ(normal.ids, ids);
    expect_weights(normal, {.35952305, .29866441, .34181255}, "biased logits, sum");
}

TEST(Route, SparsemixerOfNearLogits) {
    const Routed routed =
        route({"", sparsemixer(8), {.5f, -1, 2, 1.99f, -.25f, 1.98f, 0, .75f}, {}, {}});
    EXPECT_EQ(routed.ids, (std::vector<int32_t>{2, 3}));
    expect_weights(routed, {.33667217, .50249998}, "near");
}

TEST(Route, EqualLogitsGoToTheLowestIndex) {
    const Routed routed =
        route({"", routing_of(8, 3, MOE_SCORE_SOFTMAX), std::vector<float>(8, 3.5f), {}, {}});
    EXPECT_EQ(routed.ids, (std::vector<int32_t>{0, 1, 2}));
    EXPECT_EQ(routed.weights, (std::vector<float>{.125f, .125f, .125f}));
}

// ---- given ids and hash

TEST(Route, SkippedSlotsTakeNoPart) {
    for (const moe_score post : {MOE_SCORE_NONE, MOE_SCORE_SOFTMAX, MOE_SCORE_SIGMOID}) {
        Routing routing = with_post(with_sum(routing_of(8, 5, MOE_SCORE_SIGMOID), 0, 1), post);
        const int32_t given[] = {-1, 2, 8, 5, -9};
        const Routed routed = route({"", routing, golden_logits, {}, {}}, given);
        EXPECT_EQ(routed.ids, (std::vector<int32_t>{-1, 2, -1, 5, -1}));
        EXPECT_EQ(routed.n_bad, 2);
        routing.top_k = 2;
        const int32_t alone[] = {2, 5};
        const Routed pair = route({"", routing, golden_logits, {}, {}}, alone);
        EXPECT_EQ(routed.weights, (std::vector<float>{0, pair.weights[0], 0, pair.weights[1], 0}));
        EXPECT_NEAR(pair.weights[0] + pair.weights[1], 1, 1e-6);
    }
}

TEST(Route, AllSkippedGivesZeros) {
    for (const moe_score post : {MOE_SCORE_NONE, MOE_SCORE_SOFTMAX}) {
        const Routing routing =
            with_post(with_sum(routing_of(8, 3, MOE_SCORE_SOFTMAX), 0, 1), post);
        const int32_t given[] = {-1, -1, -1};
        EXPECT_EQ(route({"", routing, golden_logits, {}, {}}, given).weights,
                  std::vector<float>(3, 0));
    }
    Case c{"", routing_of(8, 3, MOE_SCORE_SOFTMAX), golden_logits, {}, {}};
    c.routing.selection = MOE_SELECT_HASH;
    EXPECT_EQ(route(c).ids, std::vector<int32_t>(3, -1));  // a token id outside the table
    EXPECT_EQ(route(c).weights, std::vector<float>(3, 0));
}

TEST(Route, DuplicateGivenIdsCountEach) {
    const int32_t given[] = {4, 4};
    const Routed routed = route(
        {"", with_sum(routing_of(8, 2, MOE_SCORE_SIGMOID), 0, 1), golden_logits, {}, {}}, given);
    EXPECT_EQ(routed.ids, (std::vector<int32_t>{4, 4}));
    EXPECT_EQ(routed.weights, (std::vector<float>{.5f, .5f}));
}

TEST(Route, GivenIdsMayBeTheOutput) {
    Routing routing = routing_of(8, 2, MOE_SCORE_SOFTMAX);
    std::vector<float> logits = golden_logits, scratch(17), weights(2);
    std::vector<int32_t> ids{3, -1};
    route_token(routing, {}, logits.data(), scratch.data(), ids.data(), MOE_TYPE_NONE, ids.data(),
                weights.data());
    EXPECT_EQ(ids, (std::vector<int32_t>{3, -1}));
    EXPECT_NEAR(weights[0], .16407007, 1e-7);
}

TEST(Route, SparsemixerTakesGivenIds) {
    const std::vector<float> near{.5f, -1, 2, 1.99f, -.25f, 1.98f, 0, .75f};
    const int32_t best[] = {2, 3}, half[] = {-1, 2};
    expect_weights(route({"", sparsemixer(8), near, {}, {}}, best), {.33667217, .50249998}, "best");
    expect_weights(route({"", sparsemixer(8), near, {}, {}}, half), {0, .33667217}, "half");
}

// ---- scales and rounding

TEST(Route, IdentityExpertsHaveScaleOne) {
    Case c{"", routing_of(8, 3, MOE_SCORE_SOFTMAX), golden_logits, {}, {2, 2, 2, 2, 2}};
    c.n_experts = 5;
    const Routed routed = route(c);
    EXPECT_EQ(routed.ids, (std::vector<int32_t>{2, 5, 3}));
    expect_weights(routed, {.69467268, .21067014, .32814014}, "identity");
}

TEST(Route, RoundsWeightsWhenAsked) {
    Case c{"", routing_of(8, 3, MOE_SCORE_SOFTMAX), golden_logits, {}, {}};
    c.routing.round_weights = true;
    const Routed full = route(c);  // no type: stays in float32
    c.round_to = MOE_TYPE_BF16;
    const Routed rounded = route(c);
    for (size_t j = 0; j < 3; j++) {
        EXPECT_EQ(rounded.weights[j], round_to_type(full.weights[j], MOE_TYPE_BF16));
        EXPECT_NE(rounded.weights[j], full.weights[j]);
    }
}

TEST(Route, EpsAddsOrClamps) {
    const auto weight = [](moe_renormalize rule, float eps) {
        const Routing routing = with_sum(routing_of(4, 2, MOE_SCORE_SIGMOID), eps, 1, rule);
        return route({"", routing, std::vector<float>(4, 0.0f), {}, {}}).weights[1];
    };
    EXPECT_EQ(weight(MOE_RENORMALIZE_SUM_ADD, 1), 0.25f);
    EXPECT_EQ(weight(MOE_RENORMALIZE_SUM_CLAMP, 4), 0.125f);
    EXPECT_EQ(weight(MOE_RENORMALIZE_SUM_CLAMP, 0.5f), 0.5f);
    EXPECT_EQ(weight(MOE_RENORMALIZE_NONE, 0), 0.5f);
}

TEST(Route, VanishedSumsGiveZero) {
    for (const moe_renormalize rule : {MOE_RENORMALIZE_SUM_ADD, MOE_RENORMALIZE_SUM_CLAMP}) {
        for (const float eps : {0.0f, 1e-20f}) {
            const Routing routing = with_sum(routing_of(4, 2, MOE_SCORE_SIGMOID), eps, 1, rule);
            const Routed routed = route({"", routing, std::vector<float>(4, -1000.0f), {}, {}});
            EXPECT_EQ(routed.weights, (std::vector<float>{0, 0}));
            EXPECT_EQ(routed.ids, (std::vector<int32_t>{0, 1}));
        }
    }
}

// ---- corner cases

void expect_valid(const Case& c) {
    const Routed routed = route(c);
    std::set<int32_t> seen;
    for (size_t j = 0; j < routed.ids.size(); j++) {
        EXPECT_TRUE(routed.ids[j] >= 0 && routed.ids[j] < c.routing.n_experts_all) << c.name;
        EXPECT_TRUE(seen.insert(routed.ids[j]).second) << c.name << " twice " << routed.ids[j];
        EXPECT_FALSE(std::isnan(routed.weights[j])) << c.name << " " << j;
    }
}

TEST(Route, AnyBitsGiveValidIds) {
    std::mt19937 random(5);
    const std::vector<float> specials{nan_value, infinity, -infinity, 3.4e38f, -3.4e38f,
                                      0.0f,      -0.0f,    1e-45f,    1};
    for (const Kind& kind : kinds) {
        for (int32_t t = 0; t < 100; t++) {
            Case c = random_case(kind, {16, 4, 1}, random);
            for (float& z : c.logits) z = specials[random() % specials.size()];
            expect_valid(c);
            if (c.bias.empty()) continue;
            for (float& b : c.bias) b = specials[random() % specials.size()];
            expect_valid(c);
        }
    }
    for (int32_t t = 0; t < 100; t++) {
        Case c{"K", sparsemixer(5), std::vector<float>(5), {}, {}};
        for (float& z : c.logits) z = specials[random() % specials.size()];
        expect_valid(c);
    }
}

TEST(Route, NanComesLastAndInfinityFirst) {
    const std::vector<float> logits{nan_value, 1, -infinity, infinity, -5, nan_value};
    const Routed routed = route({"", routing_of(6, 6, MOE_SCORE_NONE), logits, {}, {}});
    EXPECT_EQ(routed.ids, (std::vector<int32_t>{3, 1, 4, 0, 2, 5}));
    const float largest = std::numeric_limits<float>::max();
    EXPECT_EQ(routed.logits, (std::vector<float>{-largest, 1, -largest, largest, -5, -largest}));
    const Routed softmax = route({"", routing_of(6, 2, MOE_SCORE_SOFTMAX), logits, {}, {}});
    EXPECT_EQ(softmax.weights, (std::vector<float>{1, 0}));
}

TEST(Route, SanitizeLogits) {
    std::vector<float> values{nan_value, infinity, -infinity, 2};
    sanitize_logits(values.data(), 3);
    const float largest = std::numeric_limits<float>::max();
    EXPECT_EQ(values, (std::vector<float>{-largest, largest, -largest, 2}));
}

TEST(Route, SoftcapStaysInTheLogits) {
    Case c{"", routing_of(3, 1, MOE_SCORE_NONE), {10, -infinity, infinity}, {}, {}};
    c.routing.logit_softcap = 5;
    const Routed routed = route(c);
    EXPECT_EQ(routed.ids[0], 2);
    EXPECT_EQ(routed.logits[1], -5);
    EXPECT_EQ(routed.logits[2], 5);
    EXPECT_NEAR(routed.logits[0], 5 * std::tanh(2.0), 1e-6);
}

TEST(Route, TiesAtTheCut) {
    const std::vector<float> logits{1, 3, 2, 3, 2, 2, 3};
    for (const moe_score score :
         {MOE_SCORE_NONE, MOE_SCORE_SOFTMAX, MOE_SCORE_SIGMOID, MOE_SCORE_SQRT_SOFTPLUS}) {
        const Routed routed = route({"", routing_of(7, 5, score), logits, {}, {}});
        EXPECT_EQ(routed.ids, (std::vector<int32_t>{1, 3, 6, 2, 4})) << score;
    }
}

TEST(Route, TiesOfGroups) {
    const Routing routing =
        with_groups(routing_of(6, 2, MOE_SCORE_NONE), 3, 1, MOE_GROUP_SCORE_TOP2_SUM);
    EXPECT_EQ(route({"", routing, {0, 1, 3, 4, 4, 3}, {}, {}}).ids, (std::vector<int32_t>{3, 2}));
}

// Scores that are all zero, or keys below zero, must not bring an excluded group back.
TEST(Route, GroupsWithNegativeKeys) {
    const Routing routing =
        with_groups(routing_of(8, 4, MOE_SCORE_SIGMOID), 4, 2, MOE_GROUP_SCORE_TOP2_SUM);
    const std::vector<float> bias{-3, -9, -2, -2.5f, -4, -4, -1, -8};
    const Routed routed = route({"", routing, std::vector<float>(8, 0.0f), bias, {}});
    EXPECT_EQ(routed.ids, (std::vector<int32_t>{2, 3, 4, 5}));
    const std::vector<float> lost(8, -infinity);
    EXPECT_EQ(route({"", routing, std::vector<float>(8, 0.0f), lost, {}}).ids,
              (std::vector<int32_t>{0, 1, 2, 3}));
}

// A.X-K2: a key of zero outside the kept groups is above the negative ones inside.
TEST(Route, GroupsMaskedByZero) {
    const Routing infinite =
        with_groups(with_sum(routing_of(8, 3, MOE_SCORE_SIGMOID), 1e-20f, 2.5f), 4, 2,
                    MOE_GROUP_SCORE_TOP2_SUM);
    const std::vector<float> bias{-1.5f, -1.4f, -1, -1.2f, -0.3f, -1.9f, 0.2f, -0.9f};
    const Routed routed = route({"", with_zero_mask(infinite), golden_logits, bias, {}});
    EXPECT_EQ(routed.ids, (std::vector<int32_t>{6, 0, 1}));
    expect_weights(routed, {.89837525, 1.11840412, .48322063}, "zero");
    const Routed other = route({"", infinite, golden_logits, bias, {}});
    EXPECT_EQ(other.ids, (std::vector<int32_t>{6, 2, 7}));
    expect_weights(other, {.60680325, 1.06894106, .82425569}, "infinity");
}

// More experts than the kept groups hold (no layer passes this): the others follow, lowest index
// first.
TEST(Route, ExcludedGroupsComeLast) {
    const Routing routing =
        with_groups(routing_of(6, 4, MOE_SCORE_NONE), 3, 1, MOE_GROUP_SCORE_MAX);
    EXPECT_EQ(route({"", routing, {9, 1, 2, 3, 10, 11}, {}, {}}).ids,
              (std::vector<int32_t>{5, 4, 0, 1}));
}

TEST(Route, AllExperts) {
    std::mt19937 random(3);
    for (const int32_t n : {1, 2, 64}) {
        const Case c{"",
                     with_sum(routing_of(n, n, MOE_SCORE_SOFTMAX), 0, 1),
                     normal(random, n, 0, 1),
                     {},
                     {}};
        const Routed routed = route(c);
        double sum = 0;
        for (size_t j = 0; j < routed.ids.size(); j++) {
            sum += routed.weights[j];
            if (j) {
                EXPECT_GT(c.logits[size_t(routed.ids[j - 1])], c.logits[size_t(routed.ids[j])]);
            }
        }
        EXPECT_NEAR(sum, 1, 1e-6);
        expect_valid(c);
    }
}

template <class T>
std::vector<T> permuted(const std::vector<T>& values, const std::vector<int32_t>& to) {
    std::vector<T> result(values.size());
    for (size_t i = 0; i < values.size(); i++) result[size_t(to[i])] = values[i];
    return result;
}

// Renaming the experts renames the ids and nothing else.
TEST(Route, PermutationOfExperts) {
    std::mt19937 random(17);
    for (const Kind& kind : kinds) {
        if (kind.make(64, 6).n_group > 1) continue;
        Case c = random_case(kind, {64, 6, 1}, random);
        const Routed before = route(c);
        std::vector<int32_t> to(64);
        std::iota(to.begin(), to.end(), 0);
        std::shuffle(to.begin(), to.end(), random);
        c.logits = permuted(c.logits, to);
        c.bias = permuted(c.bias, to);
        c.scale = permuted(c.scale, to);
        const Routed after = route(c);
        for (size_t j = 0; j < before.ids.size(); j++) {
            EXPECT_EQ(after.ids[j], to[size_t(before.ids[j])]) << kind.name;
            EXPECT_NEAR(after.weights[j], before.weights[j], 1e-6 * std::fabs(before.weights[j]))
                << kind.name;
        }
    }
}

}  // namespace
}  // namespace moe
