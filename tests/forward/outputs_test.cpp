// Arguments of moe_forward that are refused by name, and its outputs: types, strides, accumulation,
// slots, counts, and the rows that must not be touched.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/layer_case.hpp"

namespace moe_test::outputs {
namespace {

constexpr int64_t T = 6, H = 64, E = 6, K = 3;
constexpr auto bad = MOE_ERROR_INVALID_ARGUMENT;

struct OutputCase {
    explicit OutputCase(const std::function<void(moe_plan_desc&)>& change = {},
                        moe_layer_desc layer_desc = plain_layer(H, 48, E, K))
        : layer(layer_desc),
          runtime(make_runtime(2)),
          run(layer, make(change), runtime.get()),
          x(layer.x(T)),
          out(T * H, 3.0f) {}
    moe_plan_desc make(const std::function<void(moe_plan_desc&)>& change) const {
        auto desc = layer.plan_desc(T);
        if (change) change(desc);
        return desc;
    }
    moe_forward_args args() { return forward_args(T, x.data(), out.data()); }
    moe_status call(const Change& change) {
        auto changed = args();
        change(changed);
        return run.forward(changed);
    }

    LayerCase layer;
    Runtime runtime;
    LayerRun run;
    Floats x, out;
};

template <class P>
P* off_by_one(P* pointer) {
    return reinterpret_cast<P*>(reinterpret_cast<uintptr_t>(pointer) + 1);
}

TEST(Arguments, WrongOnesAreNamedAndNothingIsWritten) {
    OutputCase c;
    std::vector<int32_t> ids(T * K + 1);
    Floats weights(T * K + 1), logits(T * E + 1);
    std::vector<int64_t> counts(E + 1);
    auto given = [&](auto& a) {
        a.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
        a.ids = ids.data();
        a.weights = weights.data();
    };
    EXPECT_MOE_ERROR(c.call([](auto& a) { a.n_tokens = -1; }), bad, "n_tokens is -1");
    EXPECT_MOE_ERROR(c.call([](auto& a) { a.n_tokens = T + 1; }), bad, "n_tokens is 7");
    EXPECT_MOE_ERROR(c.call([](auto& a) { a.x = nullptr; }), bad, "x is NULL");
    EXPECT_MOE_ERROR(c.call([](auto& a) { a.out = nullptr; }), bad, "out is NULL");
    EXPECT_MOE_ERROR(c.call([](auto& a) { a.routing = moe_routing(4); }), bad, "routing is 4");
    EXPECT_MOE_ERROR(c.call([](auto& a) { a.routing = moe_routing(-1); }), bad, "routing is -1");
    EXPECT_MOE_ERROR(c.call([](auto& a) { a.routing = MOE_ROUTING_LOGITS; }), bad,
                     "logits is NULL");
    EXPECT_MOE_ERROR(c.call([](auto& a) { a.routing = MOE_ROUTING_IDS; }), bad, "ids is NULL");
    EXPECT_MOE_ERROR(c.call([&](auto& a) {
        given(a);
        a.weights = nullptr;
    }),
                     bad, "weights is NULL");
    EXPECT_MOE_ERROR(c.call([&](auto& a) {
        given(a);
        a.ids_type = MOE_TYPE_F32;
    }),
                     bad, "ids_type is f32 (1)");
    EXPECT_MOE_ERROR(c.call([&](auto& a) {
        given(a);
        a.ids_type = moe_type(77);
    }),
                     bad, "ids_type is unknown (77)");
    EXPECT_MOE_ERROR(c.call([&](auto& a) {
        given(a);
        a.weights_type = MOE_TYPE_F64;
    }),
                     bad, "weights_type is f64 (4)");
    EXPECT_MOE_ERROR(c.call([&](auto& a) {
        given(a);
        a.ids_row_stride = K - 1;
    }),
                     bad, "ids_row_stride is 2");
    EXPECT_MOE_ERROR(c.call([&](auto& a) { a.ids = ids.data(); }), bad, "ids are given");
    EXPECT_MOE_ERROR(c.call([&](auto& a) { a.logits = logits.data(); }), bad, "logits are given");
    EXPECT_MOE_ERROR(c.call([](auto& a) { a.accumulate = 2; }), bad, "accumulate is 2");
    EXPECT_MOE_ERROR(c.call([](auto& a) { a.x_row_stride = H - 1; }), bad, "x_row_stride is 63");
    EXPECT_MOE_ERROR(c.call([](auto& a) { a.x_row_stride = -H; }), bad, "x_row_stride is -64");
    EXPECT_MOE_ERROR(c.call([](auto& a) { a.out_row_stride = 1; }), bad, "out_row_stride is 1");
    EXPECT_MOE_ERROR(c.call([&](auto& a) {
        a.out_logits = logits.data();
        a.out_logits_row_stride = 1;
    }),
                     bad, "out_logits_row_stride is 1");
    EXPECT_MOE_ERROR(c.call([](auto& a) { a.out_layout = MOE_OUT_ROWS; }), bad, "out_layout is 2");
    EXPECT_MOE_ERROR(c.call([](auto& a) { a.out_layout = MOE_OUT_PER_SLOT; }), bad, "PER_SLOT");
    EXPECT_MOE_ERROR(c.call([&](auto& a) { a.x_scales = c.x.data(); }), bad,
                     "x_scales are given, but the plan's x_type is f32");
    EXPECT_EQ(c.out, Floats(T * H, 3.0f));
    EXPECT_EQ(counts, std::vector<int64_t>(E + 1));
}

TEST(Arguments, PointersMustHaveTheAlignmentOfTheirType) {
    OutputCase c;
    std::vector<int32_t> ids(T * K + 1);
    Floats values(T * E + 1);
    std::vector<int64_t> counts(E + 1);
    const int32_t n_tokens[2] = {T, T};
    const std::vector<int32_t> map(E + 1, 0);
    auto given = [&](auto& a) {
        a.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
        a.ids = ids.data();
        a.weights = values.data();
    };
    EXPECT_MOE_ERROR(c.call([](auto& a) { a.x = off_by_one(a.x); }), bad, "x is at");
    EXPECT_MOE_ERROR(c.call([](auto& a) { a.out = off_by_one(a.out); }), bad, "out is at");
    EXPECT_MOE_ERROR(c.call([&](auto& a) { a.router_input = off_by_one(c.x.data()); }), bad,
                     "router_input is at");
    EXPECT_MOE_ERROR(c.call([&](auto& a) {
        given(a);
        a.ids = off_by_one(a.ids);
    }),
                     bad, "ids is at");
    EXPECT_MOE_ERROR(c.call([&](auto& a) {
        given(a);
        a.weights = off_by_one(a.weights);
    }),
                     bad, "weights is at");
    EXPECT_MOE_ERROR(c.call([&](auto& a) {
        a.routing = MOE_ROUTING_LOGITS;
        a.logits = off_by_one(values.data());
    }),
                     bad, "logits is at");
    EXPECT_MOE_ERROR(c.call([&](auto& a) { a.out_ids = off_by_one(ids.data()); }), bad,
                     "out_ids is at");
    EXPECT_MOE_ERROR(c.call([&](auto& a) { a.out_weights = off_by_one(values.data()); }), bad,
                     "out_weights is at");
    EXPECT_MOE_ERROR(c.call([&](auto& a) { a.out_logits = off_by_one(values.data()); }), bad,
                     "out_logits is at");
    EXPECT_MOE_ERROR(c.call([&](auto& a) { a.out_expert_counts = off_by_one(counts.data()); }), bad,
                     "out_expert_counts is at");
    EXPECT_MOE_ERROR(c.call([&](auto& a) { a.n_tokens_device = off_by_one(n_tokens); }), bad,
                     "n_tokens_device is at");
    EXPECT_MOE_ERROR(c.call([&](auto& a) {
        a.expert_map = off_by_one(map.data());
        a.n_expert_map = E;
    }),
                     bad, "expert_map is at");
    EXPECT_EQ(c.out, Floats(T * H, 3.0f));
}

// What a mode has no use for is neither read nor looked at.
TEST(Arguments, WithoutAUseHaveNoEffect) {
    OutputCase c;
    std::vector<int32_t> ids(T * K + 1, 99);
    Floats values(T * E + 1, NAN);
    const auto same = [&](const char* what, const Change& mode, const Change& change) {
        const Floats wanted = forward(c.run, c.x, mode);
        const Floats got = forward(c.run, c.x, [&](auto& a) {
            mode(a);
            change(a);
        });
        EXPECT_TRUE(same_bits(got, wanted)) << what;
        EXPECT_EQ(faults_of(c.run.workspace).faults, 0u) << what;
    };
    Floats logits = clients::Random(3).values(T * E), weights(T * K, 0.5f);
    const std::vector<int32_t> good(T * K, 1);
    const Change compute = [](auto&) {};
    const Change by_logits = [&](auto& a) {
        a.routing = MOE_ROUTING_LOGITS;
        a.logits = logits.data();
    };
    const Change given = [&](auto& a) {
        a.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
        a.ids = good.data();
        a.weights = weights.data();
    };
    for (const Change& mode : {compute, by_logits}) {
        same("weights", mode, [&](auto& a) { a.weights = off_by_one(values.data()); });
        same("weights_type", mode, [](auto& a) { a.weights_type = moe_type(99); });
        same("weights_row_stride", mode, [](auto& a) { a.weights_row_stride = 1; });
        same("ids_type", mode, [](auto& a) { a.ids_type = MOE_TYPE_F32; });
        same("ids_row_stride", mode, [](auto& a) { a.ids_row_stride = -1; });
    }
    same("ids", by_logits, [&](auto& a) { a.ids = off_by_one(ids.data()); });
    for (const Change& mode : {compute, given})
        same("logits_row_stride", mode, [](auto& a) { a.logits_row_stride = 1; });
    same("logits", given, [&](auto& a) { a.logits = off_by_one(values.data()); });
    same("out_logits", given, [&](auto& a) {
        a.out_logits = off_by_one(values.data());
        a.out_logits_row_stride = 1;
    });
    for (const Change& mode : {by_logits, given})
        same("router_input", mode, [&](auto& a) {
            a.router_input = off_by_one(values.data());
            a.router_input_row_stride = 1;
        });
    for (const Change& mode : {compute, by_logits, given})
        same("tables and strides of nothing", mode, [&](auto& a) {
            a.token_ids = off_by_one(ids.data());
            a.token_ids_type = moe_type(77);
            a.out_ids_row_stride = a.out_weights_row_stride = a.out_logits_row_stride = 1;
            a.n_expert_map = -1;
        });
}

TEST(Arguments, XAndOutMustNotOverlap) {
    OutputCase c;
    Floats both(3 * T * H, 1.0f);
    const Floats before = both;
    float* x = both.data() + T * H;
    for (const int64_t shift : {int64_t{0}, int64_t{1}, T * H - 1, -(T * H - 1)}) {
        const auto args = forward_args(T, x, x + shift);
        EXPECT_MOE_ERROR(c.run.forward(args), bad, "overlap");
    }
    EXPECT_EQ(both, before);
    for (const int64_t shift : {T * H, -T * H}) {
        const auto args = forward_args(T, x, x + shift);
        EXPECT_MOE_OK(c.run.forward(args));
    }
}

// The stride of a single row goes nowhere, however large it is.
TEST(Arguments, AStrideThatIsNeverTakenIsNoMatter) {
    OutputCase c;
    const Floats one(c.x.begin(), c.x.begin() + H);
    const Floats wanted = forward(c.run, one);
    for (const int64_t stride : {int64_t{1} << 40, INT64_MAX})
        EXPECT_TRUE(same_bits(forward(c.run, one,
                                      [&](auto& a) {
                                          a.x_row_stride = stride;
                                          a.out_row_stride = stride;
                                      }),
                              wanted))
            << stride;
    EXPECT_EQ(c.call([](auto& a) { a.x_row_stride = INT64_MAX; }), bad) << "two rows do not fit";
    for (const int64_t stride : {int64_t{1} << 62, INT64_MAX})
        EXPECT_MOE_ERROR(c.call([&](auto& a) {
            a.n_tokens = 1;
            a.out = c.x.data();
            a.x_row_stride = a.out_row_stride = stride;
        }),
                         bad, "overlap");
}

TEST(NoTokens, DoesNothing) {
    OutputCase c;
    for (const auto routing :
         {MOE_ROUTING_COMPUTE, MOE_ROUTING_LOGITS, MOE_ROUTING_IDS, MOE_ROUTING_IDS_AND_WEIGHTS}) {
        auto args = sized<moe_forward_args>();
        args.routing = routing;
        EXPECT_MOE_OK(c.run.forward(args)) << "nothing is required";
        args = c.args();
        args.routing = routing;
        args.n_tokens = 0;
        EXPECT_MOE_OK(c.run.forward(args));
    }
    EXPECT_EQ(c.out, Floats(T * H, 3.0f));
}

// ---- tokens counted on the device

TEST(TokensOnDevice, RowsBeyondAreNotTouched) {
    OutputCase c;
    const Floats whole = forward(c.run, c.x);
    for (const int32_t n : {0, 1, 4, 6, 7, INT32_MAX, -1, INT32_MIN}) {
        const int64_t used = std::clamp<int64_t>(n, 0, T);
        std::vector<int32_t> ids(T * K, 77);
        Floats weights(T * K, 77.0f), logits(T * E, 77.0f), x = c.x;
        std::vector<int64_t> counts(E, 77);
        std::fill(x.begin() + used * H, x.end(), NAN);
        const Floats out = forward(c.run, x, [&](auto& a) {
            a.n_tokens_device = &n;
            a.out_ids = ids.data();
            a.out_weights = weights.data();
            a.out_logits = logits.data();
            a.out_expert_counts = counts.data();
        });
        EXPECT_TRUE(std::equal(out.begin(), out.begin() + used * H, whole.begin())) << n;
        EXPECT_TRUE(std::all_of(out.begin() + used * H, out.end(), clients::is_poison)) << n;
        EXPECT_EQ(std::count(ids.begin(), ids.end(), 77), (T - used) * K);
        EXPECT_EQ(std::count(weights.begin(), weights.end(), 77.0f), (T - used) * K);
        EXPECT_EQ(std::count(logits.begin(), logits.end(), 77.0f), (T - used) * E);
        EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), used * K);
        const auto faults = faults_of(c.run.workspace);
        EXPECT_EQ(faults.faults, n == used ? 0u : uint32_t{MOE_FAULT_TOKENS_OUT_OF_RANGE}) << n;
    }
}

// ---- outputs

TEST(Out, StridesLeaveGapsUntouched) {
    OutputCase c;
    const Floats wanted = forward(c.run, c.x);
    constexpr int64_t x_stride = H + 5, out_stride = H + 3;
    Floats x(T * x_stride, NAN), out = clients::poisoned(T * out_stride);
    for (int64_t t = 0; t < T; ++t) std::copy_n(&c.x[t * H], H, &x[t * x_stride]);
    std::vector<int32_t> ids(T * (K + 1), 77);
    Floats weights(T * (K + 2), 77.0f), logits(T * (E + 3), 77.0f);
    auto args = forward_args(T, x.data(), out.data());
    args.x_row_stride = x_stride;
    args.out_row_stride = out_stride;
    args.out_ids = ids.data();
    args.out_ids_row_stride = K + 1;
    args.out_weights = weights.data();
    args.out_weights_row_stride = K + 2;
    args.out_logits = logits.data();
    args.out_logits_row_stride = E + 3;
    ASSERT_MOE_OK(c.run.forward(args));
    for (int64_t t = 0; t < T; ++t) {
        EXPECT_TRUE(std::equal(&wanted[t * H], &wanted[t * H] + H, &out[t * out_stride]));
        for (int64_t i = H; i < out_stride; ++i)
            EXPECT_TRUE(clients::is_poison(out[t * out_stride + i]));
        EXPECT_EQ(ids[t * (K + 1) + K], 77);
        EXPECT_EQ(weights[t * (K + 2) + K], 77.0f);
        EXPECT_EQ(logits[t * (E + 3) + E], 77.0f);
    }
}

TEST(Out, RoutingIsWhatTheReferenceSays) {
    OutputCase c;
    std::vector<int32_t> ids(T * K);
    Floats weights(T * K), logits(T * E);
    std::vector<int64_t> counts(E, 99), wanted_counts(E);
    forward(c.run, c.x, [&](auto& a) {
        a.out_ids = ids.data();
        a.out_weights = weights.data();
        a.out_logits = logits.data();
        a.out_expert_counts = counts.data();
    });
    const auto wanted = clients::reference_route(c.layer.layer, c.x, T);
    EXPECT_EQ(ids, wanted.ids);
    EXPECT_LE(error_of(weights, wanted.weights, K), f32_tolerance);
    clients::Doubles wanted_logits;
    for (int64_t t = 0; t < T; ++t)
        for (const double z : clients::reference_logits(c.layer.layer, &c.x[t * H]))
            wanted_logits.push_back(z);
    EXPECT_LE(error_of(logits, wanted_logits, E), f32_tolerance);
    for (const int32_t id : wanted.ids) ++wanted_counts[id];
    EXPECT_EQ(counts, wanted_counts);
}

// Results of float32 arithmetic, rounded once to the type of out.
TEST(Out, OfEveryTypeIsRoundedOnce) {
    for (const auto intermediate : {MOE_TYPE_F32, MOE_TYPE_BF16, MOE_TYPE_F16, MOE_TYPE_F64}) {
        OutputCase exact([&](auto& d) { d.intermediate_type = intermediate; });
        const Floats wanted = forward(exact.run, exact.x);
        for (const auto type : {MOE_TYPE_F16, MOE_TYPE_BF16}) {
            OutputCase c([&](auto& d) {
                d.out_type = type;
                d.intermediate_type = intermediate;
            });
            Bytes out(T * H * 2, std::byte{0x7F});
            ASSERT_MOE_OK(c.call([&](auto& a) { a.out = out.data(); }));
            EXPECT_EQ(out, pack(wanted, type)) << intermediate;
        }
    }
}

TEST(Out, AccumulateAddsAndRoundsOnce) {
    for (const auto type : {MOE_TYPE_F32, MOE_TYPE_F16, MOE_TYPE_BF16}) {
        OutputCase exact;
        const Floats result = forward(exact.run, exact.x);
        OutputCase c([&](auto& d) { d.out_type = type; });
        Bytes out = pack(clients::Random(5).values(T * H), type);
        Floats sum = unpack(out, type);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += result[i];
        ASSERT_MOE_OK(c.call([&](auto& a) {
            a.out = out.data();
            a.accumulate = 1;
        }));
        EXPECT_EQ(out, pack(sum, type));
    }
}

TEST(X, OfEveryType) {
    for (const auto type : {MOE_TYPE_F16, MOE_TYPE_BF16}) {
        OutputCase c([&](auto& d) {
            d.x_type = type;
            d.out_type = MOE_TYPE_F32;
            d.intermediate_type = MOE_TYPE_F32;
        });
        const Bytes packed = pack(c.x, type);
        ASSERT_MOE_OK(c.call([&](auto& a) { a.x = packed.data(); }));
        EXPECT_LE(error_of(c.out, c.layer.reference(unpack(packed, type)), H), f32_tolerance);
    }
}

// bf16 x: act(gate, up) is rounded to bf16 unless the plan says otherwise, and out is bf16.
TEST(X, OfBf16HasBf16Defaults) {
    OutputCase by_default([](auto& d) { d.x_type = MOE_TYPE_BF16; });
    OutputCase said([](auto& d) {
        d.x_type = d.out_type = d.intermediate_type = d.router_input_type = MOE_TYPE_BF16;
    });
    OutputCase wider([](auto& d) {
        d.x_type = MOE_TYPE_BF16;
        d.intermediate_type = MOE_TYPE_F32;
    });
    const Bytes x = pack(by_default.x, MOE_TYPE_BF16);
    auto result = [&](OutputCase& c) {
        Bytes out(T * H * 2);
        must(c.call([&](auto& a) {
            a.x = x.data();
            a.out = out.data();
        }),
             "moe_forward");
        return out;
    };
    EXPECT_EQ(result(by_default), result(said));
    EXPECT_NE(result(by_default), result(wider)) << "the intermediate is rounded";
    const Floats out = unpack(result(by_default), MOE_TYPE_BF16);
    EXPECT_LE(error_of(out, by_default.layer.reference(unpack(x, MOE_TYPE_BF16)), H), 1e-2);
}

// ---- partial plans

TEST(PerSlot, IsEveryExpertUnweighted) {
    for (const int32_t latent : {0, 32}) {
        auto desc = plain_layer(H, 48, E, K);
        desc.latent = latent;
        OutputCase c([](auto& d) { d.partial = 1; }, desc);
        const int64_t L = latent ? latent : H;
        std::vector<int32_t> ids = clients::reference_route(c.layer.layer, c.x, T).ids;
        ids[4] = -1;
        const Floats weights(T * K, 0.5f);
        clients::Doubles wanted(T * K * L);
        for (int64_t slot = 0; slot < T * K; ++slot) {
            if (ids[slot] < 0) continue;
            const auto v = clients::expert_input(c.layer.layer, &c.x[slot / K * H]);
            const auto y = clients::reference_expert(c.layer.layer, ids[slot], v.data());
            std::copy(y.begin(), y.end(), wanted.begin() + slot * L);
        }
        Floats out = clients::poisoned(T * K * L);
        auto per_slot = [&](auto& a) {
            a.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
            a.ids = ids.data();
            a.weights = weights.data();
            a.out = out.data();
            a.out_layout = MOE_OUT_PER_SLOT;
        };
        ASSERT_MOE_OK(c.call(per_slot));
        EXPECT_LE(error_of(out, wanted, L), f32_tolerance);
        EXPECT_MOE_ERROR(c.call([&](auto& a) {
            per_slot(a);
            a.accumulate = 1;
        }),
                         bad, "accumulate");
        // Reduced: the routed sum and nothing else.
        Floats sum = clients::poisoned(T * L);
        ASSERT_MOE_OK(c.call([&](auto& a) {
            per_slot(a);
            a.out = sum.data();
            a.out_layout = MOE_OUT_REDUCED;
        }));
        EXPECT_LE(
            error_of(sum,
                     clients::reference_routed(c.layer.layer, c.x, T, {ids, to_doubles(weights)}),
                     L),
            f32_tolerance);
    }
}

// Slices of experts and of the intermediate: their sums, finished once, are the layer.
TEST(Slices, AddUpToTheLayer) {
    auto desc = plain_layer(H, 48, E, K);
    desc.has_gate_bias = desc.has_up_bias = desc.has_down_bias = 1;
    desc.n_identity_experts = 2;
    desc.shared_intermediate = 32;
    desc.shared_activation = MOE_ACTIVATION_SILU;
    desc.shared_is_gated = 1;
    desc.combine = MOE_COMBINE_MEAN;
    auto first = sized<moe_slice>(), second = first;
    for (const bool by_expert : {true, false}) {
        first.has_expert_range = second.has_expert_range = by_expert;
        first.expert_count = by_expert ? 2 : 0;
        second.expert_begin = by_expert ? 2 : 0;
        second.expert_count = by_expert ? 4 : 0;
        first.has_intermediate_range = second.has_intermediate_range = !by_expert;
        first.intermediate_count = by_expert ? 0 : 16;
        second.intermediate_begin = by_expert ? 0 : 16;
        second.intermediate_count = by_expert ? 0 : 32;
        Floats sum(T * H);
        std::vector<int32_t> ids(T * K);
        Floats weights(T * K), x;
        for (const auto* slice : {&first, &second}) {
            OutputCase c(
                [&](auto& d) {
                    d.partial = 1;
                    d.slice = slice;
                },
                desc);
            ASSERT_MOE_OK(c.call([&](auto& a) {
                a.out = sum.data();
                a.accumulate = 1;
                a.out_ids = ids.data();
                a.out_weights = weights.data();
            }));
            if (slice == &first) continue;
            auto finish = sized<moe_finish_args>();
            finish.n_tokens = T;
            finish.routed = sum.data();
            finish.x = c.x.data();
            finish.ids = ids.data();
            finish.weights = weights.data();
            finish.out = c.out.data();
            ASSERT_MOE_OK(
                moe_finish(c.run.plan.get(), c.run.weights.get(), c.run.workspace.get(), &finish));
            EXPECT_LE(error_of(c.out, c.layer.reference(c.x), H), f32_tolerance) << by_expert;
        }
    }
}

}  // namespace
}  // namespace moe_test::outputs
