#include "threads.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "host.hpp"

namespace moe::ggml {
namespace {

constexpr const char* set_pool_name = "ggml_backend_cpu_set_threadpool";
constexpr int type_f32 = 0;  // as ggml wrote into files from the first

using SetPool = void (*)(Backend*, ThreadPool*);
using Function = void* (*)(Registry*, const char*);

Registry* cpu_registry = nullptr;  // null: threads of libmoe's own
Function original_function = nullptr;
SetPool original_set_pool = nullptr;
bool has_openmp = false;  // such a ggml makes threads that outlive a graph without a pool

std::mutex attached_guard;
std::map<Backend*, ThreadPool*> attached;  // pools of ours, to CPU backends without one

// This thread has set them last, and nobody has taken note of it yet.
struct Told {
    Backend* cpu = nullptr;
    ThreadPool* pool = nullptr;
};
thread_local Told told;

void set_pool(Backend* cpu, ThreadPool* pool) {
    told = {cpu, pool};
    if (!pool) {
        const std::lock_guard lock(attached_guard);
        if (const auto own = attached.find(cpu); own != attached.end()) pool = own->second;
    }
    original_set_pool(cpu, pool);
}

void* function_of_cpu(Registry* registry, const char* name) {
    if (std::strcmp(name, set_pool_name) == 0) return reinterpret_cast<void*>(set_pool);
    return original_function(registry, name);
}

// A program that unloads this library keeps its CPU backend.
struct Restore {
    ~Restore() {
        if (cpu_registry && cpu_registry->calls.function == function_of_cpu)
            cpu_registry->calls.function = original_function;
    }
} restore;

struct Feature {
    const char* name;
    const char* value;
};

bool is_feature(Registry* registry, const char* name) {
    void* address = registry->calls.function(registry, "ggml_backend_get_features");
    if (!address) return false;
    const auto list = reinterpret_cast<const Feature* (*)(Registry*)>(address);
    for (const Feature* each = list(registry); each && each->name; ++each)
        if (std::strcmp(each->name, name) == 0) return true;
    return false;
}

// ggml describes a thread pool by it. The members follow a mask of processors.
struct PoolParams {
    bool mask[512];
    int n_threads;
    int priority;
    uint32_t polling;
    bool later[504];
};
static_assert(offsetof(PoolParams, n_threads) == 512);

ThreadPool* make_pool(int n_threads) {
    // Threads spin for some milliseconds before they sleep: from one layer to the next.
    constexpr uint32_t brief = 1, usual = 50;
    PoolParams params{};
    host.pool_params(&params, n_threads);
    if (params.n_threads == n_threads && params.polling == usual) params.polling = brief;
    return host.compute.pool_new(&params);
}

void pause(int round) {
    constexpr int patient = 4096;
    if (round > patient) {
        std::this_thread::yield();
        return;
    }
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// The loop of the calls that this thread is in.
thread_local SharedLoop* current = nullptr;

void MOE_CALL parallel_for(int32_t n_tasks, moe_task_fn task, void* data, void*) {
    if (current) return current->run(n_tasks, task, data);
    for (int32_t i = 0; i < n_tasks; ++i) task(i, data);
}

struct RuntimeDeleter {
    void operator()(moe_runtime* runtime) const { moe_runtime_destroy(runtime); }
};

moe_runtime* make_runtime() {
    moe_runtime_desc desc{};
    desc.struct_size = sizeof desc;
    desc.parallel_for = parallel_for;
    moe_runtime* runtime = nullptr;
    if (moe_runtime_create(&desc, &runtime) != MOE_OK)
        std::fprintf(stderr, "libmoe: %s\n", moe_last_error());
    return runtime;
}

}  // namespace

void find_host_threads() {
    static std::once_flag once;
    std::call_once(once, [] {
        const char* wish = std::getenv("MOE_GGML_THREADS");
        if (wish && std::strcmp(wish, "own") == 0) return;
        if (!host.reg_by_name) return;
        Registry* cpu = host.reg_by_name("CPU");
        if (!cpu || cpu->interface_version != backend_interface || !cpu->calls.function) return;
        void* set = cpu->calls.function(cpu, set_pool_name);
        if (!set || !find_compute(host, reinterpret_cast<void*>(cpu->calls.function))) return;
        has_openmp = is_feature(cpu, "OPENMP");
        original_function = cpu->calls.function;
        original_set_pool = reinterpret_cast<SetPool>(set);
        cpu->calls.function = function_of_cpu;
        cpu_registry = cpu;
    });
}

moe_runtime* runtime_of_calls() {
    if (!cpu_registry) return nullptr;
    static const std::unique_ptr<moe_runtime, RuntimeDeleter> runtime(make_runtime());
    return runtime.get();
}

void SharedLoop::run(int32_t n_tasks, moe_task_fn task, void* data) {
    const uint64_t number = (next_.load(std::memory_order_relaxed) >> 32) + 1;
    next_.store(number << 32);
    n_tasks_.store(n_tasks);
    n_done_.store(0);
    task_.store(task);
    data_.store(data);
    next_.store((number + 1) << 32);
    while (take_one()) {
    }
    for (int round = 0; n_done_.load(std::memory_order_acquire) < n_tasks; ++round) pause(round);
}

bool SharedLoop::take_one() {
    uint64_t seen = next_.load();
    const auto index = static_cast<int32_t>(seen & 0xFFFFFFFF);
    const bool is_open = (seen >> 32) % 2 == 0;
    if (!is_open || index >= n_tasks_.load()) return false;
    const moe_task_fn task = task_.load();
    void* data = data_.load();
    // With the same number as before, what was read in between is of this loop.
    if (!next_.compare_exchange_strong(seen, seen + 1)) return true;
    task(index, data);
    n_done_.fetch_add(1, std::memory_order_release);
    return true;
}

void SharedLoop::help() {
    for (int round = 0; !is_over_.load(std::memory_order_acquire); ++round) {
        if (take_one())
            round = 0;
        else
            pause(round);
    }
}

HostThreads::~HostThreads() {
    drop_own_pool();
    if (context_) host.context_free(context_);
}

void HostThreads::drop_own_pool() {
    if (!own_pool_) return;
    {
        const std::lock_guard lock(attached_guard);
        std::erase_if(attached, [&](const auto& each) { return each.second == own_pool_; });
    }
    host.compute.pool_free(own_pool_);
    own_pool_ = nullptr;
}

void HostThreads::use_own_pool() {
    if (!own_pool_ || own_threads_ < n_threads_) {
        ThreadPool* larger = make_pool(n_threads_);
        if (!larger) return;
        if (cpu_) original_set_pool(cpu_, larger);
        drop_own_pool();
        own_pool_ = larger;
        own_threads_ = n_threads_;
    }
    if (!cpu_) return;
    const std::lock_guard lock(attached_guard);
    if (std::exchange(attached[cpu_], own_pool_) != own_pool_) original_set_pool(cpu_, own_pool_);
}

void HostThreads::set_n_threads(int n_threads) {
    n_threads_ = n_threads > 0 ? n_threads : 0;
    if (!cpu_registry) return;
    if (const Told last = std::exchange(told, {}); last.cpu) {
        cpu_ = last.cpu;
        program_pool_ = last.pool;
    }
    if (program_pool_) drop_own_pool();
    if (n_threads_ > 1 && !program_pool_ && !has_openmp) use_own_pool();
}

void HostThreads::node(Tensor*, int thread, int, void* self) {
    auto& threads = *static_cast<HostThreads*>(self);
    if (thread > 0) return threads.loop_.help();
    SharedLoop* const outer = std::exchange(current, &threads.loop_);
    (*threads.work_)();
    current = outer;
    threads.loop_.end();
}

void HostThreads::compute_with(ThreadPool* pool) {
    if (!graph_) {
        const size_t bytes = host.graph_overhead() + 4 * host.tensor_overhead() + 4096;
        context_ = host.context_new({bytes, nullptr, true});
        Tensor* tensor = host.custom_4d(context_, type_f32, 1, 1, 1, 1, nullptr, 0, node, -1, this);
        graph_ = host.graph_new(context_);
        host.graph_expand(graph_, tensor);
    }
    ComputePlan plan = host.compute.plan(graph_, n_threads_, pool);
    scratch_.resize(plan.work_bytes);
    plan.work = scratch_.data();
    host.compute.compute(graph_, &plan);
}

bool HostThreads::run(const std::function<void()>& work) {
    if (cpu_registry && n_threads_ == 0)
        set_n_threads(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
    ThreadPool* pool = program_pool_ ? program_pool_ : own_pool_;
    if (!cpu_registry || n_threads_ <= 1 || !(pool || has_openmp)) {
        work();
        return false;
    }
    work_ = &work;
    loop_.begin();
    compute_with(pool);
    return true;
}

}  // namespace moe::ggml
