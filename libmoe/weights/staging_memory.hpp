// Pinned memory that weights pass through on their way to a device. To allocate it takes as long as
// to copy many times its size, so the runtime keeps one buffer for the next load.
#pragma once

#include "libmoe/base/runtime.hpp"
#include "libmoe/device/device_memory.hpp"

namespace moe {

class StagingMemory {
  public:
    // Takes the runtime's buffer if it is large enough and free, or allocates one. Fails with
    // MOE_ERROR_OUT_OF_MEMORY.
    StagingMemory(moe_runtime& runtime, int32_t device_index, uint64_t bytes, void* stream);
    StagingMemory(const StagingMemory&) = delete;
    StagingMemory& operator=(const StagingMemory&) = delete;
    // Gives the buffer to the runtime, unless it is larger than most_kept. Precondition: no copy
    // from it is running.
    ~StagingMemory();

    std::byte* data() const { return buffer_->memory.data(); }

  private:
    static constexpr uint64_t most_kept = uint64_t{64} << 20;

    struct Buffer {
        Buffer(moe_runtime& of, int32_t device_index, uint64_t bytes, void* stream);
        moe_runtime& runtime;
        device::DeviceMemory memory;
    };
    static void destroy(void* buffer) noexcept;

    moe_runtime& runtime_;
    Buffer* buffer_;
};

}  // namespace moe
