// A block of device memory from the caller's allocator that frees itself, on its device.
#pragma once

#include "libmoe/cuda/backend.hpp"

namespace moe {

class DeviceBlock {
  public:
    static constexpr uint64_t alignment = 256;

    DeviceBlock() = default;
    DeviceBlock(Memory& memory, int32_t device_index, uint64_t bytes, void* stream = nullptr)
        : memory_(&memory), device_index_(device_index), bytes_(bytes) {
        if (bytes == 0) return;
        cuda::UseDevice use(device_index);
        data_ = memory.allocate_in(MOE_SPACE_DEVICE, bytes, alignment, stream);
    }
    DeviceBlock(DeviceBlock&& other) noexcept { swap(other); }
    DeviceBlock& operator=(DeviceBlock&& other) noexcept {
        DeviceBlock(std::move(other)).swap(*this);
        return *this;
    }
    ~DeviceBlock() {
        if (!data_) return;
        try {
            cuda::UseDevice use(device_index_);
            memory_->release_in(MOE_SPACE_DEVICE, data_, bytes_, alignment, nullptr);
        } catch (const Error&) {
            // A forked child, or a context that is not ours: the memory is not either.
        }
    }

    std::byte* data() const { return static_cast<std::byte*>(data_); }
    uint64_t bytes() const { return bytes_; }
    // Fills the whole block from host memory and waits.
    void write(const void* from) {
        if (bytes_ == 0) return;
        cuda::UseDevice use(device_index_);
        cuda::upload(data_, from, bytes_, nullptr);
        cuda::synchronize(nullptr);
    }

  private:
    void swap(DeviceBlock& other) noexcept {
        std::swap(memory_, other.memory_);
        std::swap(device_index_, other.device_index_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
    }
    Memory* memory_ = nullptr;
    int32_t device_index_ = 0;
    void* data_ = nullptr;
    uint64_t bytes_ = 0;
};

}  // namespace moe
