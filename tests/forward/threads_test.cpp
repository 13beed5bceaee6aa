// The same bits: across thread counts, repeats, host threads, SPMD, batches, chunks and kernels of
// one plan.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "support/process_facts.hpp"
#include "support/thread_team.hpp"
#include "tests/support/float_modes.hpp"
#include "tests/support/layer_case.hpp"

namespace moe_test {
namespace {

constexpr int64_t H = 96;

moe_layer_desc layer_desc() {
    auto d = plain_layer(H, 80, 7, 3);
    d.shared_intermediate = 48;
    d.shared_activation = MOE_ACTIVATION_SILU;
    d.shared_is_gated = 1;
    d.has_shared_expert_gate = 1;
    return d;
}

TEST(SameBits, WhateverTheNumberOfThreads) {
    const LayerCase layer(layer_desc(), "bf16");
    const Floats x = layer.x(19);
    Floats first;
    for (const int32_t n_threads : {1, 2, 3, 5, 8}) {
        const Runtime runtime = make_runtime(n_threads);
        const LayerRun run(layer, layer.plan_desc(19), runtime.get());
        for (int repeat = 0; repeat < 10; ++repeat) {
            const Floats out = forward(run, x);
            if (first.empty()) first = out;
            ASSERT_TRUE(same_bits(out, first)) << n_threads << " threads, repeat " << repeat;
        }
    }
    EXPECT_LE(error_of(first, layer.reference(x), H), f32_tolerance);
}

// With x so small that outputs are subnormal: a thread that flushed them would give zeros.
TEST(SameBits, WhateverTheFloatingPointModeOfTheCaller) {
    const LayerCase layer(layer_desc());
    clients::ThreadTeam team(3);
    auto callers = sized<moe_runtime_desc>();
    callers.n_threads = 3;
    callers.parallel_for = clients::ThreadTeam::parallel_for;
    callers.parallel_for_user_data = &team;
    for (const float size : {1.0f, 3e-20f}) {
        Floats x = layer.x(19), wanted;
        for (float& value : x) value *= size;
        for (const int32_t n_threads : {1, 3, 0}) {
            const Runtime runtime = n_threads ? make_runtime(n_threads) : make_runtime(callers);
            const LayerRun run(layer, layer.plan_desc(19), runtime.get());
            if (wanted.empty()) wanted = forward(run, x);
            const OddFloatMode odd;
            EXPECT_TRUE(same_bits(forward(run, x), wanted)) << n_threads << " threads";
            EXPECT_FALSE(is_default_mode());
        }
        const auto is_small = [](float v) { return v != 0 && std::abs(v) < 0x1p-126f; };
        EXPECT_EQ(std::count_if(wanted.begin(), wanted.end(), is_small) > 19 * H / 2, size < 1);
    }
}

TEST(SameBits, FromManyHostThreadsSharingPlanAndWeights) {
    const LayerCase layer(layer_desc(), "bf16");
    for (const int32_t n_threads : {1, 3}) {
        const Runtime runtime = make_runtime(n_threads);
        const LayerRun run(layer, layer.plan_desc(6), runtime.get());
        std::vector<std::thread> threads;
        for (int i = 0; i < 5; ++i)
            threads.emplace_back([&, i] {
                const Workspace workspace = make_workspace(runtime.get(), run.plan.get());
                const Floats x = layer.x(6, 100 + i);
                Floats out(x.size()), first;
                const auto args = forward_args(6, x.data(), out.data());
                for (int repeat = 0; repeat < 20; ++repeat) {
                    std::fill(out.begin(), out.end(), NAN);
                    EXPECT_MOE_OK(
                        moe_forward(run.plan.get(), run.weights.get(), workspace.get(), &args));
                    if (first.empty()) first = out;
                    EXPECT_TRUE(same_bits(out, first));
                }
                EXPECT_LE(error_of(first, layer.reference(x), H), f32_tolerance);
            });
        for (auto& thread : threads) thread.join();
    }
}

// ---- SPMD

TEST(Spmd, GivesTheBitsOfForwardWithAnyNumberOfThreads) {
    const LayerCase layer(layer_desc());
    const Runtime runtime = make_runtime(4);
    const LayerRun run(layer, layer.plan_desc(19), runtime.get());
    const Floats x = layer.x(19);
    const Floats wanted = forward(run, x);
    for (int32_t n = 1; n <= 7; ++n) {  // from five on some only wait
        clients::ThreadTeam team(n);
        const int before = clients::count_threads();
        for (int repeat = 0; repeat < 10; ++repeat) {
            Floats out = clients::poisoned(19 * H);
            std::vector<int64_t> counts(7, -1);
            auto args = forward_args(19, x.data(), out.data());
            args.out_expert_counts = counts.data();
            std::vector<moe_status> statuses(n, 99);
            team.run([&](int32_t index) {
                statuses[index] = moe_forward_spmd(run.plan.get(), run.weights.get(),
                                                   run.workspace.get(), &args, index, n);
            });
            EXPECT_EQ(statuses, std::vector<moe_status>(n, MOE_OK));
            ASSERT_TRUE(same_bits(out, wanted)) << n << " threads";
            EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), 19 * 3);
        }
        EXPECT_EQ(clients::count_threads(), before) << "the library makes no thread";
    }
}

TEST(Spmd, AllThreadsGetTheSameError) {
    const LayerCase layer(layer_desc());
    const LayerRun run(layer, layer.plan_desc(4));
    const Floats x = layer.x(4);
    Floats out(x.size());
    auto args = forward_args(5, x.data(), out.data());
    clients::ThreadTeam team(3);
    std::vector<moe_status> statuses(3);
    team.run([&](int32_t index) {
        statuses[index] = moe_forward_spmd(run.plan.get(), run.weights.get(), run.workspace.get(),
                                           &args, index, 3);
        EXPECT_NE(std::string(moe_last_error()).find("n_tokens is 5"), std::string::npos);
    });
    EXPECT_EQ(statuses, std::vector<moe_status>(3, MOE_ERROR_INVALID_ARGUMENT));
    args.n_tokens = 4;
    const auto spmd = [&](int32_t index, int32_t n) {
        return moe_forward_spmd(run.plan.get(), run.weights.get(), run.workspace.get(), &args,
                                index, n);
    };
    EXPECT_MOE_ERROR(spmd(0, 0), MOE_ERROR_INVALID_ARGUMENT, "n_threads is 0");
    EXPECT_MOE_ERROR(spmd(1, 1), MOE_ERROR_INVALID_ARGUMENT, "thread_index is 1");
    EXPECT_MOE_ERROR(spmd(-1, 1), MOE_ERROR_INVALID_ARGUMENT, "thread_index is -1");
    EXPECT_MOE_OK(spmd(0, 1));
}

TEST(Spmd, FaultsAreToldOnceAndCountsAreClamped) {
    const LayerCase layer(layer_desc());
    const Runtime runtime = make_runtime(3);
    const LayerRun run(layer, layer.plan_desc(4), runtime.get());
    const Floats x = layer.x(4);
    Floats out(x.size());
    std::vector<int32_t> ids(12, 1);
    ids[3] = 99;
    const Floats weights(12, 0.5f);
    const int32_t too_many = 9;
    auto args = forward_args(4, x.data(), out.data());
    args.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
    args.ids = ids.data();
    args.weights = weights.data();
    args.n_tokens_device = &too_many;
    clients::ThreadTeam team(3);
    team.run([&](int32_t index) {
        EXPECT_MOE_OK(moe_forward_spmd(run.plan.get(), run.weights.get(), run.workspace.get(),
                                       &args, index, 3));
    });
    const auto faults = faults_of(run.workspace);
    EXPECT_EQ(faults.faults,
              uint32_t{MOE_FAULT_ID_OUT_OF_RANGE} | uint32_t{MOE_FAULT_TOKENS_OUT_OF_RANGE});
    EXPECT_EQ(faults.n_skipped, 1);
}

// ---- batches

// Every kernel of the experts stage that this machine has.
std::vector<std::string> experts_kernels(const LayerCase& layer) {
    const Plan plan = make_plan(nullptr, layer.plan_desc(1));
    std::vector<std::string> names;
    auto candidate = sized<moe_candidate>();
    for (uint32_t i = 0; moe_candidates(plan.get(), i, &candidate) == MOE_OK; ++i)
        if (candidate.stage == MOE_STAGE_EXPERTS && candidate.applicable)
            names.push_back(candidate.kernel);
    return names;
}

TEST(BatchInvariant, ATokenAloneIsTheTokenInABatch) {
    for (const char* format : {"f32", "bf16", "f32 latent"}) {
        auto desc = layer_desc();
        if (std::strstr(format, "latent")) desc.latent = 32;
        const LayerCase layer(desc, std::strcmp(format, "bf16") ? "f32" : "bf16");
        for (const std::string& kernel : experts_kernels(layer)) {
            auto plan_desc = layer.plan_desc(9);
            plan_desc.batch_invariant = 1;
            plan_desc.kernel_filter = kernel.c_str();
            const LayerRun run(layer, plan_desc);
            const Floats all = layer.x(9);
            Floats alone;
            for (int64_t t = 0; t < 9; ++t) {
                const Floats one = forward(run, Floats(&all[t * H], &all[t * H] + H));
                alone.insert(alone.end(), one.begin(), one.end());
            }
            for (int64_t n = 1; n <= 9; ++n) {
                const Floats out = forward(run, Floats(all.begin(), all.begin() + n * H));
                EXPECT_TRUE(std::equal(out.begin(), out.end(), alone.begin()))
                    << kernel << ", " << n << " tokens";
            }
        }
    }
}

TEST(BatchInvariant, PermutedTokensGivePermutedOutputs) {
    const LayerCase layer(layer_desc());
    auto desc = layer.plan_desc(11);
    desc.batch_invariant = 1;
    const LayerRun run(layer, desc);
    const Floats x = layer.x(11);
    const Floats out = forward(run, x);
    Floats permuted(x.size());
    auto from = [](int64_t t) { return (t * 4 + 3) % 11; };
    for (int64_t t = 0; t < 11; ++t) std::copy_n(&x[from(t) * H], H, &permuted[t * H]);
    const Floats result = forward(run, permuted);
    for (int64_t t = 0; t < 11; ++t)
        EXPECT_TRUE(std::equal(&result[t * H], &result[t * H] + H, &out[from(t) * H])) << t;
}

TEST(Chunks, GiveTheBitsOfOnePiece) {
    for (const int32_t latent : {0, 32}) {
        auto layer_of = layer_desc();
        layer_of.latent = latent;
        const LayerCase layer(layer_of);
        const Floats x = layer.x(40);
        const Runtime runtime = make_runtime(2);
        auto invariant = layer.plan_desc(40);
        invariant.batch_invariant = 1;
        const LayerRun whole(layer, invariant, runtime.get());
        const Floats wanted = forward(whole, x);
        const uint64_t most = need_of(whole.plan.get(), 40).host_bytes;
        const uint64_t least = need_of(whole.plan.get(), 1).host_bytes;
        for (const uint64_t budget : {least, least + (most - least) / 7, most / 2, most}) {
            auto desc = invariant;
            desc.max_workspace_bytes = budget;
            const LayerRun run(layer, desc, runtime.get());
            EXPECT_LE(need_of(run.plan.get(), 40).host_bytes, budget);
            std::vector<int64_t> counts(7, -1);
            const Floats out =
                forward(run, x, [&](auto& args) { args.out_expert_counts = counts.data(); });
            EXPECT_TRUE(same_bits(out, wanted)) << budget;
            EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), 40 * 3);
        }
    }
}

// ---- scratch

TEST(Scratch, NeedsNoMoreThanItSaysAndRemembersNothing) {
    for (const auto intermediate : {MOE_TYPE_F32, MOE_TYPE_F64}) {
        const LayerCase layer(layer_desc());
        auto plan_desc = layer.plan_desc(9);
        plan_desc.intermediate_type = intermediate;
        const Runtime runtime = make_runtime(3);
        const LayerRun run(layer, plan_desc, runtime.get());
        for (const int64_t n : {1, 4, 9}) {
            const Floats x = layer.x(n);
            const Floats wanted = forward(run, x);
            const uint64_t bytes = need_of(run.plan.get(), n).host_bytes;
            for (const int poison : {0x00, 0xFF, 0x7F}) {
                Bytes memory(bytes + 256, std::byte(poison));
                void* place = memory.data();
                size_t space = memory.size();
                auto* begin = static_cast<std::byte*>(std::align(64, bytes, place, space));
                std::fill(begin + bytes, memory.data() + memory.size(), std::byte{0x5A});
                auto desc = sized<moe_workspace_desc>();
                desc.host_memory = begin;
                desc.host_bytes = bytes;
                moe_workspace* workspace = nullptr;
                ASSERT_MOE_OK(moe_workspace_create(runtime.get(), &desc, &workspace));
                const Workspace owned(workspace);
                Floats out(x.size());
                const auto args = forward_args(n, x.data(), out.data());
                ASSERT_MOE_OK(moe_forward(run.plan.get(), run.weights.get(), workspace, &args));
                EXPECT_TRUE(same_bits(out, wanted)) << n << " tokens, poison " << poison;
                for (const std::byte* b = begin + bytes; b != memory.data() + memory.size(); ++b)
                    ASSERT_EQ(*b, std::byte{0x5A}) << "wrote beyond its scratch";
            }
        }
    }
}

TEST(Scratch, TooSmallSaysTheNeed) {
    const LayerCase layer(layer_desc());
    const Runtime runtime = make_runtime(1);
    const LayerRun run(layer, layer.plan_desc(9), runtime.get());
    const uint64_t need = need_of(run.plan.get(), 5).host_bytes;
    auto desc = sized<moe_workspace_desc>();
    desc.host_bytes = need - 1;
    moe_workspace* workspace = nullptr;
    ASSERT_MOE_OK(moe_workspace_create(runtime.get(), &desc, &workspace));
    const Workspace owned(workspace);
    const Floats x = layer.x(5);
    Floats out(x.size(), 3.0f);
    auto args = forward_args(5, x.data(), out.data());
    EXPECT_MOE_ERROR(moe_forward(run.plan.get(), run.weights.get(), workspace, &args),
                     MOE_ERROR_WORKSPACE_TOO_SMALL, std::to_string(need));
    EXPECT_EQ(out, Floats(x.size(), 3.0f));
    args.n_tokens = 4;
    EXPECT_MOE_OK(moe_forward(run.plan.get(), run.weights.get(), workspace, &args));
}

TEST(Scratch, OneWorkspaceServesManyPlans) {
    const LayerCase large(layer_desc()), small(plain_layer(32, 16, 3, 1));
    const Runtime runtime = make_runtime(2);
    const LayerRun a(large, large.plan_desc(9), runtime.get()), b(small, small.plan_desc(9));
    const Floats xa = large.x(9), xb = small.x(9);
    const Floats wanted_a = forward(a, xa), wanted_b = forward(b, xb);
    for (int repeat = 0; repeat < 3; ++repeat) {
        Floats out_a(xa.size()), out_b(xb.size());
        const auto args_a = forward_args(9, xa.data(), out_a.data());
        const auto args_b = forward_args(9, xb.data(), out_b.data());
        ASSERT_MOE_OK(moe_forward(a.plan.get(), a.weights.get(), a.workspace.get(), &args_a));
        ASSERT_MOE_OK(moe_forward(b.plan.get(), b.weights.get(), a.workspace.get(), &args_b));
        EXPECT_TRUE(same_bits(out_a, wanted_a));
        EXPECT_TRUE(same_bits(out_b, wanted_b));
    }
}

}  // namespace
}  // namespace moe_test
