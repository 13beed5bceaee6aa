// A finished launch of the gemv family: plan/ decides it, run_gemv carries it out.
#pragma once

#include "libmoe/cuda/device_facts.hpp"
#include "libmoe/cuda/gemv/gemv_tiling.hpp"
#include "libmoe/cuda/kernel_name.hpp"

namespace moe::cuda {

struct GemvLaunch {
    Architecture kernels = Architecture::sm80;  // sm90: bulk copies; sm80: cp.async
    // Where gate and up are not fused, gate_up is the gate alone. Else up_type is none.
    PackedType gate_up_type = PackedType::none;
    PackedType up_type = PackedType::none;
    PackedType down_type = PackedType::none;
    bool gathers_x = false;  // by the table of columns of gate and up
    bool gathers_h = false;  // by that of down
    GemvTiling gate_up;
    GemvTiling up;
    GemvTiling down;
    int64_t prefetch_bytes =
        0;  // of the shared expert's weights, fetched into the L2 during the router
    KernelName gate_up_name;
    KernelName up_name;
    KernelName down_name;
    // prepare_gemv fills these in.
    const void* gate_up_function = nullptr;
    const void* up_function = nullptr;
    const void* down_function = nullptr;
    float h_scale = 1.0f;  // 2^h_exponent of down's kernel
};

}  // namespace moe::cuda
