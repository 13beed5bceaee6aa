// What threads of a team may not throw. Of several failures the first item's is kept.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>

namespace moe {

class FirstFailure {
  public:
    template <class F>
    void run(int64_t item, F f) {
        try {
            f();
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (what_ && item_ < item) return;
            item_ = item;
            what_ = std::current_exception();
        }
    }
    void rethrow() const {
        if (what_) std::rethrow_exception(what_);
    }

  private:
    std::mutex mutex_;
    int64_t item_ = 0;
    std::exception_ptr what_;
};

}  // namespace moe
