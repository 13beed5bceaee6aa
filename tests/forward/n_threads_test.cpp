// n_threads of a call: how many threads work, and that results do not depend on it. Calls of few
// tokens, which take another way through the layer than those of many, give the bits of these.
#include <gtest/gtest.h>

#include "support/process_facts.hpp"
#include "support/thread_team.hpp"
#include "tests/support/layer_case.hpp"

namespace moe_test::n_threads {
namespace {

constexpr int64_t H = 160;
constexpr int32_t K = 3;

// Without a shared expert the experts and their sums are the whole layer.
moe_layer_desc bare_layer() {
    auto d = plain_layer(H, 96, 7, K);
    d.has_down_bias = 1;
    d.n_identity_experts = 1;
    return d;
}

moe_layer_desc shared_layer() {
    auto d = bare_layer();
    d.shared_intermediate = 64;
    d.shared_activation = MOE_ACTIVATION_SILU;
    d.shared_is_gated = 1;
    d.has_shared_expert_gate = 1;
    return d;
}

// Ids and weights of n tokens: token 0 has no experts at all, others repeat and skip some.
struct Routed {
    explicit Routed(int64_t n) {
        for (int64_t i = 0; i < n * K; ++i) {
            ids.push_back(i < K ? -1 : static_cast<int32_t>((i * 5 + i / 4) % 8));
            weights.push_back(0.25f + 0.125f * static_cast<float>(i % 5));
        }
    }
    Change change(int32_t n_threads) const {
        return [this, n_threads](moe_forward_args& args) {
            args.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
            args.ids = ids.data();
            args.weights = weights.data();
            args.n_threads = n_threads;
        };
    }
    std::vector<int32_t> ids;
    Floats weights;
};

TEST(NThreads, AnyNumberGivesTheSameBits) {
    for (const auto& desc : {bare_layer(), shared_layer()})
        for (const char* format : {"f32", "bf16"}) {
            const LayerCase layer(desc, format);
            const Runtime runtime = make_runtime(4), one = make_runtime(1);
            const LayerRun run(layer, layer.plan_desc(19), runtime.get());
            const LayerRun serial(layer, layer.plan_desc(19), one.get());
            for (const int64_t n : {1, 2, 16, 17, 19}) {
                const Floats x = layer.x(n);
                const Routed routed(n);
                const Floats computed = forward(serial, x);
                const Floats given = forward(serial, x, routed.change(0));
                for (const int32_t n_threads : {0, 1, 2, 3, 4, 9, 1 << 30})
                    for (int repeat = 0; repeat < 3; ++repeat) {
                        EXPECT_TRUE(same_bits(
                            forward(run, x, [&](auto& args) { args.n_threads = n_threads; }),
                            computed))
                            << format << ", " << n << " tokens, " << n_threads << " threads";
                        EXPECT_TRUE(same_bits(forward(run, x, routed.change(n_threads)), given))
                            << format << ", " << n << " tokens, " << n_threads << " threads";
                    }
            }
        }
}

TEST(NThreads, FewTokensGiveTheBitsOfMany) {
    for (const auto& desc : {bare_layer(), shared_layer()})
        for (const char* format : {"f32", "bf16"}) {
            const LayerCase layer(desc, format);
            const Runtime runtime = make_runtime(3);
            auto plan_desc = layer.plan_desc(20);
            plan_desc.batch_invariant = 1;
            const LayerRun run(layer, plan_desc, runtime.get());
            const Floats x = layer.x(20);
            const Routed all(20);
            const Floats many = forward(run, x, all.change(0));
            EXPECT_TRUE(std::all_of(many.begin(), many.begin() + (desc.shared_intermediate ? 0 : H),
                                    [](float v) { return v == 0; }))
                << "a token without experts";
            for (int64_t n = 1; n <= 16; ++n) {
                const Floats few =
                    forward(run, Floats(x.begin(), x.begin() + n * H), all.change(0));
                EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()))
                    << format << ", " << n << " tokens";
            }
        }
}

// Sums of few tokens go into the caller's rows block of columns by block, whatever these rows are.
TEST(NThreads, FewTokensAddToRowsWithStrides) {
    const LayerCase layer(bare_layer());
    const Runtime runtime = make_runtime(3);
    const LayerRun run(layer, layer.plan_desc(5), runtime.get());
    const Floats x = layer.x(5);
    const Routed routed(5);
    const Floats plain = forward(run, x, routed.change(2));
    constexpr int64_t stride = H + 7;
    Floats out(5 * stride, 3.0f);
    auto args = forward_args(5, x.data(), out.data());
    routed.change(2)(args);
    args.out_row_stride = stride;
    args.accumulate = 1;
    ASSERT_MOE_OK(run.forward(args));
    for (int64_t t = 0; t < 5; ++t)
        for (int64_t i = 0; i < stride; ++i)
            ASSERT_EQ(out[t * stride + i], i < H ? 3.0f + plain[t * H + i] : 3.0f) << t << " " << i;
}

// The pool's threads are made by the first call that can use them.
TEST(NThreads, OneIsTheCallingThreadAlone) {
    const LayerCase layer(shared_layer());
    const int before = clients::count_threads();
    const Runtime runtime = make_runtime(3);
    const LayerRun run(layer, layer.plan_desc(19), runtime.get());
    const int loaded = clients::count_threads();
    const Floats x = layer.x(19);
    forward(run, x, [](auto& args) { args.n_threads = 1; });
    EXPECT_EQ(clients::count_threads(), loaded);
    forward(run, x);
    EXPECT_EQ(clients::count_threads(), before + 2);
}

// A parallel_for that keeps the largest number of tasks that it was offered.
struct Offered {
    int32_t most = 0;
    int n_calls = 0;
    static void parallel_for(int32_t n_tasks, moe_task_fn task, void* data, void* self) {
        auto& offered = *static_cast<Offered*>(self);
        offered.most = std::max(offered.most, n_tasks);
        ++offered.n_calls;
        for (int32_t i = 0; i < n_tasks; ++i) task(i, data);
    }
    moe_runtime_desc runtime_desc(int32_t n_threads) {
        auto desc = sized<moe_runtime_desc>();
        desc.n_threads = n_threads;
        desc.parallel_for = parallel_for;
        desc.parallel_for_user_data = this;
        return desc;
    }
};

TEST(NThreads, IsHowManyTasksACallersLoopIsOffered) {
    const LayerCase layer(shared_layer());
    Offered offered;
    const Runtime runtime = make_runtime(offered.runtime_desc(5));
    const LayerRun run(layer, layer.plan_desc(19), runtime.get());
    const Floats x = layer.x(19);
    for (const auto& [n_threads, most] : {std::pair{0, 5}, {4, 4}, {2, 2}, {7, 5}}) {
        offered.most = 0;
        forward(run, x, [&](auto& args) { args.n_threads = n_threads; });
        EXPECT_EQ(offered.most, most) << n_threads;
    }
    offered.n_calls = 0;
    forward(run, x, [](auto& args) { args.n_threads = 1; });
    EXPECT_EQ(offered.n_calls, 0);
}

// What few tokens promise: a region for gate and up, and one for down.
TEST(NThreads, FewTokensTakeTwoParallelRegions) {
    for (const auto& desc : {bare_layer(), shared_layer()}) {
        const LayerCase layer(desc, "bf16");
        Offered offered;
        const Runtime runtime = make_runtime(offered.runtime_desc(4));
        const LayerRun run(layer, layer.plan_desc(16), runtime.get());
        for (const int64_t n : {1, 2, 16}) {
            const Routed routed(n + 1);  // without the token that has no experts
            const Floats x = layer.x(n);
            offered.n_calls = 0;
            forward(run, x, [&](auto& args) {
                routed.change(0)(args);
                args.ids = routed.ids.data() + K;
            });
            EXPECT_EQ(offered.n_calls, 2) << n << " tokens";
        }
    }
}

// The five calls that have it.
TEST(NThreads, BelowZeroIsRefused) {
    const LayerCase layer(shared_layer());
    const Runtime runtime = make_runtime(2);
    const LayerRun run(layer, layer.plan_desc(4), runtime.get());
    const Floats x = layer.x(4);
    const Routed routed(4);
    Floats rows(4 * K * H), out(4 * H), weights(4 * K);
    std::vector<int32_t> ids(4 * K);
    const auto expect_refused = [&](auto call, auto args) {
        args.n_tokens = 4;
        args.n_threads = 1;
        EXPECT_MOE_OK(call(args));
        args.n_threads = -1;
        EXPECT_MOE_ERROR(call(args), MOE_ERROR_INVALID_ARGUMENT, "n_threads is -1");
    };
    const auto* plan = run.plan.get();
    auto* workspace = run.workspace.get();
    expect_refused([&](const auto& args) { return run.forward(args); },
                   forward_args(4, x.data(), out.data()));
    auto route = sized<moe_route_args>();
    route.x = x.data();
    route.out_ids = ids.data();
    route.out_weights = weights.data();
    expect_refused(
        [&](const auto& args) { return moe_route(plan, run.weights.get(), workspace, &args); },
        route);
    auto experts = sized<moe_experts_args>();
    experts.out_layout = MOE_OUT_PER_SLOT;
    experts.x = x.data();
    experts.ids = ids.data();
    experts.out = rows.data();
    expect_refused(
        [&](const auto& args) { return moe_experts(plan, run.weights.get(), workspace, &args); },
        experts);
    auto combine = sized<moe_combine_args>();
    combine.rows = rows.data();
    combine.ids = ids.data();
    combine.weights = weights.data();
    combine.x = x.data();
    combine.out = out.data();
    expect_refused([&](const auto& args) { return moe_combine(plan, workspace, &args); }, combine);
    auto finish = sized<moe_finish_args>();
    finish.routed = out.data();
    finish.x = x.data();
    finish.out = out.data();
    expect_refused(
        [&](const auto& args) { return moe_finish(plan, run.weights.get(), workspace, &args); },
        finish);
}

// Threads of the caller's that enter together take the way of few tokens, too.
TEST(NThreads, SpmdGivesTheBitsOfForwardForFewTokens) {
    for (const auto& desc : {bare_layer(), shared_layer()}) {
        const LayerCase layer(desc, "bf16");
        const Runtime runtime = make_runtime(3);
        const LayerRun run(layer, layer.plan_desc(16), runtime.get());
        for (const int64_t n : {1, 5, 16}) {
            const Floats x = layer.x(n);
            const Routed routed(n);
            const Floats wanted = forward(run, x, routed.change(0));
            for (const int32_t n_threads : {1, 2, 3, 5}) {
                clients::ThreadTeam team(n_threads);
                for (int repeat = 0; repeat < 20; ++repeat) {
                    Floats out = clients::poisoned(n * H);
                    auto args = forward_args(n, x.data(), out.data());
                    routed.change(1)(args);
                    team.run([&](int32_t index) {
                        EXPECT_MOE_OK(moe_forward_spmd(run.plan.get(), run.weights.get(),
                                                       run.workspace.get(), &args, index,
                                                       n_threads));
                    });
                    ASSERT_TRUE(same_bits(out, wanted)) << n << " tokens, " << n_threads;
                }
            }
        }
    }
}

}  // namespace
}  // namespace moe_test::n_threads
