// The exact GEMM: any packed type and shape in float32 on the ordinary cores, with nothing rounded
// before the output. It has no speed target.
#pragma once

#include "libmoe/cuda/device_facts.hpp"
#include "libmoe/cuda/gemm_args.hpp"
#include "libmoe/cuda/launch_plan.hpp"

namespace moe::cuda {

constexpr TileRule exact_tiles{16, 1, INT32_MAX};

// One launch on `stream`.
void run_exact(const DeviceFacts& device, const GemmArgs& gemm, const KernelName& name,
               cudaStream_t stream);
void prepare_exact();

}  // namespace moe::cuda
