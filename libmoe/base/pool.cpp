// The pool. A job is published by raising epoch_; the last thread to leave it raises finished_.
#include "libmoe/base/pool.hpp"

#include <unistd.h>

namespace moe {
namespace {

void run_alone(int64_t n_items, ItemFn fn) {
    for (int64_t item = 0; item < n_items; ++item) fn(0, item);
}

}  // namespace

Pool::Pool(std::pmr::memory_resource& memory, int32_t n_threads)
    : n_threads_(n_threads), seats_(&memory) {
    for (int32_t i = 1; i < n_threads; ++i) seats_.push_back({this, i, {}});
}

Pool::~Pool() {
    if (forked()) return;  // the threads exist in the parent only
    stop_ = true;
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
    for (int32_t i = 0; i < n_started_; ++i) pthread_join(seats_[i].thread, nullptr);
}

bool Pool::forked() const {
    const pid_t started_by = pid_.load(std::memory_order_relaxed);
    return started_by != 0 && started_by != getpid();
}

void Pool::start() {
    if (pid_.load(std::memory_order_relaxed) != 0) return;
    pid_ = getpid();
    auto enter = [](void* seat) -> void* {
        static_cast<Seat*>(seat)->pool->work(static_cast<Seat*>(seat)->worker);
        return nullptr;
    };
    // A thread that cannot be made is one worker less; the work gets done all the same.
    for (auto& seat : seats_) {
        if (pthread_create(&seat.thread, nullptr, enter, &seat) != 0) return;
        ++n_started_;
    }
}

void Pool::take_items(int32_t worker) {
    const Job& job = *job_;
    for (int64_t item; (item = next_.fetch_add(1, std::memory_order_relaxed)) < job.n_items;)
        job.fn(worker, item);
}

void Pool::work(int32_t worker) {
    const DefaultFloatMode mode;  // a thread starts in the mode of the one that made it
    for (uint32_t seen = 0;;) {
        wait_while_equal(epoch_, seen);
        ++seen;
        if (stop_) return;
        take_items(worker);
        if (active_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            finished_.fetch_add(1, std::memory_order_release);
            finished_.notify_one();
        }
    }
}

void Pool::run(int64_t n_items, ItemFn fn) {
    std::unique_lock lock(owner_, std::defer_lock);
    if (n_items == 1 || n_threads_ == 1 || !lock.try_lock()) {
        return run_alone(n_items, fn);
    }
    start();
    if (n_started_ == 0) return run_alone(n_items, fn);
    const Job job{fn, n_items};
    job_ = &job;
    next_.store(0, std::memory_order_relaxed);
    active_.store(n_started_, std::memory_order_relaxed);
    const uint32_t finished = finished_.load(std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
    take_items(0);
    wait_while_equal(finished_, finished);
}

}  // namespace moe
