// The source matrices that a load has been given and has not packed yet, and their way from device
// memory to the host.
#pragma once

#include "libmoe/weights/device_block.hpp"
#include "libmoe/weights/device_weights.hpp"

namespace moe {

struct SourceMatrix {
    Matrix matrix;
    bool is_given = false;
    bool is_on_device = false;
};

// Host copies of the buffers of one matrix in device memory.
class FetchedBuffers {
  public:
    explicit FetchedBuffers(std::pmr::memory_resource& memory)
        : data_(&memory), scales_(&memory), zero_points_(&memory) {}

    // Returns the same view in host memory, valid until the next call.
    Matrix fetch(const Matrix& on_device, DeviceBlock& block);

  private:
    std::pmr::vector<std::byte> data_, scales_, zero_points_;
};

// By role and expert. The roles of gate and up share an entry of the packed matrices where they are
// fused: role is then the gate's.
class PackSources {
  public:
    // layout and placement must outlive it. single_halves: half of a fused matrix may be packed
    // alone.
    PackSources(const WeightsLayout& layout, const DevicePlacement& placement,
                std::pmr::memory_resource& memory, bool single_halves);

    void give(moe_role role, int64_t index, const Matrix& matrix, bool is_on_device);
    void drop(moe_role role, int64_t index);
    const SourceMatrix& of(moe_role role, int64_t index) const {
        return sources_[role][static_cast<size_t>(index)];
    }
    // Returns true if everything of the matrix has been given.
    bool is_whole(moe_role role, int64_t index) const;
    // Returns true if the matrix can be packed: whole, or one half where that is allowed.
    bool is_ready(moe_role role, int64_t index) const;
    bool is_on_device(moe_role role, int64_t index) const;
    // Brings what is in device memory to the host; it stays until the next call.
    void fetch(moe_role role, int64_t index, DeviceBlock& block);

  private:
    const DevicePlacement& placement_;
    bool single_halves_;
    RoleTable<SourceMatrix> sources_;
    FetchedBuffers fetched_[2];  // of the two halves
};

}  // namespace moe
