// An object that the users of a runtime hand on to each other, so that the next one need not make
// it again. What it is they know; base does not.
#pragma once

#include <mutex>
#include <utility>

namespace moe {

class Kept {
  public:
    using Destroy = void (*)(void* object) noexcept;

    Kept() = default;
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;
    ~Kept() { keep(nullptr, nullptr); }

    // The object, which is the caller's then; null if there is none, or somebody has it.
    void* take() {
        const std::lock_guard lock(mutex_);
        return std::exchange(object_, nullptr);
    }
    // Destroys the one that was there.
    void keep(void* object, Destroy destroy) noexcept {
        {
            const std::lock_guard lock(mutex_);
            std::swap(object, object_);
            std::swap(destroy, destroy_);
        }
        if (object) destroy(object);
    }

  private:
    std::mutex mutex_;
    void* object_ = nullptr;
    Destroy destroy_ = nullptr;
};

}  // namespace moe
