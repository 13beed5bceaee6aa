// Vectors and the hash table of a layer on the host: what is small is kept in float32 (int32) in
// either residency.
#pragma once

#include "libmoe/weights/tensor_reader.hpp"

namespace moe {

class ResidentVectors {
  public:
    // layout and resident must outlive it.
    ResidentVectors(const WeightsLayout& layout, ResidentWeights& resident,
                    std::pmr::memory_resource& memory)
        : layout_(layout), resident_(resident), row_(&memory) {}

    // Decodes the part, which is no matrix and in host memory, to where it belongs.
    void set(const moe_tensor& tensor, const TensorPart& part);

  private:
    const WeightsLayout& layout_;
    ResidentWeights& resident_;
    std::pmr::vector<float> row_;  // the tensor's, decoded
};

}  // namespace moe
