// A number that threads wait on: a waiter spins for some microseconds, then parks in the kernel.
// Nobody makes a system call while nobody is parked.
#pragma once

#include <atomic>
#include <cstdint>

namespace moe {

class Signal {
  public:
    // Waiters park after this time, which is longer than the serial steps of a small layer. Beside
    // other busy threads a parked thread is scheduled at once when it is woken, one that has spun
    // its time slice away is not: 30 us were slower there (moe-bench-regions).
    static constexpr int64_t spin_ns = 10'000;

    uint32_t value() const { return value_.load(std::memory_order_acquire); }
    // Returns when the value is not `old`.
    void wait_while(uint32_t old);
    // Raises the value by one and wakes up to n_wake of the parked. Those that it leaves stay
    // parked until a later raise, though the value is no longer the one they wait on.
    void raise(int32_t n_wake);

  private:
    void park_while(uint32_t old);

    std::atomic<uint32_t> value_{0};
    std::atomic<int32_t> n_parked_{0};
};

}  // namespace moe
