// The library's own CPU threads: started by the first run that can use them, joined by the
// destructor. One run at a time; a caller that finds the pool taken does its items alone, so
// callers never wait for each other.
//
// A run waits for threads that have taken an item, never for one that has not come yet: beside
// other busy threads that may take milliseconds.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <memory_resource>
#include <mutex>
#include <vector>

#include "libmoe/base/signal.hpp"
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
    // By n_threads threads at most, 1 to n_threads(). Worker 0 is the calling thread, the others
    // are numbered as they join.
    void run(int64_t n_items, int32_t n_threads, ItemFn fn);

  private:
    struct Job {
        ItemFn fn;
        int64_t n_items;
        int32_t n_workers;  // that may join, the caller included
    };
    // Items are given out in ascending order, so how many are left says which is next.
    struct Open {
        static constexpr int item_bits = 48;
        uint64_t word;

        Open(int32_t n_seats, int64_t n_items)
            : word(static_cast<uint64_t>(n_seats) << item_bits | static_cast<uint64_t>(n_items)) {}
        explicit Open(uint64_t given) : word(given) {}
        int64_t items() const {
            return static_cast<int64_t>(word & ((uint64_t{1} << item_bits) - 1));
        }
        int32_t seats() const { return static_cast<int32_t>(word >> item_bits); }
        Open after_item() const { return {seats(), items() - 1}; }
        Open after_joining() const { return {seats() - 1, items() - 1}; }
    };

    void start();
    static void* enter(void* pool);
    void work();
    void join_job();
    int64_t next_item();
    void finish_items(const Job& job, int64_t n_done);

    const int32_t n_threads_;
    std::pmr::vector<pthread_t>
        threads_;  // n_threads - 1, reserved at once: a run allocates nothing
    int32_t n_started_ = 0;
    std::mutex owner_;           // held by the caller whose job runs
    std::atomic<pid_t> pid_{0};  // of the process that started the threads
    std::atomic<bool> stop_{false};

    // Each on a line of its own: they are written at different times by different threads.
    alignas(64) Signal jobs_;                    // raised by a new job
    alignas(64) std::atomic<uint64_t> open_{0};  // seats and items that are left, an Open
    alignas(64) std::atomic<int64_t> n_done_{0};
    alignas(64) Signal finished_;  // raised when the caller is not the last to finish
    // Written while no item is out, read by whoever has taken one.
    alignas(64) const Job* job_ = nullptr;
};

class PoolTeam final : public Team {
  public:
    explicit PoolTeam(Pool& pool) : PoolTeam(pool, pool.n_threads()) {}
    PoolTeam(Pool& pool, int32_t n_threads) : Team(n_threads), pool_(pool) {}

  private:
    void run(int64_t n_items, ItemFn fn) override { pool_.run(n_items, size(), fn); }

    Pool& pool_;
};

}  // namespace moe
