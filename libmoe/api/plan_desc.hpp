// moe_plan_desc with everything that it points to, read by the struct_size rule.
#pragma once

#include <vector>

#include "moe/moe.h"

namespace moe {

class PlanDesc {
  public:
    explicit PlanDesc(const moe_plan_desc* given);
    PlanDesc(const PlanDesc&) = delete;  // desc points into it
    PlanDesc& operator=(const PlanDesc&) = delete;

    const moe_plan_desc& get() const { return desc_; }

  private:
    void take_from_checkpoint();
    void take_experts_from_checkpoint();
    void read_formats();
    void read_expert_formats();

    moe_plan_desc desc_;
    moe_layer_desc layer_{};
    moe_slice slice_{};
    moe_format formats_[MOE_ROLE_COUNT]{};
    const moe_format* format_pointers_[MOE_ROLE_COUNT]{};
    // Formats of single experts; pointers go into the list or to those of the checkpoint.
    std::vector<moe_format> expert_formats_;
    std::vector<const moe_format*> expert_pointers_;
};

}  // namespace moe
