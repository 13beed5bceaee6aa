// The weights handle: the tensors of one layer, resident in host memory or packed on a device.
#pragma once

#include <array>
#include <list>
#include <memory>

#include "libmoe/base/handle.hpp"
#include "libmoe/base/runtime.hpp"
#include "libmoe/checkpoint/file.hpp"
#include "libmoe/device/device_memory.hpp"
#include "libmoe/weights/codebook_tables.hpp"
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
    moe::PrivateMap mapped_file;                       // instead, where a file was opened
    std::byte* copies = nullptr;                       // COPY, CALLER: where they begin
    std::pmr::list<std::array<float, 256>> codebooks;  // given ones, one of each
    const moe_checkpoint* source = nullptr;            // borrowed from: counted

    // Packed layouts only: resident has the vectors, for updates, and no matrices.
    moe::DevicePlacement placement;
    moe::device::DeviceMemory device_memory;  // COPY
    std::byte* device_block = nullptr;        // COPY, CALLER
    moe::DeviceWeights device;
    moe::CodebookTables codebook_tables;

    // A given codebook of n <= 256 values is small and often shared by all experts: one copy of
    // each is kept.
    const float* keep_codebook(const float* codebook, int64_t n);
    // Drops the codebooks that no matrix points to any more: updates do not pile them up.
    void drop_unused_codebooks() noexcept;
    moe_memory_report memory_report() const;

  private:
    uint64_t bookkeeping_bytes() const;
};

namespace moe {

// Frees a half-made handle when loading fails.
struct DestroyWeights {
    void operator()(moe_weights* weights) const {
        RuntimeRef runtime(&*weights->runtime);
        destroy_in(runtime->memory, weights);
    }
};
using NewWeights = std::unique_ptr<moe_weights, DestroyWeights>;

inline NewWeights new_weights(moe_runtime& runtime, const WeightsLayout& layout,
                              moe_ownership ownership) {
    NewWeights weights(create_in<moe_weights>(runtime.memory, &runtime, layout));
    weights->ownership = ownership;
    return weights;
}

}  // namespace moe
