// The library's own CPU threads: started by the first run that can use them, joined by the
// destructor. One run at a time; a caller that finds the pool taken does its items alone, so
// callers never wait for each other.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <memory_resource>
#include <mutex>
#include <vector>

#include "libmoe/base/team.hpp"

namespace moe {

class Pool {
  public:
    // n_threads counts the calling thread too.
    Pool(std::pmr::memory_resource& memory, int32_t n_threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int32_t n_threads() const { return n_threads_; }
    // Threads do not survive fork(): true in a child of the process that started them.
    bool forked() const;
    void run(int64_t n_items, ItemFn fn);

  private:
    struct Job {
        ItemFn fn;
        int64_t n_items;
    };
    struct Seat {
        Pool* pool;
        int32_t worker;
        pthread_t thread;
    };
    void start();
    void work(int32_t worker);
    void take_items(int32_t worker);

    const int32_t n_threads_;
    std::pmr::vector<Seat> seats_;  // n_threads - 1, reserved at once: a run allocates nothing
    int32_t n_started_ = 0;
    std::mutex owner_;                   // held by the caller whose job runs
    std::atomic<pid_t> pid_{0};          // of the process that started the threads
    std::atomic<uint32_t> epoch_{0};     // a new job
    std::atomic<uint32_t> finished_{0};  // jobs that every thread has left
    std::atomic<int32_t> active_{0};
    std::atomic<int64_t> next_{0};
    std::atomic<bool> stop_{false};
    const Job* job_ = nullptr;
};

class PoolTeam final : public Team {
  public:
    explicit PoolTeam(Pool& pool) : Team(pool.n_threads()), pool_(pool) {}

  private:
    void run(int64_t n_items, ItemFn fn) override { pool_.run(n_items, fn); }

    Pool& pool_;
};

}  // namespace moe
