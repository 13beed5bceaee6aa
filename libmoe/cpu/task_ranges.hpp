// How the workers of a parallel region share its tasks where the order matters for speed.
#pragma once

#include <atomic>
#include <cstdint>

namespace moe::cpu {

// Numbers from one range's counter to the next one's: a cache line.
constexpr int64_t task_range_stride = 8;

// Tasks whose weights follow each other go to one worker, whose prefetches then run ahead into its
// own next task. Workers whose range is done take tasks of the others' ranges. `next` has a counter
// for each range, zero at first, which the workers share.
class TaskRanges {
  public:
    TaskRanges(int64_t* next, int64_t n_tasks, int32_t n_ranges)
        : next_(next), n_tasks_(n_tasks), n_ranges_(n_ranges) {}

    template <class Run>
    void run(int64_t own, Run run_task) const {
        for (int32_t i = 0; i < n_ranges_; ++i) {
            const int64_t range = (own + i) % n_ranges_;
            const int64_t first = begin(range), n = begin(range + 1) - first;
            const std::atomic_ref next(next_[range * task_range_stride]);
            // Many workers look, at the end: no line moves for that.
            while (next.load(std::memory_order_relaxed) < n) {
                const int64_t task = next.fetch_add(1, std::memory_order_relaxed);
                if (task < n) run_task(first + task);
            }
        }
    }

  private:
    int64_t begin(int64_t range) const { return range * n_tasks_ / n_ranges_; }

    int64_t* next_;
    int64_t n_tasks_;
    int32_t n_ranges_;
};

}  // namespace moe::cpu
