// workers.hpp - numbered pieces of work on several threads; the first failure ends all and is
// thrown.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace moe::cli {

// make_worker() gives, on each thread, the function that does piece number i of n. n_threads 0: one
// per core. The caller's thread is one of them.
inline void work_in_parallel(size_t n, int32_t n_threads,
                             const std::function<std::function<void(size_t)>()>& make_worker) {
    const auto wanted = n_threads > 0 ? static_cast<size_t>(n_threads)
                                      : std::max<size_t>(1, std::thread::hardware_concurrency());
    std::atomic<size_t> next{0};
    std::mutex mutex;
    std::exception_ptr failure;
    const auto work_on = [&] {
        try {
            const auto work = make_worker();
            for (size_t i = next++; i < n; i = next++) work(i);
        } catch (...) {
            next = n;
            const std::lock_guard lock(mutex);
            if (!failure) failure = std::current_exception();
        }
    };
    {
        std::vector<std::jthread> threads;
        try {
            for (size_t t = 1; t < std::min(wanted, n); ++t) threads.emplace_back(work_on);
        } catch (const std::system_error&) {
            // The system gives no more threads: those that run, and this one, do all the work.
        }
        work_on();
    }
    if (failure) std::rethrow_exception(failure);
}

}  // namespace moe::cli
