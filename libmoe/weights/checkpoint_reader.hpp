// Tensors of a checkpoint that is not mapped, read expert by expert.
#pragma once

#include "libmoe/checkpoint/checkpoint.hpp"

namespace moe {

// Reads into one set of buffers: a tensor stays until the next is read.
class CheckpointReader {
  public:
    CheckpointReader(const moe_checkpoint& checkpoint, std::pmr::memory_resource& memory)
        : checkpoint_(checkpoint), data_(&memory), scales_(&memory), zero_points_(&memory) {}

    // Returns how many experts there are to read.
    static int64_t count(const LayerTensor& source) {
        return is_stack(source.tensor) ? source.tensor.n_experts : 1;
    }
    // Describes the index-th without its bytes, which is enough to decide whether to read it.
    static moe_tensor describe(const LayerTensor& source, int64_t index) {
        moe_tensor one = source.tensor;
        if (is_stack(one)) one.expert = static_cast<int32_t>(index);
        return one;
    }
    moe_tensor read(const LayerTensor& source, int64_t index) {
        const auto n = static_cast<uint64_t>(count(source)), i = static_cast<uint64_t>(index);
        moe_tensor one = describe(source, index);
        if (source.data.bytes) {  // else the checkpoint made the values itself
            one.data_bytes = source.data.bytes / n;
            one.data = read(source.data, i * one.data_bytes, one.data_bytes, data_);
        }
        if (source.scales.bytes) {
            one.scale_bytes = source.scales.bytes / n;
            one.scales = read(source.scales, i * one.scale_bytes, one.scale_bytes, scales_);
        } else if (one.scales) {  // the checkpoint made them itself, those of the experts in order
            one.scale_bytes /= n;
            one.scales = static_cast<const std::byte*>(one.scales) + i * one.scale_bytes;
        }
        if (source.zero_points.bytes) {
            one.zero_point_bytes = source.zero_points.bytes / n;
            one.zero_points = read(source.zero_points, i * one.zero_point_bytes,
                                   one.zero_point_bytes, zero_points_);
        }
        if (is_stack(source.tensor) && one.n_global_scales > 1) {
            one.global_scale += index;
            one.n_global_scales = 1;
        }
        return one;
    }

    static bool is_stack(const moe_tensor& tensor) {
        return is_expert_role(tensor.role) && tensor.expert == MOE_ALL_EXPERTS;
    }

  private:
    const std::byte* read(const FileRange& range, uint64_t offset, uint64_t bytes,
                          std::pmr::vector<std::byte>& to) {
        to.resize(bytes);
        checkpoint_.read(range, offset, bytes, to.data());
        return to.data();
    }

    const moe_checkpoint& checkpoint_;
    std::pmr::vector<std::byte> data_, scales_, zero_points_;
};

}  // namespace moe
