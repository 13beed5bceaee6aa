// An engine's threads: a team that enters a function together, and a moe_parallel_for over it that
// records which thread did how many tasks and how much processor time they took.
#pragma once

#include <time.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "moe/moe.h"

namespace clients {

class ThreadTeam {
  public:
    struct Share {
        int64_t tasks = 0;
        double seconds = 0.0;
    };

    explicit ThreadTeam(int32_t n) : shares_(size_t(n)) {
        for (int32_t i = 1; i < n; ++i) threads_.emplace_back([this, i] { serve(i); });
    }
    ~ThreadTeam() {
        enter(nullptr);
        for (std::thread& thread : threads_) thread.join();
    }
    ThreadTeam(const ThreadTeam&) = delete;

    int32_t size() const { return int32_t(shares_.size()); }

    // function(i) on every thread i, the caller being 0.
    void run(const std::function<void(int32_t)>& function) {
        enter(&function);
        function(0);
        std::unique_lock lock(mutex_);
        done_.wait(lock, [this] { return running_ == 0; });
    }

    static void parallel_for(int32_t n_tasks, moe_task_fn task, void* task_data, void* team) {
        static_cast<ThreadTeam*>(team)->loop(n_tasks, task, task_data);
    }

    const std::vector<Share>& shares() const { return shares_; }
    void forget_shares() { shares_.assign(shares_.size(), Share{}); }

  private:
    static double processor_seconds() {
        timespec now;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
    }

    // Task i belongs to thread i modulo their number: what is measured is how the library cut the
    // work.
    void loop(int32_t n_tasks, moe_task_fn task, void* task_data) {
        run([&](int32_t thread) {
            const double begin = processor_seconds();
            for (int32_t i = thread; i < n_tasks; i += size()) {
                task(i, task_data);
                ++shares_[size_t(thread)].tasks;
            }
            shares_[size_t(thread)].seconds += processor_seconds() - begin;
        });
    }

    void enter(const std::function<void(int32_t)>* function) {
        const std::lock_guard lock(mutex_);
        function_ = function;
        running_ = int32_t(threads_.size());
        ++round_;
        wake_.notify_all();
    }

    void serve(int32_t index) {
        for (uint64_t seen = 0;;) {
            const std::function<void(int32_t)>* function;
            {
                std::unique_lock lock(mutex_);
                wake_.wait(lock, [&] { return round_ != seen; });
                seen = round_;
                function = function_;
            }
            if (!function) return;
            (*function)(index);
            const std::lock_guard lock(mutex_);
            if (--running_ == 0) done_.notify_one();
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_, done_;
    const std::function<void(int32_t)>* function_ = nullptr;
    uint64_t round_ = 0;
    int32_t running_ = 0;
    std::vector<Share> shares_;
    std::vector<std::thread> threads_;
};

}  // namespace clients
