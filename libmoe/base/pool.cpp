// The pool. A job is published in open_ and announced by jobs_. A thread joins it by taking an item
// and a seat in one step; where no item is left there is nothing to join, and nobody to wait for.
#include "libmoe/base/pool.hpp"

#include <unistd.h>

#include <algorithm>
#include <climits>

namespace moe {
namespace {

void run_alone(int64_t n_items, ItemFn fn) {
    for (int64_t item = 0; item < n_items; ++item) fn(0, item);
}

}  // namespace

Pool::Pool(std::pmr::memory_resource& memory, int32_t n_threads)
    : n_threads_(n_threads), threads_(&memory) {
    threads_.resize(static_cast<size_t>(n_threads - 1));
}

Pool::~Pool() {
    if (forked()) return;  // the threads exist in the parent only
    stop_ = true;
    jobs_.raise(INT_MAX);
    for (int32_t i = 0; i < n_started_; ++i)
        pthread_join(threads_[static_cast<size_t>(i)], nullptr);
}

bool Pool::forked() const {
    const pid_t started_by = pid_.load(std::memory_order_relaxed);
    return started_by != 0 && started_by != getpid();
}

void* Pool::enter(void* pool) {
    static_cast<Pool*>(pool)->work();
    return nullptr;
}

void Pool::start() {
    if (pid_.load(std::memory_order_relaxed) != 0) return;
    pid_ = getpid();
    // A thread that cannot be made is one worker less; the work gets done all the same.
    for (pthread_t& thread : threads_) {
        if (pthread_create(&thread, nullptr, enter, this) != 0) return;
        ++n_started_;
    }
}

void Pool::work() {
    const DefaultFloatMode mode;  // a thread starts in the mode of the one that made it
    for (uint32_t seen = 0;;) {
        jobs_.wait_while(seen);
        seen = jobs_.value();  // before the look at open_: a job after it is a new value
        if (stop_) return;
        join_job();
    }
}

// The seat comes with an item: until it is done the job stays as it is.
void Pool::join_job() {
    Open open(open_.load(std::memory_order_acquire));
    do {
        if (open.items() == 0 || open.seats() == 0) return;
    } while (!open_.compare_exchange_weak(open.word, open.after_joining().word,
                                          std::memory_order_acq_rel, std::memory_order_acquire));
    const Job& job = *job_;
    const int32_t worker = job.n_workers - open.seats();
    int64_t n_done = 0;
    for (int64_t item = job.n_items - open.items(); item < job.n_items; item = next_item()) {
        job.fn(worker, item);
        ++n_done;
    }
    finish_items(job, n_done);
}

// n_items when none is left. For threads that are in the job.
int64_t Pool::next_item() {
    Open open(open_.load(std::memory_order_relaxed));
    do {
        if (open.items() == 0) return job_->n_items;
    } while (
        !open_.compare_exchange_weak(open.word, open.after_item().word, std::memory_order_relaxed));
    return job_->n_items - open.items();
}

void Pool::finish_items(const Job& job, int64_t n_done) {
    const int64_t n_items = job.n_items;  // the job may be gone once these items are counted
    if (n_done_.fetch_add(n_done, std::memory_order_acq_rel) + n_done == n_items)
        finished_.raise(1);
}

void Pool::run(int64_t n_items, int32_t n_threads, ItemFn fn) {
    std::unique_lock lock(owner_, std::defer_lock);
    if (n_items == 1 || n_threads == 1 || !lock.try_lock()) return run_alone(n_items, fn);
    start();
    const auto n_others =
        static_cast<int32_t>(std::min<int64_t>({n_started_, n_threads - 1, n_items - 1}));
    if (n_others == 0) return run_alone(n_items, fn);
    const Job job{fn, n_items, n_others + 1};
    job_ = &job;
    n_done_.store(0, std::memory_order_relaxed);
    const uint32_t finished = finished_.value();
    // The caller's first item is the first, which it need not take.
    open_.store(Open(n_others, n_items - 1).word, std::memory_order_release);
    jobs_.raise(n_others);
    int64_t n_done = 0;
    for (int64_t item = 0; item < n_items; item = next_item()) {
        fn(0, item);
        ++n_done;
    }
    if (n_done_.fetch_add(n_done, std::memory_order_acq_rel) + n_done != n_items)
        finished_.wait_while(finished);
}

}  // namespace moe
