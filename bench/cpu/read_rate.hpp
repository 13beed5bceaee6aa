// The read rate of the machine: threads that do nothing but read byte ranges once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace moe::bench {

struct ByteRange {
    const unsigned char* data;
    size_t size;
};

class Readers {
  public:
    // The calling thread is one of them.
    explicit Readers(int32_t n_threads);
    ~Readers();
    Readers(const Readers&) = delete;
    Readers& operator=(const Readers&) = delete;

    // Seconds for reading all ranges once, in tasks of 64 KB in their order. The threads are awake
    // when the time begins.
    double read(const std::vector<ByteRange>& ranges);

  private:
    void work();
    void take_tasks();

    std::vector<ByteRange> tasks_;
    std::atomic<size_t> next_{0};
    std::atomic<uint32_t> n_running_{0}, n_awake_{0}, started_{0};
    std::atomic<uint64_t> sum_{0};
    uint32_t round_ = 0;
    bool stop_ = false;
    std::mutex mutex_;
    std::condition_variable begin_;
    std::vector<std::thread> threads_;
};

}  // namespace moe::bench
