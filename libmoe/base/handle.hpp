// The word by which an entry point knows a living handle of the right kind from a stale or wrong
// one.
#pragma once

#include <cstdint>
#include <cstring>

namespace moe {

template <uint64_t word>
class Tagged {
  public:
    static constexpr uint64_t tag_word = word;

  protected:
    Tagged() = default;
    ~Tagged() {
        // A volatile store, or the compiler drops it as dead.
        *const_cast<volatile uint64_t*>(&tag_) = 0;
    }

  private:
    uint64_t tag_ = word;
};

// Is this a living handle of its kind? Reads no more than the word, as bytes: a pointer of another
// kind need not have the alignment of this one.
template <class Handle>
bool is_living(const Handle* handle) {
    uint64_t tag;
    std::memcpy(&tag, static_cast<const void*>(handle), sizeof tag);
    return tag == Handle::tag_word;
}

}  // namespace moe
