// Setup: the part of a plan that the CUDA backend reads.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>

#include "libmoe/cuda/kernel_types.hpp"
#include "libmoe/cuda/launch_plan.hpp"
#include "libmoe/cuda/router/logits_library.hpp"
#include "libmoe/cuda/rows.hpp"
#include "libmoe/weights/device_weights.hpp"

namespace moe::cuda {

// Kernels read these where a call has nothing of its own to point to.
struct DeviceConstants {
    const int32_t* zero = nullptr;
    const float* one = nullptr;
};

struct Setup {
    DeviceFacts device;
    const Layer* layer = nullptr;
    const Slice* slice = nullptr;
    const LaunchPlan* launch = nullptr;
    const int32_t* local_of = nullptr;  // slice->local_of on the device; null: every id is local
    DeviceConstants constants;
    bool down_bias_in_finish = false;
    bool partial = false;
    bool unfused = false;
    bool batch_invariant = false;  // a token's bits do not depend on the others of the call
    bool is_gate_up_fused = false;
    bool is_shared_gate_up_fused = false;
    bool has_gate_up_tables = false;  // of columns, of the routed experts
    bool has_down_tables = false;     // likewise
    bool has_folded_order = false;    // rows of gate and up lie in down's order of columns
    bool has_finish_tables = false;   // likewise, of what finish multiplies
    bool shared_joins = false;  // forward runs the shared expert as one more slot of every token
    moe_type x_type = MOE_TYPE_NONE;  // of E4M3 x BF16, as most kernels read it
    bool x_is_fp8 = false;
    moe_type router_input_type = MOE_TYPE_NONE;
    moe_type router_type = MOE_TYPE_NONE;  // of the router's weights on the device
    moe_type out_type = MOE_TYPE_NONE;
    moe_type intermediate_type = MOE_TYPE_NONE;
    std::array<PackedType, MOE_ROLE_COUNT>
        packed_types{};  // of the matrices; none: the layer has none
    // One scale serves each 128 rows, from the first on.
    std::array<bool, MOE_ROLE_COUNT> has_scale_of_128_rows{};
    Family experts = Family::exact;  // for more tokens than the gemv family takes
    Family finish = Family::exact;  // likewise, of the shared expert; and of the latent projections
    Family pre_activation = Family::exact;  // of rows that stop before the activation
    int64_t max_f32_y_elements = 0;         // of down's rows; beyond, they are bfloat16
    int64_t chunk_tokens = 0;
    LogitsLibrary logits_library;
};

// The type of down's output rows: float32, so that a row is not rounded before it is summed, unless
// there are so many that half of their bytes make combine faster.
inline moe_type y_type(const Setup& setup, int64_t n_slots) {
    const bool is_large = n_slots * setup.layer->expert_width() > setup.max_f32_y_elements;
    return is_large ? MOE_TYPE_BF16 : MOE_TYPE_F32;
}

// Do gate and up by this family take E4M3 x as it is? All others read its values.
inline bool takes_codes(const Setup& setup, Family family) {
    return setup.x_is_fp8 && family == Family::grouped_fp8;  // which has no tables of columns
}

// The work items of the portable grouped GEMM for the smaller matrix, if every expert has rows: one
// for 128 weight rows.
inline int64_t least_work_items(const Setup& setup) {
    const int64_t features = (setup.is_gate_up_fused ? 2 : 1) * setup.slice->intermediate_count;
    const int64_t rows = std::min<int64_t>(features, setup.layer->expert_width());
    return (rows + 127) / 128 * setup.slice->n_local;
}

// The traits of the routed experts' matrices, and of those of a shared expert that joins, whose
// types are the same.
inline MlpTraits mlp_traits(const Setup& setup, const TileChoice& tiles) {
    const int64_t least = int64_t{tiles.least_middle_items_of_sm} * setup.device.n_sms;
    const bool has_work = least_work_items(setup) >= least;
    const auto traits = [&](std::initializer_list<moe_role> roles,
                            std::initializer_list<moe_role> shared) {
        GemmTraits gemm{true, has_work, true};
        for (const moe_role role : shared)
            gemm.has_fp8_middle &= !setup.shared_joins || setup.has_scale_of_128_rows[role];
        for (const moe_role role : roles) {
            gemm.has_fp8_middle &= setup.has_scale_of_128_rows[role];
            const PackedType type = setup.packed_types[role];
            if (type == PackedType::none) continue;  // that of up where both are one matrix
            gemm.is_16_bit &= type == PackedType::bf16 || type == PackedType::f16;
            gemm.has_middle &= sm80_has_middle(type);
            gemm.has_fp8_middle &= fp8_has_middle(type);
        }
        return gemm;
    };
    MlpTraits mlp{traits({MOE_ROLE_GATE, MOE_ROLE_UP}, {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP}),
                  traits({MOE_ROLE_DOWN}, {MOE_ROLE_SHARED_DOWN})};
    mlp.gate_up.has_fp8_middle &= setup.layer->activation.kind == MOE_ACTIVATION_SILU;
    return mlp;
}

// Rows of the experts of a chunk of n_tokens tokens, every expert padded; with a row of every token
// for a shared expert that joins.
inline int64_t row_capacity(const Setup& setup, int64_t n_tokens) {
    const int64_t n = n_tokens < setup.chunk_tokens ? n_tokens : setup.chunk_tokens;
    const int64_t shared = setup.shared_joins ? 1 : 0;
    return most_rows(n * (setup.layer->top_k + shared),
                     setup.slice->n_local + static_cast<int32_t>(shared));
}

}  // namespace moe::cuda
