// The table of the CPU. A family of gemv kernels takes every matrix of a stage by its own format,
// so that formats may differ: what it has no kernel for is decoded row by row. The gemm kernels
// take those matrices that have panels, and the tiles of AMX those panels that suit them.
#include "libmoe/plan/cpu_candidates.hpp"

#include "libmoe/cpu/gemv/mlp_gemv.hpp"
#include "libmoe/cpu/gemv/weights.hpp"
#include "libmoe/formats/format.hpp"

namespace moe {
namespace {

using cpu::Arithmetic;
using Has = bool cpu::InstructionSets::*;
using Sets = cpu::InstructionSets;

// The matrices of a stage, with the projections into and out of the latent.
constexpr moe_role of_experts[] = {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN, MOE_ROLE_LATENT_IN};
constexpr moe_role of_finish[] = {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP, MOE_ROLE_SHARED_DOWN,
                                  MOE_ROLE_LATENT_OUT};

const Reason* always(const Problem&) {
    return nullptr;
}

const Reason* in_f64(const Problem& problem) {
    return problem.intermediate_type == MOE_TYPE_F64 ? nullptr : &reasons::intermediate_type;
}

bool is_down(moe_role role) {
    return role == MOE_ROLE_DOWN || role == MOE_ROLE_SHARED_DOWN;
}

cpu::GemvFormat format_of(const Problem& problem, moe_role role) {
    return gemv_format_in(*problem.layout, problem.layout->formats[role]);
}

cpu::GemmKernels panels_of(const Problem& problem, Arithmetic arithmetic, moe_role role) {
    const moe_format& format = problem.layout->formats[role];
    if (format.pre_quant_scale || format.nested_scales) return {};
    return cpu::gemm_kernels(*cpu::gemv_family(arithmetic), format_of(problem, role),
                             rows_before(problem, arithmetic, role, true));
}

// 0: one of them has no panels, or none is there.
int64_t rows_for_panels(const Problem& problem, Arithmetic arithmetic,
                        std::initializer_list<moe_role> roles) {
    int64_t most = 0;
    for (const moe_role role : roles) {
        if (!problem.layout->needs(role)) continue;
        const cpu::GemmKernels panels = panels_of(problem, arithmetic, role);
        if (!panels.dequantize) return 0;
        most = std::max(most, panels.min_rows);
    }
    return most;
}

// Does AMX multiply the panels of a matrix of the stage?
bool has_tiles(const Problem& problem, moe_stage stage) {
    const auto& roles = stage == MOE_STAGE_EXPERTS ? of_experts : of_finish;
    return cpu::gemv_family(Arithmetic::gemv_amx) &&
           std::any_of(std::begin(roles), std::end(roles), [&](moe_role role) {
               return problem.layout->needs(role) &&
                      panels_of(problem, Arithmetic::gemv_amx, role).enter != nullptr;
           });
}

template <Has has, moe_stage stage>
const Reason* dense_simd(const Problem& problem) {
    if (!(problem.instructions.*has)) return &reasons::isa;
    const bool dense =
        all_matrices(problem, stage == MOE_STAGE_EXPERTS ? of_experts : of_finish, is_plain);
    return dense ? in_f32(problem) : &reasons::weight_type;
}

template <Has has, Arithmetic arithmetic, moe_stage stage>
const Reason* cpu_gemv(const Problem& problem) {
    if (!(problem.instructions.*has) || !cpu::gemv_family(arithmetic)) return &reasons::isa;
    const Layer& layer = problem.layout->layer;
    if (stage == MOE_STAGE_FINISH && !layer.shared_intermediate && !layer.latent)
        return &reasons::unneeded;
    // I8MM has no products of float32 activations: these kernels are NEON's.
    const auto is_of_neon = [&](const moe_format& format) {
        return arithmetic == Arithmetic::gemv_i8mm &&
               !cpu::gemv_family(arithmetic)->kernels(gemv_format_in(*problem.layout, format), 2);
    };
    const auto& roles = stage == MOE_STAGE_EXPERTS ? of_experts : of_finish;
    if (all_matrices(problem, roles, is_of_neon)) return &reasons::weight_type;
    // Where every matrix is decoded, products of float32 rows save nothing that plain loops lose.
    const auto is_unread = [&](const moe_format& format) {
        return !cpu::reads(*cpu::gemv_family(arithmetic), gemv_format_in(*problem.layout, format));
    };
    const bool has_matrices =
        !all_matrices(problem, roles, [](const moe_format&) { return false; });
    if (has_matrices && all_matrices(problem, roles, is_unread)) return &reasons::weight_type;
    return in_f32(problem);
}

// The gemm kernels beside the gemv kernels of the same family: they sum in another order.
template <Has has, Arithmetic arithmetic, moe_stage stage>
const Reason* cpu_gemm(const Problem& problem) {
    if (const Reason* reason = cpu_gemv<has, arithmetic, stage>(problem)) return reason;
    if (problem.batch_invariant) return &reasons::batch_invariant;
    const cpu::PanelRows rows = panel_rows_of(problem, arithmetic, stage);
    if (!rows.least()) return &reasons::weight_type;
    if (problem.max_tokens < rows.least()) return &reasons::few_tokens;
    return problem.has_room_for_panels ? nullptr : &reasons::workspace;
}

// The same for the tiles of AMX, where they multiply a matrix of the stage: the other panels are
// left to AVX-512. Permission is requested last, by a plan that would use them.
template <moe_stage stage>
const Reason* cpu_gemm_amx(const Problem& problem) {
    if (const Reason* reason = cpu_gemm<&Sets::amx, Arithmetic::gemv_amx, stage>(problem))
        return reason;
    if (!has_tiles(problem, stage)) return &reasons::weight_type;
    return problem.instructions.may_use_tiles() ? nullptr : &reasons::isa;
}

template <Check check, Arithmetic arithmetic, moe_stage stage>
constexpr Row gemm_row(const char* architecture) {
    return {.stage = stage,
            .check = check,
            .arithmetic = arithmetic,
            .tokens = Tokens::many_rows,
            .words = {architecture, "", "gemm"}};
}

template <Has has, Arithmetic arithmetic, moe_stage stage>
constexpr Row gemv_row(const char* architecture) {
    return {.stage = stage,
            .check = cpu_gemv<has, arithmetic, stage>,
            .arithmetic = arithmetic,
            .words = {architecture, "", "gemv"}};
}

constexpr std::string_view avx512vnni = "avx512vnni";

template <moe_stage stage>
constexpr Row amx_row = gemm_row<cpu_gemm_amx<stage>, Arithmetic::gemv_amx, stage>("amx");
template <moe_stage stage>
constexpr Row avx2_gemm_row = gemm_row<cpu_gemm<&Sets::avx2, Arithmetic::gemv_avx2, stage>,
                                       Arithmetic::gemv_avx2, stage>("avx2");
template <moe_stage stage>
constexpr Row avx512vnni_gemm_row =
    gemm_row<cpu_gemm<&Sets::avx512vnni, Arithmetic::gemv_avx512vnni, stage>,
             Arithmetic::gemv_avx512vnni, stage>(avx512vnni.data());
template <moe_stage stage>
constexpr Row avx512vnni_gemv_row =
    gemv_row<&Sets::avx512vnni, Arithmetic::gemv_avx512vnni, stage>(avx512vnni.data());
template <moe_stage stage>
constexpr Row avx2_gemv_row = gemv_row<&Sets::avx2, Arithmetic::gemv_avx2, stage>("avx2");
template <moe_stage stage>
constexpr Row neon_row = gemv_row<&Sets::neon, Arithmetic::gemv_neon, stage>("neon");
template <moe_stage stage>
constexpr Row i8mm_row = gemv_row<&Sets::i8mm, Arithmetic::gemv_i8mm, stage>("i8mm");

// <arch>_<weight>_<activation>_<stage>[_variant]; dense is f32, f16 and bf16. Those of gemv and
// gemm get their names from the weights.
constexpr Row table[] = {
    {"cpu_any_f32_route_ref", MOE_STAGE_ROUTE, always},
    {"cpu_any_f32_dispatch_ref", MOE_STAGE_DISPATCH, always},
    avx512vnni_gemv_row<MOE_STAGE_EXPERTS>,
    amx_row<MOE_STAGE_EXPERTS>,
    avx512vnni_gemm_row<MOE_STAGE_EXPERTS>,
    {"avx512_dense_f32_experts", MOE_STAGE_EXPERTS, dense_simd<&Sets::avx512, MOE_STAGE_EXPERTS>,
     Arithmetic::avx512},
    i8mm_row<MOE_STAGE_EXPERTS>,
    neon_row<MOE_STAGE_EXPERTS>,
    avx2_gemv_row<MOE_STAGE_EXPERTS>,
    avx2_gemm_row<MOE_STAGE_EXPERTS>,
    {"avx2_dense_f32_experts", MOE_STAGE_EXPERTS, dense_simd<&Sets::avx2, MOE_STAGE_EXPERTS>,
     Arithmetic::avx2},
    {"cpu_any_f32_experts_ref", MOE_STAGE_EXPERTS, in_f32},
    {"cpu_any_f64_experts_ref", MOE_STAGE_EXPERTS, in_f64, Arithmetic::ref_f64},
    {"cpu_any_f32_combine_ref", MOE_STAGE_COMBINE, in_f32},
    {"cpu_any_f64_combine_ref", MOE_STAGE_COMBINE, in_f64, Arithmetic::ref_f64},
    avx512vnni_gemv_row<MOE_STAGE_FINISH>,
    amx_row<MOE_STAGE_FINISH>,
    avx512vnni_gemm_row<MOE_STAGE_FINISH>,
    {"avx512_dense_f32_finish", MOE_STAGE_FINISH, dense_simd<&Sets::avx512, MOE_STAGE_FINISH>,
     Arithmetic::avx512},
    i8mm_row<MOE_STAGE_FINISH>,
    neon_row<MOE_STAGE_FINISH>,
    avx2_gemv_row<MOE_STAGE_FINISH>,
    avx2_gemm_row<MOE_STAGE_FINISH>,
    {"avx2_dense_f32_finish", MOE_STAGE_FINISH, dense_simd<&Sets::avx2, MOE_STAGE_FINISH>,
     Arithmetic::avx2},
    {"cpu_any_f32_finish_ref", MOE_STAGE_FINISH, in_f32},
    {"cpu_any_f64_finish_ref", MOE_STAGE_FINISH, in_f64, Arithmetic::ref_f64},
};

const char* activation_in_panels(const cpu::GemmKernels& panels, const cpu::Quantization& rows) {
    constexpr const char* of_parts[] = {"f32", "int8", "int8x2", "int8x3"};
    switch (panels.rows) {
        case cpu::RowForm::integers:
        case cpu::RowForm::words:
            return of_parts[rows.parts];
        case cpu::RowForm::bf16:
            return "bf16";
        default:
            return of_parts[0];
    }
}

const char* activation_of_gemv(const cpu::Quantization& rows) {
    constexpr const char* of_parts[] = {"f32", "int8", "int8x2", "int8x3"};
    if (rows.parts) return of_parts[rows.parts];
    return rows.has_bf16_pair ? "bf16x2" : rows.has_bf16 ? "bf16" : of_parts[0];
}

// Those of a row with the activations as its kernel takes them before a matrix.
KernelWords words_for(const KernelWords& of_row, Arithmetic arithmetic, const Problem& problem,
                      moe_role role) {
    KernelWords words = of_row;
    words.activation = "f32";
    if (!cpu::gemv_family(arithmetic) || !problem.layout->needs(role)) return words;
    const cpu::GemmKernels panels =
        of_row.family == "gemm" ? panels_of(problem, arithmetic, role) : cpu::GemmKernels{};
    const cpu::Quantization rows =
        rows_before(problem, arithmetic, role, panels.dequantize != nullptr);
    words.activation =
        panels.dequantize ? activation_in_panels(panels, rows) : activation_of_gemv(rows);
    return words;
}

// The same with the family that takes the matrix in its place: gemv kernels where gemm kernels have
// no panels of it but of another, and AVX-512 where AMX has tiles for another.
KernelWords words_of_stage(const Row& row, const Problem& problem, moe_role role) {
    KernelWords words = words_for(row.words, row.arithmetic, problem, role);
    const bool is_gemm = row.tokens == Tokens::many_rows && cpu::gemv_family(row.arithmetic);
    if (!is_gemm || !problem.layout->needs(role)) return words;
    const cpu::GemmKernels panels = panels_of(problem, row.arithmetic, role);
    const bool is_amx = row.arithmetic == Arithmetic::gemv_amx;
    if (is_amx && !panels.enter && has_tiles(problem, row.stage)) words.architecture = avx512vnni;
    if (!panels.dequantize && panel_rows_of(problem, row.arithmetic, row.stage).least())
        words.family = "gemv";
    return words;
}

}  // namespace

std::span<const Row> cpu_rows() {
    return table;
}

cpu::Quantization rows_before(const Problem& problem, Arithmetic arithmetic, moe_role role,
                              bool for_panels) {
    return rows_before(problem, arithmetic, role, problem.layout->formats[role], for_panels);
}

cpu::Quantization rows_before(const Problem& problem, Arithmetic arithmetic, moe_role role,
                              const moe_format& format, bool for_panels) {
    const moe_type type = is_down(role) ? problem.intermediate_type : problem.x_type;
    return cpu::quantization_for(
        *cpu::gemv_family(arithmetic), gemv_format_in(*problem.layout, format),
        {type, problem.quantizes_to_int8, for_panels, problem.instructions.avx512bf16,
         reads_computed_rows(problem.layout->layer, role),
         problem.layout->layer.latent && !is_down(role)});
}

cpu::PanelRows panel_rows_of(const Problem& problem, Arithmetic arithmetic, moe_stage stage) {
    if (!cpu::gemv_family(arithmetic)) return {};
    if (stage == MOE_STAGE_EXPERTS)
        return {
            rows_for_panels(problem, arithmetic, {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_LATENT_IN}),
            rows_for_panels(problem, arithmetic, {MOE_ROLE_DOWN})};
    return {rows_for_panels(problem, arithmetic,
                            {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP, MOE_ROLE_LATENT_OUT}),
            rows_for_panels(problem, arithmetic, {MOE_ROLE_SHARED_DOWN})};
}

MatrixKernels kernels_of_matrix(const Problem& problem, Arithmetic arithmetic, moe_role role) {
    const cpu::GemvFamily* family = cpu::gemv_family(arithmetic);
    if (!family) return {};
    const cpu::GemmKernels panels = panels_of(problem, arithmetic, role);
    return {!cpu::reads(*family, format_of(problem, role)), panels.dequantize != nullptr,
            panels.enter != nullptr};
}

void name_cpu_kernels(const Row& row, const Problem& problem, Candidate& candidate) {
    const WeightsLayout& layout = *problem.layout;
    const bool experts = row.stage == MOE_STAGE_EXPERTS;
    const moe_role gate = experts ? MOE_ROLE_GATE : MOE_ROLE_SHARED_GATE;
    const moe_role up = experts ? MOE_ROLE_UP : MOE_ROLE_SHARED_UP;
    const moe_role down = experts ? MOE_ROLE_DOWN : MOE_ROLE_SHARED_DOWN;
    candidate.gate_up = kernel_name(words_of_stage(row, problem, up),
                                    weight_of_gate_up(layout, gate, up).view(), "gate_up");
    candidate.down =
        kernel_name(words_of_stage(row, problem, down), weight_of(layout, down).view(), "down");
}

cuda::KernelName cpu_kernel_of_matrix(const Candidate& candidate, const Problem& problem,
                                      moe_role role) {
    if (candidate.words.architecture.empty()) return candidate.gate_up;
    return kernel_name(words_for(candidate.words, candidate.arithmetic, problem, role),
                       weight_of(*problem.layout, role).view(), "");
}

}  // namespace moe
