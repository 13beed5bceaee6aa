// Pinned memory that weights go through on their way to a device. Making it takes as long as
// copying many times its size, so the runtime keeps one piece for the next load.
#pragma once

#include "libmoe/base/runtime.hpp"
#include "libmoe/device/device_memory.hpp"

namespace moe {

class StagingMemory {
  public:
    // The piece of the runtime, if it is large enough and nobody has it, or a new one. Fails with
    // MOE_ERROR_OUT_OF_MEMORY.
    StagingMemory(moe_runtime& runtime, int32_t device_index, uint64_t bytes, void* stream);
    StagingMemory(const StagingMemory&) = delete;
    StagingMemory& operator=(const StagingMemory&) = delete;
    // Nothing may be on its way from it. Leaves it to the runtime unless it has more than that is
    // to keep.
    ~StagingMemory();

    std::byte* data() const { return piece_->memory.data(); }

  private:
    static constexpr uint64_t most_kept = uint64_t{64} << 20;

    struct Piece {
        Piece(moe_runtime& of, int32_t device_index, uint64_t bytes, void* stream);
        moe_runtime& runtime;
        device::DeviceMemory memory;
    };
    static void destroy(void* piece) noexcept;

    moe_runtime& runtime_;
    Piece* piece_;
};

}  // namespace moe
