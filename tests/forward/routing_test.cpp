// The ways to route a forward, which must agree with each other, and what becomes of ids and logits
// that no router would give.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/layer_case.hpp"

namespace moe_test::routing {
namespace {

constexpr int64_t T = 7, H = 64, E = 6, K = 3;

// What route gives for x, dense.
struct Routed {
    explicit Routed(int64_t n) : ids(n * K), weights(n * K), logits(n * E) {}
    std::vector<int32_t> ids;
    Floats weights, logits;
};

struct RoutingCase {
    explicit RoutingCase(moe_layer_desc desc = plain_layer(H, 48, E, K))
        : layer(desc),
          runtime(make_runtime(2)),
          run(layer, layer.plan_desc(T), runtime.get()),
          x(layer.x(T)) {}
    Routed routed() const {
        Routed r(T);
        forward(run, x, [&](auto& args) {
            args.out_ids = r.ids.data();
            args.out_weights = r.weights.data();
            args.out_logits = r.logits.data();
        });
        return r;
    }
    // With ids and weights given; strides are dense.
    Floats with_ids(const std::vector<int32_t>& ids, const Floats& weights,
                    const Change& more = {}) const {
        return forward(run, x, [&](auto& args) {
            args.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
            args.ids = ids.data();
            args.weights = weights.data();
            if (more) more(args);
        });
    }
    clients::Doubles reference(const std::vector<int32_t>& ids, const Floats& weights) const {
        return clients::reference_forward(layer.layer, x, T, {ids, to_doubles(weights)});
    }

    LayerCase layer;
    Runtime runtime;
    LayerRun run;
    Floats x;
};

TEST(RoutingModes, AgreeBitForBit) {
    const RoutingCase c;
    const Floats wanted = forward(c.run, c.x);
    const Routed r = c.routed();
    EXPECT_TRUE(same_bits(c.with_ids(r.ids, r.weights), wanted)) << "ids and weights";
    EXPECT_TRUE(same_bits(forward(c.run, c.x,
                                  [&](auto& args) {
                                      args.routing = MOE_ROUTING_IDS;
                                      args.ids = r.ids.data();
                                  }),
                          wanted))
        << "ids, weights from x";
    EXPECT_TRUE(same_bits(forward(c.run, c.x,
                                  [&](auto& args) {
                                      args.routing = MOE_ROUTING_LOGITS;
                                      args.logits = r.logits.data();
                                  }),
                          wanted))
        << "logits";
    const auto reference = clients::reference_route(c.layer.layer, c.x, T);
    EXPECT_EQ(r.ids, reference.ids);
    EXPECT_LE(error_of(r.weights, reference.weights, K), f32_tolerance);
}

TEST(RoutingModes, ALayerWithoutRouterTakesLogitsOrIds) {
    const RoutingCase with_router;
    const Routed r = with_router.routed();
    auto desc = with_router.layer.layer.desc;
    desc.has_router = 0;
    LayerCase layer(desc);
    const LayerRun run(layer, layer.plan_desc(T));
    Floats out(T * H);
    auto args = forward_args(T, with_router.x.data(), out.data());
    EXPECT_MOE_ERROR(run.forward(args), MOE_ERROR_INVALID_ARGUMENT, "no router");
    args.ids = r.ids.data();
    args.routing = MOE_ROUTING_IDS;
    EXPECT_MOE_ERROR(run.forward(args), MOE_ERROR_INVALID_ARGUMENT, "no router");
    args.logits = r.logits.data();
    ASSERT_MOE_OK(run.forward(args));
    const auto wanted =
        clients::reference_forward(layer.layer, with_router.x, T, {r.ids, to_doubles(r.weights)});
    EXPECT_LE(error_of(out, wanted, H), f32_tolerance);
    const Floats of_ids = out;
    args.routing = MOE_ROUTING_LOGITS;
    ASSERT_MOE_OK(run.forward(args));
    EXPECT_TRUE(same_bits(out, of_ids));
}

TEST(Ids, OfBothTypesAndAnyStride) {
    const RoutingCase c;
    const Routed r = c.routed();
    const Floats wanted = forward(c.run, c.x);
    constexpr int64_t stride = K + 2;
    std::vector<int32_t> wide32(T * stride, 12345);
    std::vector<int64_t> wide64(T * stride, -99);
    Floats weights(T * (K + 5), NAN);
    for (int64_t t = 0; t < T; ++t)
        for (int64_t j = 0; j < K; ++j) {
            wide32[t * stride + j] = r.ids[t * K + j];
            wide64[t * stride + j] = r.ids[t * K + j];
            weights[t * (K + 5) + j] = r.weights[t * K + j];
        }
    for (const auto type : {MOE_TYPE_NONE, MOE_TYPE_I32, MOE_TYPE_I64}) {
        const Floats out = c.with_ids(r.ids, weights, [&](auto& args) {
            args.ids = type == MOE_TYPE_I64 ? static_cast<void*>(wide64.data()) : wide32.data();
            args.ids_type = type;
            args.ids_row_stride = stride;
            args.weights_row_stride = K + 5;
        });
        EXPECT_TRUE(same_bits(out, wanted));
    }
    EXPECT_EQ(faults_of(c.run.workspace).faults, 0u);
}

TEST(Weights, OfEveryType) {
    const RoutingCase c;
    const Routed r = c.routed();
    for (const auto type : {MOE_TYPE_F32, MOE_TYPE_F16, MOE_TYPE_BF16}) {
        const Bytes packed = pack(r.weights, type);
        const Floats out = c.with_ids(r.ids, r.weights, [&](auto& args) {
            args.weights = packed.data();
            args.weights_type = type;
        });
        EXPECT_TRUE(same_bits(out, c.with_ids(r.ids, unpack(packed, type))));
    }
}

TEST(Ids, MinusOneSkipsASlot) {
    const RoutingCase c;
    Routed r = c.routed();
    r.ids[0] = r.ids[5] = -1;
    std::fill_n(r.ids.begin() + 3 * K, K, -1);
    const Floats out = c.with_ids(r.ids, r.weights);
    EXPECT_LE(error_of(out, c.reference(r.ids, r.weights), H), f32_tolerance);
    for (int64_t h = 0; h < H; ++h) EXPECT_EQ(out[3 * H + h], 0.0f) << "no expert, no output";
    EXPECT_EQ(faults_of(c.run.workspace).faults, 0u) << "-1 is no fault";
}

TEST(Ids, AllSkippedAddNothing) {
    const RoutingCase c;
    const std::vector<int32_t> ids(T * K, -1);
    const Floats weights(T * K, 0.5f), before = clients::Random(3).values(T * H);
    Floats out = before;
    c.with_ids(ids, weights, [&](auto& args) {
        args.out = out.data();
        args.accumulate = 1;
    });
    EXPECT_TRUE(same_bits(out, before));
    EXPECT_EQ(c.with_ids(ids, weights), Floats(T * H, 0.0f));
}

TEST(Ids, AllSkippedGiveZeroThroughANormWithoutEpsToo) {
    auto desc = plain_layer(H, 48, E, K);
    desc.latent = 32;
    desc.has_latent_norm = 1;
    const RoutingCase c(desc);
    Routed r = c.routed();
    std::fill_n(r.ids.begin() + 3 * K, K, -1);
    const Floats out = c.with_ids(r.ids, r.weights);
    for (int64_t i = 0; i < T * H; ++i) {
        ASSERT_TRUE(std::isfinite(out[i])) << i;
        EXPECT_EQ(out[i] == 0, i / H == 3) << i;
    }
}

TEST(Ids, OutOfRangeAreSkippedAndToldOnce) {
    const RoutingCase c;
    const Routed r = c.routed();
    const std::vector<int64_t> wrong = {E, -2, INT32_MAX, INT32_MIN, int64_t{1} << 32, INT64_MIN};
    std::vector<int64_t> ids(r.ids.begin(), r.ids.end());
    std::vector<int32_t> skipped = r.ids;
    for (size_t i = 0; i < wrong.size(); ++i) {
        ids[2 * i + 1] = wrong[i];
        skipped[2 * i + 1] = -1;
    }
    for (const auto routing : {MOE_ROUTING_IDS_AND_WEIGHTS, MOE_ROUTING_IDS}) {
        std::vector<int32_t> out_ids(T * K, 77);
        std::vector<int64_t> counts(E, 77);
        Floats out_weights(T * K);
        const Floats out = c.with_ids(skipped, r.weights, [&](auto& args) {
            args.routing = routing;
            args.ids = ids.data();
            args.ids_type = MOE_TYPE_I64;
            args.out_ids = out_ids.data();
            args.out_weights = out_weights.data();
            args.out_expert_counts = counts.data();
        });
        EXPECT_LE(error_of(out, c.reference(skipped, out_weights), H), f32_tolerance);
        const auto faults = faults_of(c.run.workspace);
        EXPECT_EQ(faults.faults, uint32_t{MOE_FAULT_ID_OUT_OF_RANGE});
        EXPECT_EQ(faults.n_skipped, static_cast<int64_t>(wrong.size()));
        EXPECT_EQ(faults_of(c.run.workspace).faults, 0u) << "forgotten once told";
        EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}),
                  T * K - static_cast<int64_t>(wrong.size()));
        EXPECT_EQ(out_ids, skipped);
    }
}

TEST(Ids, DuplicatesAddUp) {
    const RoutingCase c;
    std::vector<int32_t> ids(T * K, 2);
    const Floats weights(T * K, 0.25f);
    const Floats out = c.with_ids(ids, weights);
    EXPECT_LE(error_of(out, c.reference(ids, weights), H), f32_tolerance);
    std::vector<int32_t> once(T * K, -1);
    Floats sum(T * K, 0.0f);
    for (int64_t t = 0; t < T; ++t) {
        once[t * K] = 2;
        sum[t * K] = 0.75f;
    }
    EXPECT_LE(error_of(out, to_doubles(c.with_ids(once, sum)), H), 1e-6);
}

TEST(Logits, NotFiniteGiveValidIds) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    constexpr float inf = std::numeric_limits<float>::infinity();
    for (const auto score :
         {MOE_SCORE_SOFTMAX, MOE_SCORE_SIGMOID, MOE_SCORE_NONE, MOE_SCORE_SQRT_SOFTPLUS}) {
        auto desc = plain_layer(H, 48, E, K);
        desc.score = score;
        const RoutingCase c(desc);
        const Floats logits = {
            nan, nan,  nan,  nan,  nan, nan,   // all alike: the lowest ids
            nan, 1,    nan,  2,    nan, nan,   // numbers before NaN
            inf, 0,    inf,  1,    2,   3,     // ties of the largest
            0,   -inf, -inf, -inf, 5,   -inf,  // -inf is last
            inf, nan,  -inf, inf,  inf, 0,     //
            0,   0,    0,    0,    0,   0,     //
            3,   2,    1,    0,    -1,  nan,
        };
        std::vector<int32_t> ids(T * K, 99);
        Floats weights(T * K);
        forward(c.run, c.x, [&](auto& args) {
            args.routing = MOE_ROUTING_LOGITS;
            args.logits = logits.data();
            args.out_ids = ids.data();
            args.out_weights = weights.data();
        });
        const std::vector<int32_t> first = {0, 1, 2, 3, 1, 0, 0, 2, 5, 4, 0, 1};
        if (score == MOE_SCORE_NONE) {
            EXPECT_TRUE(std::equal(first.begin(), first.end(), ids.begin()));
        }
        for (int64_t t = 0; t < T; ++t)
            for (int64_t j = 0; j < K; ++j) {
                const int32_t id = ids[t * K + j];
                EXPECT_TRUE(id >= 0 && id < E) << id;
                for (int64_t i = 0; i < j; ++i) EXPECT_NE(id, ids[t * K + i]) << "token " << t;
            }
    }
}

// NaN in one token: its ids stay valid, and no other token is touched.
TEST(X, NotFiniteStaysInItsToken) {
    const RoutingCase c;
    const Floats wanted = forward(c.run, c.x);
    for (const float value : {NAN, INFINITY}) {
        Floats x = c.x;
        x[2 * H + 5] = value;
        std::vector<int32_t> ids(T * K, 99);
        const Floats out = forward(c.run, x, [&](auto& args) { args.out_ids = ids.data(); });
        for (int64_t t = 0; t < T; ++t) {
            const bool same = std::equal(&out[t * H], &out[t * H] + H, &wanted[t * H]);
            EXPECT_EQ(same, t != 2) << t;
        }
        for (const int32_t id : ids) EXPECT_TRUE(id >= 0 && id < E) << id;
    }
}

TEST(RouterInput, MayDifferFromXInValueTypeAndStride) {
    const LayerCase layer(plain_layer(H, 48, E, K));
    const Floats x = layer.x(T), other = layer.x(T, 8);
    for (const auto type : {MOE_TYPE_F32, MOE_TYPE_F16, MOE_TYPE_BF16}) {
        auto desc = layer.plan_desc(T);
        desc.router_input_type = type;
        const LayerRun run(layer, desc);
        const Floats rounded = unpack(pack(other, type), type);
        Floats wide(T * (H + 3), NAN);
        for (int64_t t = 0; t < T; ++t)
            std::copy_n(rounded.begin() + t * H, H, wide.begin() + t * (H + 3));
        const Bytes packed = pack(wide, type);
        const Floats out = forward(run, x, [&](auto& args) {
            args.router_input = packed.data();
            args.router_input_row_stride = H + 3;
        });
        const auto routing = clients::reference_route(layer.layer, rounded, T);
        EXPECT_LE(error_of(out, clients::reference_forward(layer.layer, x, T, routing), H),
                  f32_tolerance);
        Floats ignored(T * H);
        const auto args = forward_args(T, x.data(), ignored.data());
        if (type == MOE_TYPE_F32) {
            EXPECT_MOE_OK(run.forward(args));
        } else {
            EXPECT_MOE_ERROR(run.forward(args), MOE_ERROR_INVALID_ARGUMENT, "router_input is NULL");
        }
    }
}

// A map that takes experts away, and one that exchanges two.
TEST(ExpertMap, OverridesMembership) {
    const RoutingCase c;
    const Routed r = c.routed();
    std::vector<int32_t> map = {0, 1, -1, 3, 4, -1}, without = r.ids;
    auto mapped = [&](auto& args) {
        args.expert_map = map.data();
        args.n_expert_map = E;
    };
    for (auto& id : without)
        if (id == 2 || id == 5) id = -1;
    EXPECT_LE(error_of(forward(c.run, c.x, mapped), c.reference(without, r.weights), H),
              f32_tolerance);
    map = {1, 0, 2, 3, 4, 5};
    std::vector<int32_t> exchanged = r.ids;
    for (auto& id : exchanged)
        if (id < 2) id = 1 - id;
    EXPECT_LE(error_of(forward(c.run, c.x, mapped), c.reference(exchanged, r.weights), H),
              f32_tolerance);
    Floats out(T * H);
    auto args = forward_args(T, c.x.data(), out.data());
    mapped(args);
    args.n_expert_map = E - 1;
    EXPECT_MOE_ERROR(c.run.forward(args), MOE_ERROR_INVALID_ARGUMENT, "n_expert_map is 5");
    args.n_expert_map = E;
    for (const int32_t wrong : {-2, 6}) {
        map[4] = wrong;
        EXPECT_MOE_ERROR(c.run.forward(args), MOE_ERROR_INVALID_ARGUMENT,
                         "expert_map[4] is " + std::to_string(wrong));
    }
}

TEST(Dispatch, EmptyExpertsAndAllTokensToOne) {
    const RoutingCase c;
    std::vector<int32_t> ids(T * K, -1);
    Floats weights(T * K, 0.0f);
    for (int64_t t = 0; t < T; ++t) {
        ids[t * K + 1] = 4;
        weights[t * K + 1] = 0.1f * static_cast<float>(t + 1);
    }
    EXPECT_LE(error_of(c.with_ids(ids, weights), c.reference(ids, weights), H), f32_tolerance);
}

// DeepSeek-V4.1: the call says whose experts the second bias chooses. The weights are still those
// of the scores.
TEST(SecondBias, ChoosesTheExpertsOfSomeTokens) {
    auto desc = plain_layer(H, 48, E, K);
    desc.score = MOE_SCORE_SQRT_SOFTPLUS;
    desc.renormalize_eps = 1e-20f;
    desc.has_routed_scale = desc.has_selection_bias = desc.has_second_selection_bias = 1;
    desc.routed_scale = 1.5f;
    const RoutingCase c(desc);
    const clients::LayerWeights& layer = c.layer.layer;
    const std::vector<int8_t> all(T, 1), none(T, 0), some = {0, 1, -1, 0, 5, 0, 127};
    const auto first = clients::reference_route(layer, c.x, T);
    ASSERT_NE(clients::reference_route(layer, c.x, T, all).ids, first.ids);
    for (const auto* uses : {&all, &none, &some}) {
        const auto wanted = clients::reference_route(layer, c.x, T, *uses);
        Floats out(T * H), out_weights(T * K);
        std::vector<int32_t> ids(T * K);
        auto args = forward_args(T, c.x.data(), out.data());
        args.out_ids = ids.data();
        args.out_weights = out_weights.data();
        args.uses_second_bias = uses->data();
        ASSERT_MOE_OK(c.run.forward(args));
        EXPECT_EQ(ids, wanted.ids);
        for (int64_t i = 0; i < T * K; ++i) EXPECT_NEAR(out_weights[i], wanted.weights[i], 1e-5);
        EXPECT_LE(error_of(out, clients::reference_forward(layer, c.x, T, wanted), H),
                  f32_tolerance);

        auto route = sized<moe_route_args>();
        route.n_tokens = T;
        route.x = c.x.data();
        route.out_ids = ids.data();
        route.out_weights = out_weights.data();
        route.uses_second_bias = uses->data();
        std::fill(ids.begin(), ids.end(), -7);
        ASSERT_MOE_OK(
            moe_route(c.run.plan.get(), c.run.weights.get(), c.run.workspace.get(), &route));
        EXPECT_EQ(ids, wanted.ids);
    }
    // No flags are no token, and ids that are given need no bias.
    Floats out(T * H);
    std::vector<int32_t> ids(T * K);
    auto args = forward_args(T, c.x.data(), out.data());
    args.out_ids = ids.data();
    ASSERT_MOE_OK(c.run.forward(args));
    EXPECT_EQ(ids, first.ids);
    args.routing = MOE_ROUTING_IDS;
    args.ids = first.ids.data();
    args.uses_second_bias = all.data();
    ASSERT_MOE_OK(c.run.forward(args));
    EXPECT_EQ(ids, first.ids);
}

// A layer of one bias has no use for the flags.
TEST(SecondBias, IsNothingToOtherLayers) {
    const RoutingCase c;
    const std::vector<int8_t> all(T, 1);
    Floats plain(T * H), flagged(T * H);
    auto args = forward_args(T, c.x.data(), plain.data());
    ASSERT_MOE_OK(c.run.forward(args));
    args.out = flagged.data();
    args.uses_second_bias = all.data();
    ASSERT_MOE_OK(c.run.forward(args));
    EXPECT_EQ(plain, flagged);
}

// Hash selection: ids from the table, weights from the scores.
TEST(Hash, TakesTheTableAndSkipsUnknownTokens) {
    auto desc = plain_layer(H, 48, E, K);
    desc.selection = MOE_SELECT_HASH;
    desc.hash_vocabulary = 5;
    auto plain = desc;
    plain.selection = MOE_SELECT_TOP_K;
    const LayerCase layer(plain);
    auto plan_desc = layer.plan_desc(T);
    plan_desc.layer = &desc;
    const Runtime runtime = make_runtime(1);
    const Plan plan = make_plan(runtime.get(), plan_desc);
    const std::vector<int32_t> table = {0, 1, 2, 3, 4, 5, 5, 3, 1, 2, 0, 4, 1, 2, 5};
    auto format = sized<moe_format>();
    format.type = MOE_TYPE_I32;
    TensorList list(layer.tensors.weights_desc());
    auto tensor = sized<moe_tensor>();
    tensor.role = MOE_ROLE_HASH_TABLE;
    tensor.format = &format;
    tensor.rows = 5;
    tensor.columns = K;
    tensor.data = table.data();
    tensor.data_bytes = table.size() * 4;
    list.tensors.push_back(tensor);
    const Weights weights = load_weights(plan.get(), list.desc());
    const Workspace workspace = make_workspace(runtime.get(), plan.get());
    const std::vector<int64_t> tokens = {0, 4, 2, -1, 5, 1, 3};
    const Floats x = layer.x(T);
    Floats out(T * H), out_weights(T * K);
    std::vector<int32_t> ids(T * K), wanted(T * K, -1);
    for (int64_t t = 0; t < T; ++t)
        if (tokens[t] >= 0 && tokens[t] < 5) std::copy_n(&table[tokens[t] * K], K, &wanted[t * K]);
    auto args = forward_args(T, x.data(), out.data());
    args.out_ids = ids.data();
    args.out_weights = out_weights.data();
    EXPECT_MOE_ERROR(moe_forward(plan.get(), weights.get(), workspace.get(), &args),
                     MOE_ERROR_INVALID_ARGUMENT, "token_ids");
    args.token_ids = tokens.data();
    args.token_ids_type = MOE_TYPE_I64;
    ASSERT_MOE_OK(moe_forward(plan.get(), weights.get(), workspace.get(), &args));
    EXPECT_EQ(ids, wanted);
    EXPECT_LE(
        error_of(out,
                 clients::reference_forward(layer.layer, x, T, {wanted, to_doubles(out_weights)}),
                 H),
        f32_tolerance);
    const auto faults = faults_of(workspace);
    EXPECT_EQ(faults.faults, uint32_t{MOE_FAULT_TOKEN_ID_OUT_OF_RANGE});
    EXPECT_EQ(faults.n_skipped, 2 * K);
    for (int64_t j = 0; j < K; ++j) {
        // Softmax scores of the table's ids over their sum: a ratio of exponentials of the logits.
        const auto z = clients::reference_logits(layer.layer, x.data());
        double sum = 0;
        for (int64_t i = 0; i < K; ++i) sum += std::exp(z[table[i]]);
        EXPECT_NEAR(out_weights[j], std::exp(z[table[j]]) / sum, 1e-6);
    }
}

}  // namespace
}  // namespace moe_test::routing
