// The parameter of Hopper's grouped kernels (sm90_grouped_gemm.cuh).
#pragma once

#include "libmoe/cuda/dequant/grid_records.hpp"
#include "libmoe/cuda/gemm_args.hpp"

namespace moe::cuda {

struct Sm90Call : GemmArgs {
    GridRecords records;       // of weights, if they are a grid
    const float* gate_values;  // of GateValues
    int64_t gate_stride;
};

}  // namespace moe::cuda
