// Fills the LaunchPlan of a CUDA plan: every launch configuration and kernel name, per range of T.
#pragma once

#include "libmoe/plan/gemv_tiling.hpp"
#include "libmoe/plan/plan.hpp"

namespace moe {

// The problem of the routed experts or of the shared expert; n_slots as in GemvProblem. Needs the
// placement.
GemvProblem gemv_problem(const moe_plan& plan, bool is_shared, int32_t n_slots);

// Needs the chosen candidates and the chunk of tokens.
void make_launch_plan(const moe_plan& plan, cuda::LaunchPlan& launch);

}  // namespace moe
