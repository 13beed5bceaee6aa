// Loading in the background: the same weights, progress, cancelling, errors, threads, and what ends
// a load early. A gate in the progress callback holds the loading thread where a test wants it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/checkpoint/models.hpp"
#include "tests/support/allocator.hpp"
#include "tests/support/layer_case.hpp"

namespace moe_test {
namespace {

constexpr auto bad_request = MOE_ERROR_INVALID_ARGUMENT;

// Stops the loading thread in its first callback until it is opened.
class Gate {
  public:
    static int32_t MOE_CALL tell(uint64_t done, uint64_t total, void* self) {
        static_cast<Gate*>(self)->pass(done, total);
        return 0;
    }
    void wait_until_inside() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return n_calls_ > 0; });
    }
    void open() {
        const std::lock_guard lock(mutex_);
        is_open_ = true;
        changed_.notify_all();
    }
    int n_calls() {
        const std::lock_guard lock(mutex_);
        return n_calls_;
    }
    uint64_t done() {
        const std::lock_guard lock(mutex_);
        return done_;
    }

  private:
    void pass(uint64_t done, uint64_t total) {
        std::unique_lock lock(mutex_);
        ++n_calls_;
        EXPECT_GT(done, done_) << "progress does not grow";
        EXPECT_LE(done, total);
        done_ = done;
        changed_.notify_all();
        changed_.wait(lock, [&] { return is_open_; });
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_open_ = false;
    int n_calls_ = 0;
    uint64_t done_ = 0;
};

struct LoadingCase {
    explicit LoadingCase(moe_runtime* runtime = nullptr)
        : layer(plain_layer(32, 16, 4, 2), "f32", 1, clients::Form::tensor_per_expert),
          plan(make_plan(runtime, layer.plan_desc(8))),
          list(layer.tensors.weights_desc()) {}

    Loading start(const moe_weights_desc& desc) const {
        moe_loading* loading = nullptr;
        must(moe_loading_start(plan.get(), &desc, &loading), "moe_loading_start");
        return Loading(loading);
    }
    Loading start() { return start(list.desc()); }
    Loading start_behind(Gate& gate) {
        auto desc = list.desc();
        desc.progress = Gate::tell;
        desc.progress_user_data = &gate;
        return start(desc);
    }
    Floats forward(const moe_weights* weights) const {
        const Workspace workspace = make_workspace(nullptr, plan.get());
        const Floats x = layer.x(8);
        Floats out(x.size());
        const auto args = forward_args(8, x.data(), out.data());
        must(moe_forward(plan.get(), weights, workspace.get(), &args), "moe_forward");
        return out;
    }
    Floats wanted() { return forward(load_weights(plan.get(), list.desc()).get()); }
    uint64_t size() {
        const auto desc = list.desc();
        uint64_t bytes = 0;
        must(moe_weights_size(plan.get(), &desc, &bytes), "moe_weights_size");
        return bytes;
    }

    LayerCase layer;
    Plan plan;
    TensorList list;
};

Weights wait_for(const Loading& loading) {
    moe_weights* weights = nullptr;
    must(moe_loading_wait(loading.get(), &weights), "moe_loading_wait");
    return Weights(weights);
}

moe_loading_progress poll(const Loading& loading) {
    auto progress = sized<moe_loading_progress>();
    must(moe_loading_poll(loading.get(), &progress), "moe_loading_poll");
    return progress;
}

TEST(Loading, GivesTheWeightsOfAnOrdinaryLoad) {
    for (const auto ownership : {MOE_OWN_COPY, MOE_OWN_BORROW}) {
        LoadingCase c;
        const Floats wanted = c.wanted();
        EXPECT_LE(error_of(wanted, c.layer.reference(c.layer.x(8)), 32), f32_tolerance);
        auto desc = c.list.desc();
        desc.ownership = ownership;
        const Loading loading = c.start(desc);
        for (moe_tensor& tensor : c.list.tensors) tensor = {};  // read when it was started
        EXPECT_TRUE(same_bits(c.forward(wait_for(loading).get()), wanted));
    }
}

TEST(Loading, OutlivesPlanAndCheckpoint) {
    for (const auto io : {MOE_IO_MMAP, MOE_IO_READ}) {
        const moe::test::Folder folder;
        moe::test::mixtral().write(folder);
        auto options = sized<moe_checkpoint_options>();
        options.io = io;
        moe_checkpoint* opened = nullptr;
        must(moe_checkpoint_open(nullptr, folder.path().c_str(), &options, &opened), "open");
        Checkpoint checkpoint(opened);
        auto desc = sized<moe_plan_desc>();
        desc.device = MOE_DEVICE_CPU;
        desc.x_type = MOE_TYPE_F32;
        desc.max_tokens = 1;
        desc.checkpoint = opened;
        Plan plan = make_plan(nullptr, desc);
        const Plan same = make_plan(nullptr, desc);
        moe_weights* plain = nullptr;
        must(moe_weights_load_checkpoint(plan.get(), opened, 0, nullptr, &plain), "load");
        const Weights wanted(plain);
        Gate gate;
        auto load = sized<moe_load_options>();
        load.progress = Gate::tell;
        load.progress_user_data = &gate;
        moe_loading* started = nullptr;
        must(moe_loading_start_checkpoint(plan.get(), opened, 0, &load, &started), "start");
        const Loading loading(started);
        gate.wait_until_inside();
        plan.reset();
        checkpoint.reset();
        gate.open();
        const Weights weights = wait_for(loading);
        const Workspace workspace = make_workspace(nullptr, same.get());
        const Floats x = clients::Random(3).values(moe::test::hidden);
        Floats a(x.size()), b(x.size());
        auto args = forward_args(1, x.data(), a.data());
        ASSERT_MOE_OK(moe_forward(same.get(), weights.get(), workspace.get(), &args));
        args.out = b.data();
        ASSERT_MOE_OK(moe_forward(same.get(), wanted.get(), workspace.get(), &args));
        EXPECT_TRUE(same_bits(a, b));
        EXPECT_NE(a, Floats(x.size()));
    }
}

TEST(Loading, TellsHowFarItIs) {
    LoadingCase c;
    Gate gate;
    const Loading loading = c.start_behind(gate);
    gate.wait_until_inside();
    const moe_loading_progress inside = poll(loading);
    EXPECT_EQ(inside.is_done, 0);
    EXPECT_EQ(inside.status, MOE_OK);
    EXPECT_EQ(inside.bytes_total, c.size());
    EXPECT_EQ(inside.bytes_done, gate.done());
    EXPECT_GT(inside.bytes_done, 0u);
    EXPECT_LT(inside.bytes_done, inside.bytes_total);
    gate.open();
    ASSERT_MOE_OK(moe_loading_wait(loading.get(), nullptr));
    const moe_loading_progress done = poll(loading);
    EXPECT_EQ(done.is_done, 1);
    EXPECT_EQ(done.status, MOE_OK);
    EXPECT_EQ(done.bytes_done, c.size());
    // Router, and three matrices of four experts: expert by expert.
    EXPECT_EQ(gate.n_calls(), 13);
}

TEST(Loading, IsCancelledBetweenExperts) {
    TestAllocator allocator;
    const Runtime runtime = allocator.runtime(2);
    LoadingCase c(runtime.get());
    const uint64_t before = allocator.live_bytes();
    Gate gate;
    Loading loading = c.start_behind(gate);
    gate.wait_until_inside();
    ASSERT_MOE_OK(moe_loading_cancel(loading.get()));
    EXPECT_EQ(poll(loading).is_done, 0) << "cancel does not wait";
    gate.open();
    moe_weights* weights = nullptr;
    for (int i = 0; i < 2; ++i)
        EXPECT_MOE_ERROR(moe_loading_wait(loading.get(), &weights), MOE_ERROR_CANCELLED,
                         "loading was cancelled after ");
    EXPECT_EQ(weights, nullptr);
    EXPECT_LE(gate.n_calls(), 2);
    const moe_loading_progress progress = poll(loading);
    EXPECT_EQ(progress.is_done, 1);
    EXPECT_EQ(progress.status, MOE_ERROR_CANCELLED);
    EXPECT_LT(progress.bytes_done, progress.bytes_total);
    loading.reset();
    EXPECT_EQ(allocator.live_bytes(), before);
}

TEST(Loading, EndsWhenItIsDestroyed) {
    TestAllocator allocator;
    const Runtime runtime = allocator.runtime(2);
    LoadingCase c(runtime.get());
    const uint64_t before = allocator.live_bytes();
    Gate gate;
    Loading loading = c.start_behind(gate);
    gate.wait_until_inside();
    std::thread opener([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        gate.open();
    });
    loading.reset();  // waits for the thread behind the gate
    opener.join();
    EXPECT_LE(gate.n_calls(), 2) << "it was loaded to the end";
    EXPECT_EQ(allocator.live_bytes(), before);
    // Weights that nobody took go with the load.
    loading = c.start();
    ASSERT_MOE_OK(moe_loading_wait(loading.get(), nullptr));
    EXPECT_GT(allocator.live_bytes(), before);
    loading.reset();
    EXPECT_EQ(allocator.live_bytes(), before);
    moe_loading_destroy(nullptr);
}

TEST(Loading, FailsInWaitWithTheSentenceOfTheLoad) {
    LoadingCase c;
    c.list.remove(MOE_ROLE_GATE, 2);
    const Loading loading = c.start();
    moe_weights* weights = nullptr;
    EXPECT_MOE_ERROR(moe_loading_wait(loading.get(), nullptr), MOE_ERROR_NOT_FOUND,
                     "gate of expert 2");
    EXPECT_MOE_ERROR(moe_loading_wait(loading.get(), &weights), MOE_ERROR_NOT_FOUND,
                     "gate of expert 2");
    EXPECT_EQ(weights, nullptr);
    EXPECT_EQ(poll(loading).status, MOE_ERROR_NOT_FOUND);
    EXPECT_EQ(poll(loading).is_done, 1);
}

TEST(Loading, RefusesWhatTheArgumentsSay) {
    LoadingCase c;
    moe_loading* loading = nullptr;
    auto desc = c.list.desc();
    EXPECT_MOE_ERROR(moe_loading_start(nullptr, &desc, &loading), bad_request, "plan is NULL");
    EXPECT_MOE_ERROR(moe_loading_start(c.plan.get(), &desc, nullptr), bad_request, "out_loading");
    EXPECT_MOE_ERROR(moe_loading_start_checkpoint(c.plan.get(), nullptr, 0, nullptr, &loading),
                     bad_request, "checkpoint is NULL");
    desc.ownership = static_cast<moe_ownership>(3);
    EXPECT_MOE_ERROR(moe_loading_start(c.plan.get(), &desc, &loading), bad_request,
                     "ownership is 3");
    desc = c.list.desc();
    c.list.pointers[1] = nullptr;
    EXPECT_EQ(moe_loading_start(c.plan.get(), &desc, &loading), bad_request);
    EXPECT_EQ(loading, nullptr);
    EXPECT_MOE_ERROR(moe_loading_wait(nullptr, nullptr), bad_request, "loading is NULL");
    EXPECT_MOE_ERROR(moe_loading_cancel(nullptr), bad_request, "loading is NULL");
    EXPECT_MOE_ERROR(moe_loading_poll(nullptr, nullptr), bad_request, "loading is NULL");
}

TEST(Loading, MakesNoThreadBesideACallersParallelFor) {
    auto runtime_desc = sized<moe_runtime_desc>();
    runtime_desc.n_threads = 2;
    runtime_desc.parallel_for = [](int32_t n, moe_task_fn task, void* data, void*) {
        for (int32_t i = 0; i < n; ++i) task(i, data);
    };
    const Runtime runtime = make_runtime(runtime_desc);
    LoadingCase c(runtime.get());
    const auto desc = c.list.desc();
    moe_loading* loading = nullptr;
    EXPECT_MOE_ERROR(moe_loading_start(c.plan.get(), &desc, &loading), MOE_ERROR_UNSUPPORTED,
                     "parallel_for");
    EXPECT_EQ(loading, nullptr);
}

// Pollers, waiters and a canceller that comes too late, all at once.
TEST(Loading, ServesManyThreads) {
    LoadingCase c;
    const Floats wanted = c.wanted();
    Gate gate;
    const Loading loading = c.start_behind(gate);
    std::atomic<int> n_weights{0}, n_late{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] {
            uint64_t last = 0;
            for (bool done = false; !done;) {
                const moe_loading_progress progress = poll(loading);
                EXPECT_GE(progress.bytes_done, last);
                last = progress.bytes_done;
                done = progress.is_done;
            }
            moe_weights* raw = nullptr;
            const moe_status status = moe_loading_wait(loading.get(), &raw);
            const Weights weights(raw);
            n_late += status == MOE_ERROR_NOT_FOUND;
            if (status != MOE_OK) return;
            ++n_weights;
            EXPECT_TRUE(same_bits(c.forward(weights.get()), wanted));
        });
    gate.wait_until_inside();
    gate.open();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(n_weights, 1);
    EXPECT_EQ(n_late, 3);
    EXPECT_MOE_OK(moe_loading_cancel(loading.get()));
    moe_weights* weights = nullptr;
    EXPECT_MOE_ERROR(moe_loading_wait(loading.get(), &weights), MOE_ERROR_NOT_FOUND,
                     "taken by an earlier wait");
}

TEST(Loading, RunsBesideOtherLoadsAndCalls) {
    const Runtime runtime = make_runtime(3);
    LoadingCase c(runtime.get());
    const Weights loaded = load_weights(c.plan.get(), c.list.desc());
    const Floats wanted = c.forward(loaded.get());
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] {
            const auto desc = c.layer.tensors.weights_desc();
            for (int round = 0; round < 5; ++round) {
                const Loading loading = c.start(desc);
                EXPECT_TRUE(same_bits(c.forward(loaded.get()), wanted));
                EXPECT_TRUE(same_bits(c.forward(wait_for(loading).get()), wanted));
            }
        });
    for (std::thread& thread : threads) thread.join();
}

TEST(Loading, IsTheParentsInAForkedChild) {
    LoadingCase c;
    Gate gate;
    const Loading loading = c.start_behind(gate);
    gate.wait_until_inside();
    const pid_t child = fork();
    if (child == 0) {
        moe_weights* weights = nullptr;
        const bool is_told = moe_loading_wait(loading.get(), &weights) == MOE_ERROR_FORKED &&
                             moe_loading_cancel(loading.get()) == MOE_ERROR_FORKED;
        moe_loading_destroy(loading.get());
        _exit(is_told ? 0 : 1);
    }
    gate.open();
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_MOE_OK(moe_loading_wait(loading.get(), nullptr));
}

}  // namespace
}  // namespace moe_test
