// Owns device or pinned memory from the runtime's allocator and releases it at the end of its life.
#pragma once

#include "libmoe/cuda/backend.hpp"

namespace moe::cuda {

class DeviceMemory {
  public:
    DeviceMemory() = default;
    // device_index applies to both spaces, because pinned memory belongs to a context, too.
    DeviceMemory(Memory& memory, moe_space space, uint64_t bytes, uint64_t alignment,
                 int32_t device_index, void* stream)
        : memory_(&memory),
          space_(space),
          bytes_(bytes),
          alignment_(alignment),
          device_index_(device_index) {
        const UseDevice use(device_index);
        if (bytes) data_ = memory.allocate_in(space, bytes, alignment, stream);
    }
    DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
    DeviceMemory& operator=(DeviceMemory&& other) noexcept {
        DeviceMemory(std::move(other)).swap(*this);
        return *this;
    }
    ~DeviceMemory() {
        if (data_) release();
    }

    std::byte* data() const { return static_cast<std::byte*>(data_); }
    uint64_t bytes() const { return bytes_; }

  private:
    // Another device may be current here. Addresses are unique, so the release is right all the
    // same. In a forked child the memory is the parent's.
    void release() noexcept {
        try {
            const UseDevice use(device_index_);
            memory_->release_in(space_, data_, bytes_, alignment_, nullptr);
        } catch (const Error& error) {
            if (error.status() != MOE_ERROR_FORKED)
                memory_->release_in(space_, data_, bytes_, alignment_, nullptr);
        }
    }
    void swap(DeviceMemory& other) noexcept {
        std::swap(memory_, other.memory_);
        std::swap(space_, other.space_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        std::swap(alignment_, other.alignment_);
        std::swap(device_index_, other.device_index_);
    }

    Memory* memory_ = nullptr;
    moe_space space_ = MOE_SPACE_DEVICE;
    void* data_ = nullptr;
    uint64_t bytes_ = 0;
    uint64_t alignment_ = 0;
    int32_t device_index_ = 0;
};

}  // namespace moe::cuda
