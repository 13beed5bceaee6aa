// The weights handle, and how tensors get into it.
#pragma once

#include <deque>

#include "libmoe/base/handle.hpp"
#include "libmoe/base/runtime.hpp"
#include "libmoe/weights/weights.hpp"

struct moe_weights : moe::Tagged<0x4D4F457765696768> {
    moe_weights(moe_runtime* shared_runtime, const moe::WeightsLayout& plan_layout);
    ~moe_weights();
    moe_weights(const moe_weights&) = delete;
    moe_weights& operator=(const moe_weights&) = delete;

    moe::RuntimeRef runtime;
    moe::WeightsLayout layout;
    moe::ResidentWeights resident;
    moe_ownership ownership = MOE_OWN_COPY;
    moe::Block owned;                                   // COPY: all matrices
    std::byte* copies = nullptr;                        // COPY, CALLER: where they begin
    std::pmr::deque<std::array<float, 256>> codebooks;  // given ones, one of each
    const moe_checkpoint* source = nullptr;             // borrowed from: counted

    moe_memory_report memory_report() const;
};

namespace moe {

// Where borrowed and copied matrices come from and go to, and who is told of progress.
struct LoadRequest {
    moe_ownership ownership = MOE_OWN_COPY;
    void* memory = nullptr;  // CALLER
    uint64_t memory_bytes = 0;
    moe_progress_fn progress = nullptr;
    void* progress_user_data = nullptr;
};

moe_weights* load_tensors(moe_runtime* runtime, const WeightsLayout& layout,
                          const LoadRequest& request, const moe_tensor* const* tensors,
                          uint32_t n_tensors);
moe_weights* load_checkpoint(moe_runtime* runtime, const WeightsLayout& layout,
                             const LoadRequest& request, const moe_checkpoint& checkpoint,
                             int32_t layer);
// Replaces what one tensor holds.
void update_tensor(moe_weights& weights, const moe_tensor& tensor);

}  // namespace moe
