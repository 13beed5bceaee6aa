// Keeps the allocations that kernels may access, ordered by address.
#include "tests/emulator/machine.hpp"

namespace emulator {

void Memory::add(const void* begin, size_t bytes) {
    const std::lock_guard lock(mutex_);
    ranges_[reinterpret_cast<uintptr_t>(begin)] = bytes;
}

void Memory::remove(const void* begin) {
    const std::lock_guard lock(mutex_);
    ranges_.erase(reinterpret_cast<uintptr_t>(begin));
}

uintptr_t Memory::end_of(uintptr_t address, uintptr_t* begin) const {
    const std::lock_guard lock(mutex_);
    auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) return 0;
    --after;
    if (address >= after->first + after->second) return 0;
    if (begin) *begin = after->first;
    return after->first + after->second;
}

}  // namespace emulator
