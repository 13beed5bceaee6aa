// Lays buffers out one after the other in a given block. With a null block it only counts, so that
// the same code that takes the buffers also says how much memory they need.
#pragma once

#include <cstddef>
#include <cstdint>

#include "libmoe/base/checked.hpp"

namespace moe {

class Arena {
  public:
    static constexpr uint64_t alignment = 64;

    explicit Arena(std::byte* block) : block_(block) {}

    template <class T>
    T* take(int64_t count) {
        const uint64_t offset = used_;
        const uint64_t bytes =
            checked_multiply(static_cast<uint64_t>(count), sizeof(T), "workspace");
        used_ = align_up(checked_add(used_, bytes, "workspace"), alignment);
        return block_ ? reinterpret_cast<T*>(block_ + offset) : nullptr;
    }
    uint64_t used() const { return used_; }

  private:
    std::byte* block_;
    uint64_t used_ = 0;
};

}  // namespace moe
