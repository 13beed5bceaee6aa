// Runtime construction, the process default, and the log.
#include "libmoe/base/runtime.hpp"

#include <sched.h>

#include <cstdio>
#include <mutex>

#include "libmoe/base/pool.hpp"

namespace moe {
namespace {

constexpr int32_t max_threads = 1024;

void MOE_CALL log_to_stderr(moe_log_level level, const char* message, void*) {
    static constexpr const char* names[] = {"", "error", "warning", "info", "debug"};
    std::fprintf(stderr, "libmoe %s: %s\n", names[level], message);
}

std::mutex default_mutex;
moe_runtime* default_runtime = nullptr;

// In a child whose parent had started the default's threads they are not there, nor will be.
bool is_forked(const moe_runtime& runtime) {
    return runtime.pool && runtime.pool->forked();
}

// The default is made under the mutex, and dies under it too when its last user goes. One of before
// a fork is left to the users that it came with.
moe_runtime* acquire(moe_runtime* runtime) {
    if (runtime) {
        runtime->retain();
        return runtime;
    }
    std::lock_guard lock(default_mutex);
    if (default_runtime && !is_forked(*default_runtime)) {
        default_runtime->retain();
    } else {
        moe_runtime_desc desc{};
        desc.struct_size = sizeof desc;
        Memory memory;
        default_runtime = create_in<moe_runtime>(memory, desc);
    }
    return default_runtime;
}

void check(const moe_runtime_desc& desc) {
    require(desc.n_threads >= 0 && desc.n_threads <= max_threads,
            "moe_runtime_desc.n_threads is {}, must be 0 to {}", desc.n_threads, max_threads);
    require(desc.log_level >= MOE_LOG_DEFAULT && desc.log_level <= MOE_LOG_OFF,
            "moe_runtime_desc.log_level is {}, not a moe_log_level",
            static_cast<int32_t>(desc.log_level));
}

}  // namespace

int32_t usable_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    const int count = CPU_COUNT(&set);
    return count > 0 ? count : 1;
}

RuntimeRef::RuntimeRef(moe_runtime* runtime) : runtime_(acquire(runtime)) {}

}  // namespace moe

moe_runtime::moe_runtime(const moe_runtime_desc& desc)
    : memory(desc.allocator ? moe::Memory(*desc.allocator) : moe::Memory()),
      parallel_for(desc.parallel_for),
      parallel_for_user_data(desc.parallel_for_user_data),
      pool(nullptr),
      log_(desc.log ? desc.log : moe::log_to_stderr),
      log_user_data_(desc.log_user_data),
      log_level_(desc.log_level == MOE_LOG_DEFAULT ? MOE_LOG_WARNING : desc.log_level),
      cublaslt_path_(desc.cublaslt_path ? desc.cublaslt_path : "", &memory) {
    moe::check(desc);
    n_threads = desc.n_threads ? desc.n_threads : moe::usable_cores();
    if (!parallel_for) pool = moe::create_in<moe::Pool>(memory, memory, n_threads);
}

moe_runtime::~moe_runtime() {
    if (pool) moe::destroy_in(memory, pool);
}

void moe_runtime::release() {
    // Only the default can be found again by others, so only its end needs the mutex.
    std::unique_lock lock(moe::default_mutex);
    if (users_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (moe::default_runtime == this) moe::default_runtime = nullptr;
    lock.unlock();
    moe::Memory own = memory;  // outlives the object it frees
    moe::destroy_in(own, this);
}
