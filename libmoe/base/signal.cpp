// Spinning by the clock, because a pause takes 40 to 140 cycles by processor; parking by futex,
// because notify_one and notify_all of std::atomic know no other number of threads.
#include "libmoe/base/signal.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>

namespace moe {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

void futex(std::atomic<uint32_t>& word, int operation, uint32_t number) {
    syscall(SYS_futex, &word, operation | FUTEX_PRIVATE_FLAG, number, nullptr, nullptr, 0);
}

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
}

}  // namespace

void Signal::wait_while(uint32_t old) {
    using Clock = std::chrono::steady_clock;
    constexpr int looks = 16;  // between two looks at the clock
    const auto end = Clock::now() + std::chrono::nanoseconds(spin_ns);
    do {
        for (int i = 0; i < looks; ++i) {
            if (value() != old) return;
            relax();
        }
    } while (Clock::now() < end);
    park_while(old);
}

// The order of all four steps is one that both sides see: either raise() sees the parked thread, or
// the thread sees the new value.
void Signal::park_while(uint32_t old) {
    n_parked_.fetch_add(1, std::memory_order_seq_cst);
    while (value_.load(std::memory_order_seq_cst) == old) futex(value_, FUTEX_WAIT, old);
    n_parked_.fetch_sub(1, std::memory_order_relaxed);
}

void Signal::raise(int32_t n_wake) {
    value_.fetch_add(1, std::memory_order_seq_cst);
    if (n_parked_.load(std::memory_order_seq_cst) == 0) return;
    futex(value_, FUTEX_WAKE, static_cast<uint32_t>(n_wake));
}

}  // namespace moe
