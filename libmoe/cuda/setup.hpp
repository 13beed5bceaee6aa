// What the CUDA backend needs to know of a plan.
#pragma once

#include <cstdint>

#include "libmoe/cuda/device_facts.hpp"
#include "libmoe/cuda/router/logits_library.hpp"
#include "libmoe/weights/device_weights.hpp"

namespace moe::cuda {

// The kernel families of products, of the routed experts and of finish.
enum class Family : uint8_t { exact, generic_bf16, generic_f16, grouped, sm90_gemv, sm80_gemv };

// The family of a stage, and up to how many tokens go the way of one_token instead.
struct Families {
    int32_t gemv_tokens = 0;
    bool gemv_is_portable = false;  // of those: one_token_portable
    Family usual = Family::exact;
};

// What kernels read where a call has nothing of its own to point to.
struct DeviceConstants {
    const int32_t* zero = nullptr;
    const float* one = nullptr;
};

struct Setup {
    DeviceFacts device;
    const Layer* layer = nullptr;
    const Slice* slice = nullptr;
    const int32_t* local_of = nullptr;  // slice->local_of on the device; null: every id is local
    DeviceConstants constants;
    bool down_bias_in_finish = false;
    bool partial = false;
    bool unfused = false;
    bool batch_invariant = false;  // a token's bits do not depend on the others of the call
    bool is_gate_up_fused = false;
    bool is_shared_gate_up_fused = false;
    bool shared_joins = false;  // forward runs the shared expert as one more slot of every token
    moe_type x_type = MOE_TYPE_NONE;
    moe_type router_input_type = MOE_TYPE_NONE;
    moe_type router_type = MOE_TYPE_NONE;  // of the router's weights on the device
    moe_type out_type = MOE_TYPE_NONE;
    moe_type intermediate_type = MOE_TYPE_NONE;
    Families experts;
    Families finish;
    int64_t chunk_tokens = 0;
    LogitsLibrary logits_library;
};

}  // namespace moe::cuda
