#include "bench/cpu/read_rate.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace moe::bench {
namespace {

constexpr size_t task_bytes = size_t{64} << 10;
constexpr size_t line = 64;
constexpr size_t ahead = 4096;  // as far as the gemv kernels prefetch

using Vector __attribute__((vector_size(line))) = uint64_t;

// Loads of 16 bytes make one thread slower than kernels are that load 64.
#if defined(__x86_64__) && !defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
uint64_t
read_range(const ByteRange& range) {
    Vector sums[2] = {};
    size_t i = 0;
    for (; i + 2 * line <= range.size; i += 2 * line)
        for (size_t j = 0; j < 2; ++j) {
            const unsigned char* at = range.data + i + j * line;
            __builtin_prefetch(at + ahead);
            Vector v;
            std::memcpy(&v, at, sizeof v);
            sums[j] ^= v;
        }
    const Vector all = sums[0] ^ sums[1];
    uint64_t sum = 0;
    for (size_t j = 0; j < line / sizeof(uint64_t); ++j) sum ^= all[j];
    for (; i < range.size; ++i) sum ^= range.data[i];
    return sum;
}

}  // namespace

Readers::Readers(int32_t n_threads) {
    for (int32_t i = 1; i < n_threads; ++i) threads_.emplace_back([this] { work(); });
}

Readers::~Readers() {
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    begin_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void Readers::take_tasks() {
    uint64_t sum = 0;
    for (size_t i; (i = next_.fetch_add(1)) < tasks_.size();) sum ^= read_range(tasks_[i]);
    sum_ ^= sum;
}

void Readers::work() {
    for (uint32_t seen = 0;;) {
        {
            std::unique_lock lock(mutex_);
            begin_.wait(lock, [&] { return stop_ || round_ != seen; });
            if (stop_) return;
            seen = round_;
        }
        ++n_awake_;
        while (started_ != seen) std::this_thread::yield();
        take_tasks();
        --n_running_;
    }
}

double Readers::read(const std::vector<ByteRange>& ranges) {
    tasks_.clear();
    for (const ByteRange& range : ranges)
        for (size_t at = 0; at < range.size; at += task_bytes)
            tasks_.push_back({range.data + at, std::min(task_bytes, range.size - at)});
    {
        std::lock_guard lock(mutex_);
        next_ = 0;
        n_running_ = static_cast<uint32_t>(threads_.size());
        n_awake_ = 0;
        ++round_;
    }
    begin_.notify_all();
    while (n_awake_ != threads_.size()) std::this_thread::yield();
    const auto start = std::chrono::steady_clock::now();
    started_ = round_;
    take_tasks();
    while (n_running_ != 0) std::this_thread::yield();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace moe::bench
