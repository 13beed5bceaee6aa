// The kernels that a plan may launch are loaded when it is made, so that the first forward of a
// process can be captured. No other families and types are.
#include <initializer_list>

#include "libmoe/cuda/activation/activate.hpp"
#include "libmoe/cuda/backend.hpp"
#include "libmoe/cuda/combine/combine.hpp"
#include "libmoe/cuda/dispatch/caller_rows.hpp"
#include "libmoe/cuda/dispatch/dispatch.hpp"
#include "libmoe/cuda/dispatch/gather_columns.hpp"
#include "libmoe/cuda/exact/exact.hpp"
#include "libmoe/cuda/gemv/gather_slots.hpp"
#include "libmoe/cuda/gemv/gemv.hpp"
#include "libmoe/cuda/grouped_gemm/grouped_gemm.hpp"
#include "libmoe/cuda/router/router.hpp"

namespace moe::cuda {
namespace {

void prepare_family(const Setup& setup, Family family, std::initializer_list<moe_role> roles) {
    switch (family) {
        case Family::exact:
            return prepare_exact();
        case Family::sm80_grouped_bf16:
        case Family::sm80_grouped_f16:
            prepare_activate();
            for (const moe_role role : roles) {
                const PackedType type = setup.packed_types[role];
                if (type == PackedType::none) continue;
                prepare_sm80_grouped_gemm(setup.device, type, MOE_TYPE_BF16);
                if (setup.x_type == MOE_TYPE_F16)
                    prepare_sm80_grouped_gemm(setup.device, type, MOE_TYPE_F16);
            }
            return;
        case Family::grouped:
        case Family::grouped_f16:
            for (const moe_role role : roles) {
                const PackedType type = setup.packed_types[role];
                prepare_grouped_gemm(type, MOE_TYPE_BF16);
                if (setup.x_type == MOE_TYPE_F16) prepare_grouped_gemm(type, MOE_TYPE_F16);
            }
            return;
        case Family::grouped_fp8:
            for (const moe_role role : roles) prepare_fp8_grouped_gemm(setup.packed_types[role]);
            return;
        default:
            return;
    }
}

}  // namespace

void prepare(const Setup& setup, LaunchPlan& launch) {
    prepare_router(setup);
    prepare_dispatch();
    prepare_caller_rows();
    if (setup.x_is_fp8) prepare_dequantize_rows();
    if (setup.has_gate_up_tables || setup.has_down_tables || setup.has_finish_tables ||
        setup.has_folded_order)
        prepare_gather_columns();
    prepare_combine();
    const std::initializer_list<moe_role> experts = {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN};
    prepare_family(setup, setup.experts, experts);
    prepare_family(setup, setup.pre_activation, experts);
    prepare_family(setup, setup.finish,
                   {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP, MOE_ROLE_SHARED_DOWN,
                    MOE_ROLE_LATENT_IN, MOE_ROLE_LATENT_OUT});
    for (GemvLaunches* launches : {&launch.experts_gemv, &launch.expert_rows_gemv,
                                   &launch.experts_and_shared_gemv, &launch.shared_gemv})
        for (GemvLaunch& one : launches->all) prepare_gemv(setup.device, one);
    if (launch.experts_gemv.max_tokens || launch.expert_rows_gemv.max_tokens ||
        launch.shared_gemv.max_tokens)
        prepare_gather_slots();
}

}  // namespace moe::cuda
