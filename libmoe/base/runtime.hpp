// The runtime: what plans, checkpoints, weights and workspaces have in common: memory, log, and the
// CPU threads. Counted by its users; the process default appears with its first user and goes with
// its last.
#pragma once

#include <atomic>
#include <string>

#include "libmoe/base/handle.hpp"
#include "libmoe/base/kept.hpp"
#include "libmoe/base/memory.hpp"

namespace moe {
class Pool;
}  // namespace moe

struct moe_runtime : moe::Tagged<0x4D4F4572756E7469> {
  public:
    explicit moe_runtime(const moe_runtime_desc& desc);
    ~moe_runtime();
    moe_runtime(const moe_runtime&) = delete;
    moe_runtime& operator=(const moe_runtime&) = delete;

    moe::Memory memory;
    int32_t n_threads;
    moe_parallel_for_fn parallel_for;
    void* parallel_for_user_data;
    moe::Pool* pool;    // null with the caller's parallel_for
    moe::Kept staging;  // of weights that are loaded (weights/staging_memory.hpp)

    template <class... Args>
    void log(moe_log_level level, fmt::format_string<Args...> format, Args&&... args) const {
        if (log_level_ == MOE_LOG_OFF || level > log_level_) return;
        char line[moe::Error::capacity];
        *fmt::format_to_n(line, sizeof line - 1, format, std::forward<Args>(args)...).out = '\0';
        log_(level, line, log_user_data_);
    }
    // null: the usual names
    const char* cublaslt_path() const {
        return cublaslt_path_.empty() ? nullptr : cublaslt_path_.c_str();
    }
    void retain() { users_.fetch_add(1, std::memory_order_relaxed); }
    void release();

  private:
    moe_log_fn log_;
    void* log_user_data_;
    moe_log_level log_level_;
    std::pmr::string cublaslt_path_;
    std::atomic<int64_t> users_{1};
};

namespace moe {

// A counted reference. A null runtime stands for the process default.
class RuntimeRef {
  public:
    explicit RuntimeRef(moe_runtime* runtime);
    RuntimeRef(const RuntimeRef&) = delete;
    RuntimeRef& operator=(const RuntimeRef&) = delete;
    RuntimeRef(RuntimeRef&& other) noexcept : runtime_(std::exchange(other.runtime_, nullptr)) {}
    ~RuntimeRef() {
        if (runtime_) runtime_->release();
    }
    moe_runtime* operator->() const { return runtime_; }
    moe_runtime& operator*() const { return *runtime_; }

  private:
    moe_runtime* runtime_;
};

// Cores that this process may use.
int32_t usable_cores();

}  // namespace moe
