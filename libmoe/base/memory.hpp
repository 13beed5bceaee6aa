// The caller's allocator, and its host space as a std::pmr resource: every container in a handle
// uses it, so the hook sees small tables as well as large buffers.
#pragma once

#include <memory_resource>
#include <new>
#include <utility>

#include "libmoe/base/error.hpp"

namespace moe {

// The default allocator in the spaces PINNED and DEVICE. Defined by api/device_memory.cpp, because
// base knows no device. The first fails as the device's backend does.
void* allocate_for_device(moe_space space, uint64_t bytes);
void release_for_device(moe_space space, void* memory) noexcept;

class Memory final : public std::pmr::memory_resource {
  public:
    Memory();  // malloc, and the device's backend
    explicit Memory(const moe_allocator& allocator) : table_(allocator) {}

    // Fails with MOE_ERROR_OUT_OF_MEMORY.
    void* allocate_in(moe_space space, uint64_t bytes, uint64_t alignment, void* stream);
    void release_in(moe_space space, void* memory, uint64_t bytes, uint64_t alignment,
                    void* stream) noexcept;

  private:
    void* do_allocate(size_t bytes, size_t alignment) override;
    void do_deallocate(void* memory, size_t bytes, size_t alignment) override;
    bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
        return this == &other;
    }

    moe_allocator table_;
};

// A host block that frees itself.
class Block {
  public:
    Block() = default;
    Block(std::pmr::memory_resource& memory, uint64_t bytes, uint64_t alignment)
        : memory_(&memory),
          data_(bytes ? memory.allocate(bytes, alignment) : nullptr),
          bytes_(bytes),
          alignment_(alignment) {}
    Block(Block&& other) noexcept { swap(other); }
    Block& operator=(Block&& other) noexcept {
        Block(std::move(other)).swap(*this);
        return *this;
    }
    ~Block() {
        if (data_) memory_->deallocate(data_, bytes_, alignment_);
    }
    std::byte* data() const { return static_cast<std::byte*>(data_); }
    uint64_t bytes() const { return bytes_; }

  private:
    void swap(Block& other) noexcept {
        std::swap(memory_, other.memory_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        std::swap(alignment_, other.alignment_);
    }
    std::pmr::memory_resource* memory_ = nullptr;
    void* data_ = nullptr;
    uint64_t bytes_ = 0;
    uint64_t alignment_ = 0;
};

// Handles live in the resource they are given.
template <class T, class... Args>
T* create_in(std::pmr::memory_resource& memory, Args&&... args) {
    struct Place {  // given back when the constructor throws
        std::pmr::memory_resource& memory;
        void* bytes = memory.allocate(sizeof(T), alignof(T));
        ~Place() {
            if (bytes) memory.deallocate(bytes, sizeof(T), alignof(T));
        }
    } place{memory};
    T* object = new (place.bytes) T(std::forward<Args>(args)...);
    place.bytes = nullptr;
    return object;
}

template <class T>
void destroy_in(std::pmr::memory_resource& memory, T* object) noexcept {
    object->~T();
    memory.deallocate(object, sizeof(T), alignof(T));
}

}  // namespace moe
