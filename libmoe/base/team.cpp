// Item sharing without locks: every worker takes the next item from one counter.
#include "libmoe/base/team.hpp"

#include <climits>

namespace moe {

void SerialTeam::run(int64_t n_items, ItemFn fn) {
    for (int64_t item = 0; item < n_items; ++item) fn(0, item);
}

void ParallelForTeam::run(int64_t n_items, ItemFn fn) {
    if (n_items == 1 || size() == 1) {
        for (int64_t item = 0; item < n_items; ++item) fn(0, item);
        return;
    }
    struct Shared {
        ItemFn fn;
        int64_t n_items;
        std::atomic<int64_t> next{0};
    } shared{fn, n_items};
    auto task = [](int32_t index, void* data) {
        const DefaultFloatMode mode;  // the thread is the caller's
        auto& shared = *static_cast<Shared*>(data);
        for (int64_t item; (item = shared.next.fetch_add(1)) < shared.n_items;)
            shared.fn(index, item);
    };
    const auto n_tasks = static_cast<int32_t>(n_items < size() ? n_items : size());
    parallel_for_(n_tasks, task, &shared, user_data_);
}

void SpmdTeam::run(int64_t n_items, ItemFn fn) {
    if (index_ < size()) {
        for (int64_t item; (item = shared_.next.fetch_add(1)) < n_items;) fn(index_, item);
    }
    wait_for_all();
}

void SpmdTeam::wait_for_all() {
    const uint32_t generation = shared_.generation.value();
    if (shared_.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == n_threads_) {
        // The last to arrive: nobody takes items any more, so the counter can start again.
        shared_.next.store(0, std::memory_order_relaxed);
        shared_.arrived.store(0, std::memory_order_relaxed);
        shared_.generation.raise(INT_MAX);
        return;
    }
    shared_.generation.wait_while(generation);
}

}  // namespace moe
