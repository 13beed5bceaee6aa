// Arguments of forward and the stages: read by the struct_size rule, checked against plan and
// weights, defaults filled in. What these functions return can be run without another question.
#pragma once

#include "libmoe/plan/plan.hpp"

namespace moe {

moe_forward_args forward_arguments(const moe_plan& plan, const moe_forward_args* given);
moe_route_args route_arguments(const moe_plan& plan, const moe_route_args* given);
moe_dispatch_args dispatch_arguments(const moe_plan& plan, const moe_dispatch_args* given);
moe_gather_args gather_arguments(const moe_plan& plan, const moe_gather_args* given);
moe_experts_args experts_arguments(const moe_plan& plan, const moe_experts_args* given);
// Is there a token, row or capacity, as the layouts count them? Without, nothing is required.
bool has_work(const moe_experts_args& args);
bool has_work(const moe_gather_args& args);
moe_combine_args combine_arguments(const moe_plan& plan, const moe_combine_args* given);
moe_finish_args finish_arguments(const moe_plan& plan, const moe_finish_args* given);

}  // namespace moe
