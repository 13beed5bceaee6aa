// The description of the plan that a case measures.
#pragma once

#include "bench/cases.hpp"

namespace moe::bench {

// desc points into the request, which is therefore not copied.
class PlanRequest {
  public:
    PlanRequest(const Case& like, int64_t max_tokens, moe_device_kind device = MOE_DEVICE_CUDA);
    PlanRequest(const PlanRequest&) = delete;

    moe_layer_desc layer;
    moe_plan_desc desc{};

  private:
    void set(moe_role role, const std::string& format);

    std::string kernels_;
    moe_format formats_[MOE_ROLE_COUNT]{};
    const moe_format* pointers_[MOE_ROLE_COUNT]{};
};

}  // namespace moe::bench
