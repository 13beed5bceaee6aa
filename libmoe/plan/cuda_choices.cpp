// The choices of a CUDA plan: kernels, families, what joins. cuda_choices.hpp.
#include "libmoe/plan/cuda_choices.hpp"

#include "libmoe/cuda/kernel_types.hpp"
#include "libmoe/plan/cost.hpp"
#include "libmoe/plan/launch_plan.hpp"
#include "libmoe/weights/weights.hpp"

namespace moe {
namespace {

// Up to how many tokens the gemv family can take the matrices, and is worth it. takes_rows_alone:
// its kernels make the rows of slots and never their sums.
GemvRange gemv_range(const moe_plan& plan, const cuda::NominalRates& nominal,
                     const GemvProblem& problem, const ExpertWork& work, bool takes_rows_alone) {
    const cuda::DeviceFacts& device = plan.cuda.device;
    const GemvTuning tuning = tuning_of(device).gemv;
    const int32_t sums = max_gemv_tokens(device, problem, tuning);
    const int32_t can =
        takes_rows_alone ? max_row_gemv_tokens(device, problem, tuning, sums) : sums;
    // The portable kernels, which run elsewhere and for float16 with other types, have no predicted
    // time.
    const bool has_pair = problem.up.type != PackedType::none;
    const bool in_f16 = cuda::grouped_in_f16_supports(problem.gate_up.type) &&
                        (!has_pair || cuda::grouped_in_f16_supports(problem.up.type)) &&
                        cuda::grouped_in_f16_supports(problem.down.type);
    const bool has_grouped =
        has_hopper_instructions(device.architecture()) && (plan.x_type != MOE_TYPE_F16 || in_f16);
    const DeviceRates rates = has_grouped ? DeviceRates(nominal) : DeviceRates(0, 0, 0);
    return {can, gemv_tokens_worth(problem.gate_up.type, work, rates, can), sums > can && can == 0};
}

// Can forward treat the shared expert as one more slot of every token? Its weights lie as if it
// were one more local expert; the rest must be alike, too, and nothing may be by expert.
bool shared_can_join(const moe_plan& plan) {
    const Layer& layer = plan.layout.layer;
    const bool has_biases = layer.has_gate_bias || layer.has_up_bias || layer.has_down_bias;
    return plan.placement.shared_follows && layer.activation == layer.shared_activation &&
           !has_biases && !layer.latent && !layer.has_expert_norm && !layer.weight_on_input &&
           !plan.partial && !plan.unfused && layer.top_k < 64 && layer.n_experts < 4096;
}

GemvRange gemv_range_of_experts(const moe_plan& plan, const cuda::NominalRates& rates) {
    const ExpertWork work = work_of_experts(plan, plan.placement, shared_can_join(plan));
    return gemv_range(plan, rates, gemv_problem(plan, false, work.n_slots), work,
                      plan.layout.layer.has_expert_norm);
}

GemvRange gemv_range_of_shared(const moe_plan& plan, const cuda::NominalRates& rates) {
    const ExpertWork work = work_of_shared(plan, plan.placement);
    return gemv_range(plan, rates, gemv_problem(plan, true, work.n_slots), work, false);
}

// Does one scale serve each 128 rows of the matrix, from its first row in the plan on? The second
// half of a fused tensor begins inside of a group where the first one ends there; 64 rows are
// enough there, since eight packed tiles have 64 features of gate and of up.
bool has_scale_of_128_rows(const WeightsLayout& layout, moe_role role) {
    const bool is_shared = role == MOE_ROLE_SHARED_GATE || role == MOE_ROLE_SHARED_UP;
    const bool is_routed = role == MOE_ROLE_GATE || role == MOE_ROLE_UP;
    const int64_t first = is_routed   ? layout.slice.intermediate_begin
                          : is_shared ? layout.slice.shared_begin
                                      : 0;
    const moe_format& format = layout.formats[role];
    if (format.group_rows < 0) return true;
    const bool begins_with_one =
        first % 128 == 0 && (!may_be_fused(role) || layout.layer.role_shape(role).rows % 64 == 0);
    return format.group_rows % 128 == 0 && begins_with_one;
}

void fill_cuda_setup(moe_plan& plan) {
    cuda::Setup& setup = plan.cuda;
    const DevicePlacement& placement = plan.placement;
    setup.layer = &plan.layout.layer;
    setup.slice = &plan.layout.slice;
    setup.down_bias_in_finish = plan.layout.down_bias_in_finish();
    setup.partial = plan.partial;
    setup.unfused = plan.unfused;
    setup.batch_invariant = plan.batch_invariant;
    setup.is_gate_up_fused = placement.is_gate_up_fused;
    const auto has_table = [&](moe_role role) {
        return placement.matrices[role].gathered() != ColumnTable::none;
    };
    setup.has_gate_up_tables = has_table(MOE_ROLE_GATE) || has_table(MOE_ROLE_UP);
    setup.has_down_tables = has_table(MOE_ROLE_DOWN);
    setup.has_folded_order = placement.matrices[MOE_ROLE_DOWN].is_folded;
    for (const moe_role role : {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP, MOE_ROLE_SHARED_DOWN,
                                MOE_ROLE_LATENT_IN, MOE_ROLE_LATENT_OUT})
        setup.has_finish_tables |= has_table(role);
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        setup.packed_types[i] = placement.matrices[i].type;
        setup.has_scale_of_128_rows[i] =
            has_scale_of_128_rows(plan.layout, static_cast<moe_role>(i));
    }
    setup.is_shared_gate_up_fused = placement.is_shared_gate_up_fused;
    setup.x_type = plan.type_of_x_values();
    setup.x_is_fp8 = plan.x_type == MOE_TYPE_F8_E4M3;
    setup.router_input_type = plan.router_input_type;
    setup.router_type = placement.router_type;
    setup.out_type = plan.out_type;
    setup.intermediate_type = plan.intermediate_type;
}

// The families of more tokens; and whether the shared expert joins the routed ones.
void choose_cuda_families(moe_plan& plan) {
    cuda::Setup& setup = plan.cuda;
    setup.experts = plan.chosen(MOE_STAGE_EXPERTS).family;
    setup.finish = plan.chosen(MOE_STAGE_FINISH).family;
    // Hopper's grouped GEMM has no epilogue that ends before the activation.
    setup.pre_activation =
        setup.experts == cuda::Family::grouped || setup.experts == cuda::Family::grouped_fp8
            ? cuda::Family::sm80_grouped_bf16
        : setup.experts == cuda::Family::grouped_f16 ? cuda::Family::sm80_grouped_f16
                                                     : setup.experts;
    const auto has_gemv = [&](moe_stage stage) {
        return plan.chosen(stage, 1).tokens == Tokens::small_batch;
    };
    const bool same_families =
        setup.experts == setup.finish && has_gemv(MOE_STAGE_EXPERTS) == has_gemv(MOE_STAGE_FINISH);
    setup.shared_joins = same_families && shared_can_join(plan);
    const bool may_be_bf16 = setup.experts == cuda::Family::grouped ||
                             setup.experts == cuda::Family::grouped_fp8 ||
                             setup.experts == cuda::Family::sm80_grouped_bf16;
    // A norm of the rows would round them again.
    const bool may_round_y = may_be_bf16 && !plan.batch_invariant && !setup.layer->has_expert_norm;
    setup.max_f32_y_elements =
        may_round_y ? tuning_of(setup.device).grouped.max_f32_y_elements : INT64_MAX;
}

}  // namespace

Problem problem_of(const moe_plan& plan) {
    Problem problem{};
    problem.layout = &plan.layout;
    problem.x_type = plan.type_of_x_values();
    problem.intermediate_type = plan.intermediate_type;
    problem.unfused = plan.unfused;
    problem.max_tokens = plan.max_tokens;
    problem.has_room_for_panels =
        !plan.max_workspace_bytes ||
        plan.max_workspace_bytes / 4 >=
            static_cast<uint64_t>(plan.setup.n_workers * cpu::gemm_scratch_bytes);
    problem.batch_invariant = plan.batch_invariant;
    problem.quantizes_to_int8 = plan.quantizes_to_int8;
    problem.quantizes_to_fp8 = plan.quantizes_to_fp8;
    problem.instructions = plan.instructions;
    return problem;
}

void choose_cuda_kernels(moe_plan& plan, const cuda::NominalRates& rates, const char* filter) {
    plan.placement = lay_out_on_device(plan.layout);
    fill_cuda_setup(plan);
    Problem problem = problem_of(plan);
    problem.cuda = &plan.cuda;
    problem.gemv_experts = gemv_range_of_experts(plan, rates);
    problem.gemv_finish = gemv_range_of_shared(plan, rates);
    plan.candidates = choose_candidates(plan.runtime->memory, problem, filter);
    choose_cuda_families(plan);
}

}  // namespace moe
