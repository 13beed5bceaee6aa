// Checks the caller's memory and reports progress.
#include "libmoe/weights/load_request.hpp"

namespace moe {

void check_caller_memory(const LoadRequest& request, uint64_t bytes, uint64_t alignment) {
    require(bytes == 0 || request.memory != nullptr,
            "memory is NULL, MOE_OWN_CALLER needs {} bytes", bytes);
    require(reinterpret_cast<uintptr_t>(request.memory) % alignment == 0,
            "memory is not aligned to {} bytes", alignment);
    require(request.memory_bytes >= bytes, "memory_bytes is {}, these weights need {}",
            request.memory_bytes, bytes);
}

void LoadProgress::add(uint64_t bytes) {
    done_ += bytes;
    if (!request_.progress) return;
    if (request_.progress(done_, total, request_.progress_user_data) != 0)
        fail(MOE_ERROR_CANCELLED, "loading was cancelled after {} of {} bytes", done_, total);
}

}  // namespace moe
