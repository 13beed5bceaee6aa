// Takes the piece of the runtime, or makes one, and hands it on.
#include "libmoe/weights/staging_memory.hpp"

#include "libmoe/weights/device_weights.hpp"

namespace moe {

StagingMemory::Piece::Piece(moe_runtime& of, int32_t device_index, uint64_t bytes, void* stream)
    : runtime(of),
      memory(of.memory, MOE_SPACE_PINNED, bytes, DevicePlacement::alignment, device_index, stream) {
}

void StagingMemory::destroy(void* piece) noexcept {
    auto* of = static_cast<Piece*>(piece);
    destroy_in(of->runtime.memory, of);
}

StagingMemory::StagingMemory(moe_runtime& runtime, int32_t device_index, uint64_t bytes,
                             void* stream)
    : runtime_(runtime), piece_(static_cast<Piece*>(runtime.staging.take())) {
    if (piece_ && piece_->memory.bytes() >= bytes) return;
    if (piece_) destroy(piece_);
    piece_ = create_in<Piece>(runtime.memory, runtime, device_index, bytes, stream);
}

StagingMemory::~StagingMemory() {
    if (piece_->memory.bytes() > most_kept)
        destroy(piece_);
    else
        runtime_.staging.keep(piece_, destroy);
}

}  // namespace moe
