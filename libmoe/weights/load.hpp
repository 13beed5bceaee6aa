// The weights handle, and how tensors get into it.
#pragma once

#include <list>
#include <memory>
#include <string_view>

#include "libmoe/base/handle.hpp"
#include "libmoe/base/runtime.hpp"
#include "libmoe/device/device_memory.hpp"
#include "libmoe/weights/device_weights.hpp"
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
    moe::Block owned;                                  // COPY: all matrices
    std::byte* copies = nullptr;                       // COPY, CALLER: where they begin
    std::pmr::list<std::array<float, 256>> codebooks;  // given ones, one of each
    const moe_checkpoint* source = nullptr;            // borrowed from: counted

    // Packed layouts only: resident has the vectors, for updates, and no matrices.
    moe::DevicePlacement placement;
    moe::device::DeviceMemory device_memory;  // COPY
    std::byte* device_block = nullptr;      // COPY, CALLER
    moe::DeviceWeights device;

    // A codebook goes with the last matrix that points to it: updates do not pile them up.
    void drop_unused_codebooks() noexcept;
    moe_memory_report memory_report() const;

  private:
    uint64_t bookkeeping_bytes() const;
};

namespace moe {

// Where borrowed and copied matrices come from and go to, and who is told of progress.
struct LoadRequest {
    moe_ownership ownership = MOE_OWN_COPY;
    void* memory = nullptr;  // CALLER
    uint64_t memory_bytes = 0;
    void* stream = nullptr;  // of a device
    moe_progress_fn progress = nullptr;
    void* progress_user_data = nullptr;
};

// Frees a half-made handle when loading fails.
struct DestroyWeights {
    void operator()(moe_weights* weights) const {
        RuntimeRef runtime(&*weights->runtime);
        destroy_in(runtime->memory, weights);
    }
};
using NewWeights = std::unique_ptr<moe_weights, DestroyWeights>;

inline NewWeights new_weights(moe_runtime& runtime, const WeightsLayout& layout,
                              const LoadRequest& request) {
    NewWeights weights(create_in<moe_weights>(runtime.memory, &runtime, layout));
    weights->ownership = request.ownership;
    return weights;
}

moe_weights* load_tensors(moe_runtime* runtime, const WeightsLayout& layout,
                          const LoadRequest& request, const moe_tensor* const* tensors,
                          uint32_t n_tensors);
moe_weights* load_checkpoint(moe_runtime* runtime, const WeightsLayout& layout,
                             const LoadRequest& request, const moe_checkpoint& checkpoint,
                             int32_t layer);
// Packed weights to a file and back.
void save_weights(const moe_weights& weights, std::string_view path);
moe_weights* open_weights(moe_runtime* runtime, const WeightsLayout& layout, std::string_view path);
// Replaces what one tensor holds. stream is of the weights' device.
void update_tensor(moe_weights& weights, const moe_tensor& tensor, void* stream);

}  // namespace moe
