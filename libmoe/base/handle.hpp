// The word by which an entry point knows a living handle of the right kind from a stale or wrong one.
#pragma once

#include <cstdint>

namespace moe {

template <uint64_t word>
class Tagged {
  public:
    bool is_alive() const { return tag_ == word; }

  protected:
    Tagged() = default;
    ~Tagged() {
        // A volatile store, or the compiler drops it as dead.
        *const_cast<volatile uint64_t*>(&tag_) = 0;
    }

  private:
    uint64_t tag_ = word;
};

}  // namespace moe
