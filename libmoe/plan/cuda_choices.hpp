// The choices of a CUDA plan, from facts about the device alone: no call to the device is made, so
// they are tested for devices that are not there.
#pragma once

#include "libmoe/cuda/backend.hpp"
#include "libmoe/plan/plan.hpp"

namespace moe {

// The problem whose candidates a plan needs; the fields of a CUDA plan are left empty.
Problem problem_of(const moe_plan& plan);

// Needs the layout, the types and the device's facts. Fills in placement, setup and candidates.
void choose_cuda_kernels(moe_plan& plan, const cuda::NominalRates& rates, const char* filter);

}  // namespace moe
