// workers.hpp - numbered pieces of work on several threads; the first failure ends all and is
// thrown.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace moe::cli {

// make_worker() gives, on each thread, the function that does piece number i of n. n_threads 0: one
// per core.
inline void work_in_parallel(size_t n, int32_t n_threads,
                             const std::function<std::function<void(size_t)>()>& make_worker) {
    const auto wanted = n_threads > 0 ? static_cast<size_t>(n_threads)
                                      : std::max<size_t>(1, std::thread::hardware_concurrency());
    std::atomic<size_t> next{0};
    std::mutex mutex;
    std::exception_ptr failure;
    {
        std::vector<std::jthread> threads;
        for (size_t t = 0; t < std::min(wanted, n); ++t) {
            threads.emplace_back([&] {
                try {
                    const auto work = make_worker();
                    for (size_t i = next++; i < n; i = next++) work(i);
                } catch (...) {
                    next = n;
                    const std::lock_guard lock(mutex);
                    if (!failure) failure = std::current_exception();
                }
            });
        }
    }
    if (failure) std::rethrow_exception(failure);
}

}  // namespace moe::cli
