// Arguments of moe_weights_load, moe_weights_load_checkpoint and their like in the background: read
// by the struct_size rule and checked.
#pragma once

#include <memory_resource>
#include <vector>

#include "libmoe/plan/plan.hpp"
#include "libmoe/weights/load_request.hpp"

namespace moe {

// A caller's tensors with their formats, read by the struct_size rule.
class Tensors {
  public:
    Tensors(std::pmr::memory_resource& memory, const moe_tensor* const* given, uint32_t n);
    Tensors(const Tensors&) = delete;  // tensors point to formats
    Tensors& operator=(const Tensors&) = delete;

    const moe_tensor* const* pointers() const { return pointers_.data(); }
    uint32_t size() const { return static_cast<uint32_t>(pointers_.size()); }

  private:
    std::pmr::vector<moe_tensor> tensors_;
    std::pmr::vector<moe_format> formats_;
    std::pmr::vector<const moe_tensor*> pointers_;
};

LoadRequest load_request(const moe_plan& plan, const moe_weights_desc& desc);
// given may be null.
LoadRequest load_request(const moe_load_options* given);

}  // namespace moe
