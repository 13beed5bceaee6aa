// The runtime: its threads and when they end, the caller's parallel_for, the limits of its fields,
// the default that comes and goes, and fork.
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "support/process_facts.hpp"
#include "support/thread_team.hpp"
#include "tests/checkpoint/models.hpp"
#include "tests/support/allocator.hpp"
#include "tests/support/layer_case.hpp"

namespace moe_test {
namespace {

using clients::count_threads;

const moe_layer_desc layer_desc = plain_layer(64, 48, 6, 3);

// A thread that has been joined may be listed a moment longer.
int settled_threads(int wanted) {
    for (int i = 0; i < 1000 && count_threads() != wanted; ++i) usleep(1000);
    return count_threads();
}

TEST(Runtime, NumberOfThreadsHasLimits) {
    auto desc = sized<moe_runtime_desc>();
    moe_runtime* runtime = nullptr;
    for (const int32_t n : {-1, 1025, INT32_MAX, INT32_MIN}) {
        desc.n_threads = n;
        EXPECT_MOE_ERROR(moe_runtime_create(&desc, &runtime), MOE_ERROR_INVALID_ARGUMENT,
                         "n_threads is " + std::to_string(n));
        EXPECT_EQ(runtime, nullptr);
    }
    for (const int32_t n : {0, 1, 1024}) make_runtime(n);
}

TEST(Runtime, FieldsAreNamed) {
    auto desc = sized<moe_runtime_desc>();
    moe_runtime* runtime = nullptr;
    auto allocator = sized<moe_allocator>();
    desc.allocator = &allocator;
    EXPECT_MOE_ERROR(moe_runtime_create(&desc, &runtime), MOE_ERROR_INVALID_ARGUMENT, "allocate");
    desc.allocator = nullptr;
    for (const int level : {-1, 6}) {
        desc.log_level = static_cast<moe_log_level>(level);
        EXPECT_MOE_ERROR(moe_runtime_create(&desc, &runtime), MOE_ERROR_INVALID_ARGUMENT,
                         "log_level is " + std::to_string(level));
    }
}

TEST(Runtime, AnNcclOfTheCallersIsNotInThisVersion) {
    auto desc = sized<moe_runtime_desc>();
    moe_runtime* runtime = nullptr;
    desc.nccl_path = "libnccl.so.2";
    EXPECT_MOE_ERROR(moe_runtime_create(&desc, &runtime), MOE_ERROR_UNSUPPORTED, "nccl_path");
    EXPECT_EQ(runtime, nullptr);
}

TEST(Runtime, DescriptionIsNotKept) {
    const LayerCase layer(layer_desc);
    TestAllocator allocator;
    Runtime runtime;
    {
        auto table = std::make_unique<moe_allocator>(allocator.table());
        auto desc = std::make_unique<moe_runtime_desc>(sized<moe_runtime_desc>());
        desc->allocator = table.get();
        desc->n_threads = 2;
        runtime = make_runtime(*desc);
        std::memset(static_cast<void*>(table.get()), 0xFF, sizeof *table);
        std::memset(static_cast<void*>(desc.get()), 0xFF, sizeof *desc);
    }
    const LayerRun run(layer, layer.plan_desc(4), runtime.get());
    const Floats x = layer.x(4);
    EXPECT_LE(error_of(forward(run, x), layer.reference(x), run.hidden), f32_tolerance);
}

TEST(Pool, StartsWithTheFirstForwardAndEndsWithTheLastUser) {
    const LayerCase layer(layer_desc);
    const Floats x = layer.x(4);
    enum Last { runtime_last, plan_last, weights_last, workspace_last };
    for (const Last last : {runtime_last, plan_last, weights_last, workspace_last}) {
        const int before = count_threads();
        Runtime runtime = make_runtime(4);
        LayerRun run(layer, layer.plan_desc(4), runtime.get());
        EXPECT_EQ(count_threads(), before) << "made before they are needed";
        forward(run, x);
        EXPECT_EQ(count_threads(), before + 3);
        if (last != runtime_last) runtime.reset();
        EXPECT_LE(error_of(forward(run, x), layer.reference(x), run.hidden), f32_tolerance);
        if (last != plan_last) run.plan.reset();
        if (last != weights_last) run.weights.reset();
        if (last != workspace_last) run.workspace.reset();
        EXPECT_EQ(count_threads(), before + 3) << "there is a user yet, " << last;
        runtime.reset();
        run.plan.reset();
        run.weights.reset();
        run.workspace.reset();
        EXPECT_EQ(settled_threads(before), before) << last;
    }
}

TEST(Pool, OneThreadIsTheCallers) {
    const LayerCase layer(layer_desc);
    const Runtime runtime = make_runtime(1);
    const LayerRun run(layer, layer.plan_desc(4), runtime.get());
    const int before = count_threads();
    forward(run, layer.x(4));
    EXPECT_EQ(count_threads(), before);
}

int usable_cores() {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    return CPU_COUNT(&set);
}

TEST(DefaultRuntime, ComesAndGoesWithItsUsers) {
    const LayerCase layer(layer_desc);
    const Floats x = layer.x(4);
    std::thread([] {}).join();  // beside the first one ThreadSanitizer starts one of its own
    const int before = count_threads();
    for (int round = 0; round < 2; ++round) {
        LayerRun run(layer, layer.plan_desc(4));
        const LayerRun other(layer, layer.plan_desc(4));
        EXPECT_LE(error_of(forward(run, x), layer.reference(x), run.hidden), f32_tolerance);
        const int during = count_threads();
        forward(other, x);
        EXPECT_EQ(count_threads(), during) << "both share one pool";
        EXPECT_EQ(during, before + usable_cores() - 1);
    }
    EXPECT_EQ(settled_threads(before), before);
}

TEST(DefaultRuntime, IsMadeByManyThreadsAtOnce) {
    const LayerCase layer(layer_desc);
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i)
        threads.emplace_back([&] {
            for (int n = 0; n < 20; ++n) {
                const auto desc = layer.plan_desc(4);
                moe_plan* plan = nullptr;
                EXPECT_MOE_OK(moe_plan_create(nullptr, &desc, &plan));
                moe_plan_destroy(plan);
            }
        });
    for (auto& thread : threads) thread.join();
}

TEST(ParallelFor, DoesAllTheWorkAndTheLibraryMakesNoThread) {
    const LayerCase layer(layer_desc);
    const Floats x = layer.x(9);
    clients::ThreadTeam team(3);
    auto desc = sized<moe_runtime_desc>();
    desc.parallel_for = clients::ThreadTeam::parallel_for;
    desc.parallel_for_user_data = &team;
    desc.n_threads = 3;
    const Runtime runtime = make_runtime(desc);
    const LayerRun run(layer, layer.plan_desc(9), runtime.get());
    const int before = count_threads();
    const Floats out = forward(run, x);
    EXPECT_EQ(count_threads(), before);
    EXPECT_LE(error_of(out, layer.reference(x), run.hidden), f32_tolerance);
    for (const auto& share : team.shares()) EXPECT_GT(share.tasks, 0);
}

struct Recorder {
    int64_t calls = 0, n_tasks_max = 0;
    bool backwards = false;
};

void MOE_CALL one_by_one(int32_t n_tasks, moe_task_fn task, void* task_data, void* user_data) {
    auto& recorder = *static_cast<Recorder*>(user_data);
    ++recorder.calls;
    recorder.n_tasks_max = std::max<int64_t>(recorder.n_tasks_max, n_tasks);
    for (int32_t i = 0; i < n_tasks; ++i) task(recorder.backwards ? n_tasks - 1 - i : i, task_data);
}

TEST(ParallelFor, MayRunTasksOneAfterTheOther) {
    const LayerCase layer(layer_desc);
    const Floats x = layer.x(9);
    Floats first;
    for (const bool backwards : {false, true})
        for (const int32_t n_threads : {1, 2, 5}) {
            Recorder recorder;
            recorder.backwards = backwards;
            auto desc = sized<moe_runtime_desc>();
            desc.parallel_for = one_by_one;
            desc.parallel_for_user_data = &recorder;
            desc.n_threads = n_threads;
            const Runtime runtime = make_runtime(desc);
            const LayerRun run(layer, layer.plan_desc(9), runtime.get());
            const Floats out = forward(run, x);
            if (first.empty()) first = out;
            EXPECT_TRUE(same_bits(out, first));
            EXPECT_LE(recorder.n_tasks_max, n_threads) << "n_threads is the number it offers";
            EXPECT_EQ(recorder.calls > 0, n_threads > 1);
        }
}

// ---- a workspace in use

struct Reentry {
    const LayerRun* run;
    moe_forward_args args;
    std::vector<moe_status> statuses;
};

void MOE_CALL enter_again(int32_t n_tasks, moe_task_fn task, void* task_data, void* user_data) {
    auto& reentry = *static_cast<Reentry*>(user_data);
    if (reentry.statuses.empty()) {
        reentry.statuses.push_back(reentry.run->forward(reentry.args));
        EXPECT_NE(std::string(moe_last_error()).find("workspace"), std::string::npos);
    }
    for (int32_t i = 0; i < n_tasks; ++i) task(i, task_data);
}

TEST(Workspace, InUseIsBusy) {
    const LayerCase layer(layer_desc);
    const Floats x = layer.x(4);
    Reentry reentry{};
    auto desc = sized<moe_runtime_desc>();
    desc.parallel_for = enter_again;
    desc.parallel_for_user_data = &reentry;
    desc.n_threads = 2;
    const Runtime runtime = make_runtime(desc);
    const LayerRun run(layer, layer.plan_desc(4), runtime.get());
    Floats inner(x.size(), 3);
    reentry.run = &run;
    reentry.args = forward_args(4, x.data(), inner.data());
    const Floats out = forward(run, x);
    EXPECT_EQ(reentry.statuses, std::vector<moe_status>{MOE_ERROR_BUSY});
    EXPECT_EQ(inner, Floats(x.size(), 3)) << "a refused call writes nothing";
    EXPECT_LE(error_of(out, layer.reference(x), run.hidden), f32_tolerance);
    EXPECT_MOE_OK(run.forward(forward_args(4, x.data(), inner.data())));
}

// ---- log

TEST(Log, IsQuietWhenNothingIsWrong) {
    int lines = 0;
    auto desc = sized<moe_runtime_desc>();
    desc.n_threads = 2;
    desc.log = [](moe_log_level, const char*, void* count) { ++*static_cast<int*>(count); };
    desc.log_user_data = &lines;
    const Runtime runtime = make_runtime(desc);
    const LayerCase layer(layer_desc);
    const LayerRun run(layer, layer.plan_desc(4), runtime.get());
    forward(run, layer.x(4));
    EXPECT_EQ(lines, 0);
}

// A path may have any byte in it.
TEST(Log, LinesHaveNoNewline) {
    const moe::test::Folder folder;
    const std::string path = folder.path("a\nb");
    std::filesystem::create_directory(path);
    const auto model = moe::test::mixtral();
    std::ofstream(path + "/config.json") << model.config;
    std::ofstream(path + "/model.safetensors", std::ios::binary) << model.file();
    std::string lines;
    auto desc = sized<moe_runtime_desc>();
    desc.n_threads = 1;
    desc.log_level = MOE_LOG_DEBUG;
    desc.log = [](moe_log_level, const char* line, void* all) {
        *static_cast<std::string*>(all) += line;
    };
    desc.log_user_data = &lines;
    const Runtime runtime = make_runtime(desc);
    moe_checkpoint* checkpoint = nullptr;
    ASSERT_MOE_OK(moe_checkpoint_open(runtime.get(), path.c_str(), nullptr, &checkpoint));
    moe_checkpoint_destroy(checkpoint);
    EXPECT_NE(lines.find("a?b"), std::string::npos) << lines;
    EXPECT_EQ(lines.find('\n'), std::string::npos) << lines;
}

// ---- devices

TEST(Device, CpuIsOne) {
    int32_t count = 0;
    EXPECT_MOE_OK(moe_device_count(MOE_DEVICE_CPU, &count));
    EXPECT_EQ(count, 1);
    auto info = sized<moe_device_info>();
    EXPECT_MOE_OK(moe_device_get_info(MOE_DEVICE_CPU, 0, &info));
    EXPECT_EQ(info.kind, MOE_DEVICE_CPU);
    EXPECT_GE(info.n_cores, 1);
    EXPECT_GT(info.memory_bytes, uint64_t{1} << 20);
    EXPECT_STRNE(info.name, "");
    EXPECT_MOE_ERROR(moe_device_get_info(MOE_DEVICE_CPU, 1, &info), MOE_ERROR_INVALID_ARGUMENT,
                     "index is 1");
    EXPECT_MOE_ERROR(moe_device_count(static_cast<moe_device_kind>(77), &count),
                     MOE_ERROR_INVALID_ARGUMENT, "kind is 77");
}

// ---- fork

// The exit code of a child that runs body; a child that hangs is ended.
template <class Body>
int in_child(Body body) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        _exit(body());
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

TEST(Fork, RefusesAPlanWhoseThreadsStayedBehind) {
    const LayerCase layer(layer_desc);
    const Runtime runtime = make_runtime(3);
    LayerRun run(layer, layer.plan_desc(4), runtime.get());
    const Floats x = layer.x(4);
    forward(run, x);
    Floats out(x.size());
    const auto args = forward_args(4, x.data(), out.data());
    const int code = in_child([&] {
        if (run.forward(args) != MOE_ERROR_FORKED) return 1;
        if (!std::strstr(moe_last_error(), "fork")) return 2;
        // Ending what was inherited neither hangs nor crashes.
        run.plan.reset();
        run.weights.reset();
        run.workspace.reset();
        return 0;
    });
    EXPECT_EQ(code, 0);
    EXPECT_MOE_OK(run.forward(args)) << "the parent goes on";
}

TEST(Fork, OneThreadWorksInTheChild) {
    const LayerCase layer(layer_desc);
    const Runtime runtime = make_runtime(1);
    const LayerRun run(layer, layer.plan_desc(4), runtime.get());
    const Floats x = layer.x(4);
    const Floats wanted = forward(run, x);
    EXPECT_EQ(in_child([&] { return same_bits(forward(run, x), wanted) ? 0 : 1; }), 0);
}

TEST(Fork, ThreadsOfTheChildAreItsOwn) {
    const LayerCase layer(layer_desc);
    const Runtime runtime = make_runtime(3);
    const LayerRun run(layer, layer.plan_desc(4), runtime.get());
    const Floats x = layer.x(4);
    // No thread had started: the child may start its own, and make runtimes.
    EXPECT_EQ(in_child([&] {
                  const Floats out = forward(run, x);
                  const Runtime other = make_runtime(2);
                  const LayerRun mine(layer, layer.plan_desc(4), other.get());
                  return same_bits(forward(mine, x), out) ? 0 : 1;
              }),
              0);
}

// The default that a child inherits is of no use to it once threads had started: it gets another.
TEST(Fork, TheDefaultRuntimeOfTheChildIsItsOwn) {
    if (usable_cores() == 1) GTEST_SKIP() << "one core has no threads to leave behind";
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer allows the child of a process with threads none";
#endif
    const LayerCase layer(layer_desc);
    LayerRun run(layer, layer.plan_desc(4));
    const Floats x = layer.x(4);
    const Floats wanted = forward(run, x);
    Floats out(x.size());
    const auto args = forward_args(4, x.data(), out.data());
    const int code = in_child([&] {
        if (run.forward(args) != MOE_ERROR_FORKED) return 1;
        const LayerRun mine(layer, layer.plan_desc(4));
        if (mine.forward(args) != MOE_OK || !same_bits(out, wanted)) return 2;
        // The inherited one goes with its users, and the child's stays.
        run.plan.reset();
        run.weights.reset();
        run.workspace.reset();
        const int threads = count_threads();
        const LayerRun more(layer, layer.plan_desc(4));
        if (more.forward(args) != MOE_OK || !same_bits(out, wanted)) return 3;
        return count_threads() == threads ? 0 : 4;
    });
    EXPECT_EQ(code, 0);
    EXPECT_MOE_OK(run.forward(args)) << "the parent goes on";
}

}  // namespace
}  // namespace moe_test
