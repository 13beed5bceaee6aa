// Takes the buffer of the runtime, or allocates one.
#include "libmoe/weights/staging_memory.hpp"

#include "libmoe/weights/device_weights.hpp"

namespace moe {

StagingMemory::Buffer::Buffer(moe_runtime& of, int32_t device_index, uint64_t bytes, void* stream)
    : runtime(of),
      memory(of.memory, MOE_SPACE_PINNED, bytes, DevicePlacement::alignment, device_index, stream) {
}

void StagingMemory::destroy(void* buffer) noexcept {
    auto* of = static_cast<Buffer*>(buffer);
    destroy_in(of->runtime.memory, of);
}

StagingMemory::StagingMemory(moe_runtime& runtime, int32_t device_index, uint64_t bytes,
                             void* stream)
    : runtime_(runtime), buffer_(static_cast<Buffer*>(runtime.staging.take())) {
    if (buffer_ && buffer_->memory.bytes() >= bytes) return;
    if (buffer_) destroy(buffer_);
    buffer_ = create_in<Buffer>(runtime.memory, runtime, device_index, bytes, stream);
}

StagingMemory::~StagingMemory() {
    if (buffer_->memory.bytes() > most_kept)
        destroy(buffer_);
    else
        runtime_.staging.keep(buffer_, destroy);
}

}  // namespace moe
