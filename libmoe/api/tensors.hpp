// A caller's tensors with their formats, read by the struct_size rule.
#pragma once

#include <memory_resource>
#include <vector>

#include "moe/moe.h"

namespace moe {

class Tensors {
  public:
    Tensors(std::pmr::memory_resource& memory, const moe_tensor* const* given, uint32_t n);
    Tensors(const Tensors&) = delete;  // tensors point to formats
    Tensors& operator=(const Tensors&) = delete;

    const moe_tensor* const* pointers() const { return pointers_.data(); }

  private:
    std::pmr::vector<moe_tensor> tensors_;
    std::pmr::vector<moe_format> formats_;
    std::pmr::vector<const moe_tensor*> pointers_;
};

}  // namespace moe
