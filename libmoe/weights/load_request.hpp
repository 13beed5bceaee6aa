// A caller's request to load weights: where the matrices go, on which stream, and who is told of
// progress.
#pragma once

#include "libmoe/base/error.hpp"

namespace moe {

struct LoadRequest {
    moe_ownership ownership = MOE_OWN_COPY;
    void* memory = nullptr;  // CALLER
    uint64_t memory_bytes = 0;
    void* stream = nullptr;  // of a device
    moe_progress_fn progress = nullptr;
    void* progress_user_data = nullptr;
};

// Fails unless memory of MOE_OWN_CALLER has so many bytes with this alignment.
void check_caller_memory(const LoadRequest& request, uint64_t bytes, uint64_t alignment);

// Tells the caller how far a load has come.
class LoadProgress {
  public:
    explicit LoadProgress(const LoadRequest& request) : request_(request) {}
    uint64_t total = 0;
    uint64_t done() const { return done_; }
    // Fails with MOE_ERROR_CANCELLED when the caller cancels the load.
    void add(uint64_t bytes);

  private:
    const LoadRequest& request_;
    uint64_t done_ = 0;
};

}  // namespace moe
