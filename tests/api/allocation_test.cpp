// Where memory comes from: the caller's allocator sees everything that handles keep, small tables
// too; nothing comes from operator new; any request may be refused; and forward takes nothing.
#include "tests/support/operator_new.hpp"

#include <gtest/gtest.h>

#include "tests/checkpoint/models.hpp"
#include "tests/support/allocator.hpp"
#include "tests/support/layer_case.hpp"

namespace moe_test {
namespace {

moe_layer_desc full_layer() {
    auto d = plain_layer(64, 48, 6, 3);
    d.has_router_bias = d.has_selection_bias = 1;
    d.has_gate_bias = d.has_up_bias = d.has_down_bias = 1;
    d.shared_intermediate = 32;
    d.shared_activation = MOE_ACTIVATION_SILU;
    d.shared_is_gated = 1;
    d.has_shared_expert_gate = 1;
    d.has_expert_scale = 1;
    return d;
}

struct Made {
    moe_plan* plan = nullptr;
    moe_weights* weights = nullptr;
    moe_workspace* workspace = nullptr;
    moe_checkpoint* checkpoint = nullptr;
    ~Made() {
        moe_plan_destroy(plan);
        moe_weights_destroy(weights);
        moe_workspace_destroy(workspace);
        moe_checkpoint_destroy(checkpoint);
    }
};

moe_workspace_desc workspace_of(const moe_plan* plan) {
    auto desc = sized<moe_workspace_desc>();
    desc.plan = plan;
    return desc;
}

TEST(Allocator, SeesWhatHandlesKeepAndGetsItBack) {
    const LayerCase layer(full_layer());
    for (const auto ownership : {MOE_OWN_COPY, MOE_OWN_BORROW, MOE_OWN_CALLER}) {
        TestAllocator allocator;
        {
            const Runtime runtime = allocator.runtime(2);
            const uint64_t of_runtime = allocator.live_bytes();
            EXPECT_GT(of_runtime, 0u);
            Made made;
            const auto plan_desc = layer.plan_desc(8);
            ASSERT_MOE_OK(moe_plan_create(runtime.get(), &plan_desc, &made.plan));
            EXPECT_GT(allocator.live_bytes(), of_runtime);
            auto desc = layer.tensors.weights_desc();
            desc.ownership = ownership;
            uint64_t bytes = 0;
            ASSERT_MOE_OK(moe_weights_size(made.plan, &desc, &bytes));
            Bytes memory(bytes + 64);
            if (ownership == MOE_OWN_CALLER) {
                desc.memory = reinterpret_cast<void*>(
                    (reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
                desc.memory_bytes = bytes;
            }
            const uint64_t before = allocator.live_bytes();
            ASSERT_MOE_OK(moe_weights_load(made.plan, &desc, &made.weights));
            const uint64_t kept = allocator.live_bytes() - before;
            auto report = sized<moe_memory_report>();
            ASSERT_MOE_OK(moe_weights_memory(made.weights, &report));
            const bool copies = ownership == MOE_OWN_COPY;
            EXPECT_EQ(kept >= bytes, copies) << kept;
            EXPECT_EQ(report.borrowed_bytes, ownership == MOE_OWN_BORROW ? bytes : 0);
            EXPECT_EQ(kept, report.bookkeeping_bytes + report.host_bytes -
                                (ownership == MOE_OWN_CALLER ? bytes : 0));
            const auto workspace = workspace_of(made.plan);
            const uint64_t scratch = need_of(made.plan, 8).host_bytes;
            const uint64_t without = allocator.live_bytes();
            ASSERT_MOE_OK(moe_workspace_create(runtime.get(), &workspace, &made.workspace));
            EXPECT_GE(allocator.live_bytes() - without, scratch);
            EXPECT_LE(allocator.live_bytes() - without, scratch + 4096);
        }
        EXPECT_EQ(allocator.live_bytes(), 0u);
        EXPECT_LT(allocator.smallest(), 128u) << "small tables come from it too";
    }
}

TEST(OperatorNew, IsNotUsedByWhatHandlesKeep) {
    const LayerCase layer(full_layer());
    const Runtime runtime = make_runtime(2);
    const auto plan_desc = layer.plan_desc(8);
    const auto weights_desc = layer.tensors.weights_desc();
    Made made;
    auto count = [](auto call) {
        const int64_t before = n_operator_new;
        const moe_status status = call();
        const int64_t taken = n_operator_new - before;
        EXPECT_EQ(status, MOE_OK) << moe_last_error();
        return taken;
    };
    EXPECT_GT(count([] {
                  ::operator delete(::operator new(16));
                  return MOE_OK;
              }),
              0)
        << "the counter counts";
    EXPECT_EQ(count([&] { return moe_plan_create(runtime.get(), &plan_desc, &made.plan); }), 0);
    EXPECT_EQ(count([&] { return moe_weights_load(made.plan, &weights_desc, &made.weights); }), 0);
    const auto workspace = workspace_of(made.plan);
    EXPECT_EQ(
        count([&] { return moe_workspace_create(runtime.get(), &workspace, &made.workspace); }), 0);
    uint8_t key[16];
    EXPECT_EQ(count([&] { return moe_plan_key(runtime.get(), &plan_desc, key); }), 0);
    EXPECT_EQ(count([&] { return moe_supports(runtime.get(), &plan_desc); }), 0);
    moe_runtime* other = nullptr;
    EXPECT_EQ(count([&] { return moe_runtime_create(nullptr, &other); }), 0);
    moe_runtime_destroy(other);
    EXPECT_EQ(
        count([&] { return moe_weights_update(made.weights, weights_desc.tensors[0], nullptr); }),
        0);
}

// Refuses the first request, then the second, and so on until the call gets all that it wants.
template <class Make>
void refuse_each(TestAllocator& allocator, Make make) {
    for (int64_t n = 1; n < 10000; ++n) {
        const uint64_t before = allocator.live_bytes();
        allocator.refuse(n);
        moe_status status;
        {
            Made made;
            status = make(made);
            const bool untouched =
                !made.plan && !made.weights && !made.workspace && !made.checkpoint;
            EXPECT_EQ(untouched, status != MOE_OK) << "request " << n;
        }
        const bool refused = allocator.refused();
        allocator.refuse(0);
        EXPECT_EQ(allocator.live_bytes(), before) << "leak after request " << n << " was refused";
        if (!refused) {
            EXPECT_EQ(status, MOE_OK) << moe_last_error();
            EXPECT_GT(n, 1) << "it allocated nothing";
            return;
        }
        ASSERT_EQ(status, MOE_ERROR_OUT_OF_MEMORY) << "request " << n;
    }
}

TEST(OutOfMemory, AtEveryRequestOfARuntime) {
    TestAllocator allocator;
    const moe_allocator table = allocator.table();
    auto desc = sized<moe_runtime_desc>();
    desc.allocator = &table;
    desc.n_threads = 5;
    int64_t n = 1;
    for (;; ++n) {
        allocator.refuse(n);
        moe_runtime* runtime = nullptr;
        const moe_status status = moe_runtime_create(&desc, &runtime);
        const Runtime owned(runtime);
        const bool refused = allocator.refused();
        allocator.refuse(0);
        if (!refused) break;
        EXPECT_EQ(status, MOE_ERROR_OUT_OF_MEMORY);
        EXPECT_EQ(runtime, nullptr);
        EXPECT_EQ(allocator.live_bytes(), 0u);
    }
    EXPECT_GT(n, 2);
}

TEST(OutOfMemory, AtEveryRequestOfAPlan) {
    const LayerCase layer(full_layer());
    TestAllocator allocator;
    const Runtime runtime = allocator.runtime(2);
    auto slice = sized<moe_slice>();
    slice.has_expert_range = 1;
    slice.expert_count = 3;
    auto desc = layer.plan_desc(8);
    desc.partial = 1;
    desc.slice = &slice;
    refuse_each(allocator,
                [&](Made& made) { return moe_plan_create(runtime.get(), &desc, &made.plan); });
}

TEST(OutOfMemory, AtEveryRequestOfWeights) {
    const LayerCase layer(full_layer(), "bf16", 1, clients::Form::tensor_per_expert);
    TestAllocator allocator;
    const Runtime runtime = allocator.runtime(2);
    const Plan plan = make_plan(runtime.get(), layer.plan_desc(8));
    for (const auto ownership : {MOE_OWN_COPY, MOE_OWN_BORROW}) {
        auto desc = layer.tensors.weights_desc();
        desc.ownership = ownership;
        refuse_each(allocator,
                    [&](Made& made) { return moe_weights_load(plan.get(), &desc, &made.weights); });
    }
}

TEST(OutOfMemory, AtEveryRequestOfAWorkspace) {
    const LayerCase layer(full_layer());
    TestAllocator allocator;
    const Runtime runtime = allocator.runtime(2);
    const Plan plan = make_plan(runtime.get(), layer.plan_desc(8));
    const auto desc = workspace_of(plan.get());
    refuse_each(allocator, [&](Made& made) {
        return moe_workspace_create(runtime.get(), &desc, &made.workspace);
    });
}

struct ModelFile {
    moe::test::Folder folder;
    ModelFile() { moe::test::mixtral().write(folder); }
};

TEST(OutOfMemory, AtEveryRequestOfACheckpoint) {
    const ModelFile model;
    for (const auto io : {MOE_IO_MMAP, MOE_IO_READ}) {
        TestAllocator allocator;
        const Runtime runtime = allocator.runtime(1);
        auto options = sized<moe_checkpoint_options>();
        options.io = io;
        refuse_each(allocator, [&](Made& made) {
            return moe_checkpoint_open(runtime.get(), model.folder.path().c_str(), &options,
                                       &made.checkpoint);
        });
    }
}

// ---- nothing at run time

// Forward and every stage, once.
struct Calls {
    Calls(moe_runtime* runtime, const LayerCase& layer, int64_t n)
        : run(layer, layer.plan_desc(n), runtime),
          x(layer.x(n)),
          out(x.size()),
          slots(x.size() * 3),
          ids(static_cast<size_t>(n * 3)),
          row_ids(ids.size()),
          weights(ids.size()),
          offsets(7),
          n_tokens(n) {}

    moe_status forward(int32_t n_threads = 0) {
        auto args = forward_args(n_tokens, x.data(), out.data());
        args.n_threads = n_threads;
        return run.forward(args);
    }
    moe_status route() {
        auto args = sized<moe_route_args>();
        args.n_tokens = n_tokens;
        args.x = x.data();
        args.out_ids = ids.data();
        args.out_weights = weights.data();
        return moe_route(run.plan.get(), run.weights.get(), run.workspace.get(), &args);
    }
    moe_status dispatch() {
        auto args = sized<moe_dispatch_args>();
        args.n_tokens = n_tokens;
        args.ids = ids.data();
        args.out_offsets = offsets.data();
        args.out_row_ids = row_ids.data();
        args.row_capacity = static_cast<int64_t>(row_ids.size());
        return moe_dispatch(run.plan.get(), run.workspace.get(), &args);
    }
    moe_status experts(moe_out_layout layout) {
        auto args = sized<moe_experts_args>();
        args.out_layout = layout;
        args.n_tokens = n_tokens;
        args.x = x.data();
        args.ids = ids.data();
        args.weights = weights.data();
        args.offsets = offsets.data();
        args.row_ids = row_ids.data();
        args.n_rows = offsets.back();
        args.out = slots.data();
        return moe_experts(run.plan.get(), run.weights.get(), run.workspace.get(), &args);
    }
    moe_status combine() {
        auto args = sized<moe_combine_args>();
        args.n_tokens = n_tokens;
        args.rows = slots.data();
        args.ids = ids.data();
        args.weights = weights.data();
        args.out = out.data();
        return moe_combine(run.plan.get(), run.workspace.get(), &args);
    }
    moe_status finish() {
        auto args = sized<moe_finish_args>();
        args.n_tokens = n_tokens;
        args.routed = out.data();
        args.x = x.data();
        args.out = out.data();
        return moe_finish(run.plan.get(), run.weights.get(), run.workspace.get(), &args);
    }
    void all() {
        for (const int32_t n_threads : {0, 1, 2, 9}) EXPECT_MOE_OK(forward(n_threads));
        EXPECT_MOE_OK(route());
        EXPECT_MOE_OK(dispatch());
        for (auto layout : {MOE_OUT_REDUCED, MOE_OUT_ROWS, MOE_OUT_PER_SLOT})
            EXPECT_MOE_OK(experts(layout));
        EXPECT_MOE_OK(combine());
        EXPECT_MOE_OK(finish());
    }

    LayerRun run;
    Floats x, out, slots;
    std::vector<int32_t> ids, row_ids;
    Floats weights;
    std::vector<int64_t> offsets;
    int64_t n_tokens;
};

TEST(Forward, AllocatesNothing) {
    const LayerCase layer(full_layer());
    for (const int32_t n_threads : {1, 3}) {
        TestAllocator allocator;
        const Runtime runtime = allocator.runtime(n_threads);
        Calls calls(runtime.get(), layer, 9);
        // The first call may start threads; they take nothing from either.
        const int64_t hook = allocator.calls(), news = n_operator_new;
        calls.all();
        calls.all();
        const int64_t hook_taken = allocator.calls() - hook, news_taken = n_operator_new - news;
        EXPECT_EQ(hook_taken, 0) << n_threads << " threads";
        EXPECT_EQ(news_taken, 0) << n_threads << " threads";
    }
}

}  // namespace
}  // namespace moe_test
