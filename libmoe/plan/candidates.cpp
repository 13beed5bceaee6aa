// The tables, and the choice.
#include "libmoe/plan/candidates.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "libmoe/base/error.hpp"
#include "libmoe/cpu/features.hpp"
#include "libmoe/cpu/gemv/mlp_gemv.hpp"
#include "libmoe/cpu/gemv/weights.hpp"
#include "libmoe/cpu/tile_permission.hpp"
#include "libmoe/cuda/kernel_types.hpp"
#include "libmoe/formats/format.hpp"
#include "libmoe/plan/kernel_filter.hpp"

namespace moe {
namespace {

using cpu::Arithmetic;
using cuda::Family;
using Check = const Reason* (*)(const Problem&);  // null: applies

struct Row {
    const char* cpu_name = nullptr;  // of a CPU row; the words make the names of CUDA's
    moe_stage stage;
    Check check;
    Arithmetic arithmetic = Arithmetic::ref_f32;
    Family family = Family::exact;
    Tokens tokens = Tokens::any;
    KernelWords words{};
};

constexpr moe_role expert_matrices[] = {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN};
constexpr moe_role dense_matrices[] = {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP,
                                       MOE_ROLE_SHARED_DOWN, MOE_ROLE_LATENT_IN,
                                       MOE_ROLE_LATENT_OUT};

const Reason* always(const Problem&) {
    return nullptr;
}

const Reason* in_f32(const Problem& problem) {
    return problem.intermediate_type == MOE_TYPE_F64 ? &reasons::intermediate_type : nullptr;
}

const Reason* in_f64(const Problem& problem) {
    return problem.intermediate_type == MOE_TYPE_F64 ? nullptr : &reasons::intermediate_type;
}

// Does what holds of a format hold of every matrix that the layout needs?
template <class Holds>
bool all_matrices(const Problem& problem, std::span<const moe_role> roles, Holds holds) {
    return std::all_of(roles.begin(), roles.end(), [&](moe_role role) {
        return !problem.layout->needs(role) || holds(problem.layout->formats[role]);
    });
}

// --- CPU --------------------------------------------------------------------------------------

constexpr moe_role experts_and_latent[] = {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN,
                                           MOE_ROLE_LATENT_IN};
constexpr moe_role finish_matrices[] = {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP,
                                        MOE_ROLE_SHARED_DOWN, MOE_ROLE_LATENT_OUT};

// The CPU's stages have the projections into and out of the latent in them.
template <moe_stage stage, class Check>
bool all_of_cpu_stage(const Problem& problem, Check check) {
    return stage == MOE_STAGE_EXPERTS ? all_matrices(problem, experts_and_latent, check)
                                      : all_matrices(problem, finish_matrices, check);
}

template <bool (*has_isa)(), moe_stage stage>
const Reason* dense_simd(const Problem& problem) {
    if (!has_isa()) return &reasons::isa;
    const bool dense = all_of_cpu_stage<stage>(problem, is_plain);
    return dense ? in_f32(problem) : &reasons::weight_type;
}

cpu::GemvFormat format_of(const Problem& problem, const moe_format& format) {
    return gemv_format_in(*problem.layout, format);
}

// Every matrix of the stage by its own format, so that they may differ.
template <bool (*has_isa)(), Arithmetic arithmetic, moe_stage stage>
const Reason* cpu_gemv(const Problem& problem) {
    if (!has_isa() || !cpu::gemv_family(arithmetic)) return &reasons::isa;
    const Layer& layer = problem.layout->layer;
    if (stage == MOE_STAGE_FINISH && !layer.shared_intermediate && !layer.latent)
        return &reasons::unneeded;
    const auto is_read = [&](const moe_format& format) {
        return cpu::reads(*cpu::gemv_family(arithmetic), format_of(problem, format));
    };
    // Of float32 activations I8MM has no products: these kernels are NEON's.
    const auto is_of_neon = [&](const moe_format& format) {
        return arithmetic == Arithmetic::gemv_i8mm &&
               !cpu::gemv_family(arithmetic)->kernels(format_of(problem, format), 2);
    };
    if (all_of_cpu_stage<stage>(problem, is_of_neon)) return &reasons::weight_type;
    const bool all_read = all_of_cpu_stage<stage>(problem, is_read);
    return all_read ? in_f32(problem) : &reasons::weight_type;
}

// The rows of matrices as the kernels of a family want them.
cpu::Quantization rows_of(const Problem& problem, Arithmetic arithmetic, moe_role role,
                          moe_type type, bool for_panels) {
    return cpu::quantization_for(
        *cpu::gemv_family(arithmetic), format_of(problem, problem.layout->formats[role]), type,
        problem.quantizes_to_int8, for_panels, reads_computed_rows(problem.layout->layer, role));
}

// The rows from which on the panels of every matrix of a stage pay.
int64_t min_panel_rows(const Problem& problem, Arithmetic arithmetic, moe_stage stage) {
    int64_t most = 0;
    const auto add = [&](std::initializer_list<moe_role> roles, moe_type type) {
        for (const moe_role role : roles) {
            if (!problem.layout->needs(role)) continue;
            const cpu::Quantization rows = rows_of(problem, arithmetic, role, type, true);
            const auto format = format_of(problem, problem.layout->formats[role]);
            most = std::max(
                most, cpu::gemm_kernels(*cpu::gemv_family(arithmetic), format, rows).min_rows);
        }
    };
    if (stage == MOE_STAGE_EXPERTS) {
        add({MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_LATENT_IN}, problem.x_type);
        add({MOE_ROLE_DOWN}, problem.intermediate_type);
    } else {
        add({MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP, MOE_ROLE_LATENT_OUT}, problem.x_type);
        add({MOE_ROLE_SHARED_DOWN}, problem.intermediate_type);
    }
    return most;
}

// The gemm kernels beside the gemv kernels of the same family: they sum in another order.
template <bool (*has_isa)(), Arithmetic arithmetic, moe_stage stage>
const Reason* cpu_gemm(const Problem& problem) {
    if (const Reason* reason = cpu_gemv<has_isa, arithmetic, stage>(problem)) return reason;
    if (problem.batch_invariant) return &reasons::batch_invariant;
    if (problem.max_tokens < min_panel_rows(problem, arithmetic, stage))
        return &reasons::few_tokens;
    if (!problem.has_room_for_panels) return &reasons::workspace;
    const auto has_panels = [&](const moe_format& format) {
        if (format.pre_quant_scale || format.nested_scales) return false;
        const cpu::Quantization in_any_form{2, 0, true, true};
        return nullptr != cpu::gemm_kernels(*cpu::gemv_family(arithmetic),
                                            format_of(problem, format), in_any_form)
                              .dequantize;
    };
    return all_of_cpu_stage<stage>(problem, has_panels) ? nullptr : &reasons::weight_type;
}

// Do the tiles of AMX multiply the panels of a matrix? They leave some to AVX-512.
bool has_tiles_for(const Problem& problem, moe_role role, moe_type type) {
    constexpr Arithmetic arithmetic = Arithmetic::gemv_amx;
    const cpu::Quantization rows = rows_of(problem, arithmetic, role, type, true);
    return cpu::gemm_kernels(*cpu::gemv_family(arithmetic),
                             format_of(problem, problem.layout->formats[role]), rows)
        .enter;
}

// The same for the tiles of AMX, where they multiply up; down may be left to AVX-512. Permission is
// requested last, by a plan that would use them.
template <moe_stage stage>
const Reason* cpu_gemm_amx(const Problem& problem) {
    constexpr moe_role up = stage == MOE_STAGE_EXPERTS ? MOE_ROLE_UP : MOE_ROLE_SHARED_UP;
    if (const Reason* reason = cpu_gemm<cpu::has_amx, Arithmetic::gemv_amx, stage>(problem))
        return reason;
    if (!problem.layout->needs(up) || !has_tiles_for(problem, up, problem.x_type))
        return &reasons::weight_type;
    return cpu::may_use_tiles() ? nullptr : &reasons::isa;
}

template <Check check, Arithmetic arithmetic, moe_stage stage>
constexpr Row cpu_gemm_row(const char* architecture) {
    return {.stage = stage,
            .check = check,
            .arithmetic = arithmetic,
            .tokens = Tokens::many_rows,
            .words = {architecture, "", "gemm"}};
}

template <bool (*has_isa)(), Arithmetic arithmetic, moe_stage stage>
constexpr Row cpu_gemv_row(const char* architecture) {
    return {.stage = stage,
            .check = cpu_gemv<has_isa, arithmetic, stage>,
            .arithmetic = arithmetic,
            .words = {architecture, "", "gemv"}};
}

template <moe_stage stage>
constexpr Row amx_row = cpu_gemm_row<cpu_gemm_amx<stage>, Arithmetic::gemv_amx, stage>("amx");
template <moe_stage stage>
constexpr Row avx2_gemm_row = cpu_gemm_row<cpu_gemm<cpu::has_avx2, Arithmetic::gemv_avx2, stage>,
                                           Arithmetic::gemv_avx2, stage>("avx2");
template <moe_stage stage>
constexpr Row avx512vnni_gemm_row =
    cpu_gemm_row<cpu_gemm<cpu::has_avx512vnni, Arithmetic::gemv_avx512vnni, stage>,
                 Arithmetic::gemv_avx512vnni, stage>("avx512vnni");

// <arch>_<weight>_<activation>_<stage>[_variant]; dense is f32, f16 and bf16. Those of gemv get
// their names from the weights. Best first.
constexpr Row cpu_table[] = {
    {"cpu_any_f32_route_ref", MOE_STAGE_ROUTE, always},
    {"cpu_any_f32_dispatch_ref", MOE_STAGE_DISPATCH, always},
    cpu_gemv_row<cpu::has_avx512vnni, Arithmetic::gemv_avx512vnni, MOE_STAGE_EXPERTS>("avx512vnni"),
    amx_row<MOE_STAGE_EXPERTS>,
    avx512vnni_gemm_row<MOE_STAGE_EXPERTS>,
    {"avx512_dense_f32_experts", MOE_STAGE_EXPERTS, dense_simd<cpu::has_avx512, MOE_STAGE_EXPERTS>,
     Arithmetic::avx512},
    cpu_gemv_row<cpu::has_i8mm, Arithmetic::gemv_i8mm, MOE_STAGE_EXPERTS>("i8mm"),
    cpu_gemv_row<cpu::has_neon, Arithmetic::gemv_neon, MOE_STAGE_EXPERTS>("neon"),
    cpu_gemv_row<cpu::has_avx2, Arithmetic::gemv_avx2, MOE_STAGE_EXPERTS>("avx2"),
    avx2_gemm_row<MOE_STAGE_EXPERTS>,
    {"avx2_dense_f32_experts", MOE_STAGE_EXPERTS, dense_simd<cpu::has_avx2, MOE_STAGE_EXPERTS>,
     Arithmetic::avx2},
    {"cpu_any_f32_experts_ref", MOE_STAGE_EXPERTS, in_f32},
    {"cpu_any_f64_experts_ref", MOE_STAGE_EXPERTS, in_f64, Arithmetic::ref_f64},
    {"cpu_any_f32_combine_ref", MOE_STAGE_COMBINE, in_f32},
    {"cpu_any_f64_combine_ref", MOE_STAGE_COMBINE, in_f64, Arithmetic::ref_f64},
    cpu_gemv_row<cpu::has_avx512vnni, Arithmetic::gemv_avx512vnni, MOE_STAGE_FINISH>("avx512vnni"),
    amx_row<MOE_STAGE_FINISH>,
    avx512vnni_gemm_row<MOE_STAGE_FINISH>,
    {"avx512_dense_f32_finish", MOE_STAGE_FINISH, dense_simd<cpu::has_avx512, MOE_STAGE_FINISH>,
     Arithmetic::avx512},
    cpu_gemv_row<cpu::has_i8mm, Arithmetic::gemv_i8mm, MOE_STAGE_FINISH>("i8mm"),
    cpu_gemv_row<cpu::has_neon, Arithmetic::gemv_neon, MOE_STAGE_FINISH>("neon"),
    cpu_gemv_row<cpu::has_avx2, Arithmetic::gemv_avx2, MOE_STAGE_FINISH>("avx2"),
    avx2_gemm_row<MOE_STAGE_FINISH>,
    {"avx2_dense_f32_finish", MOE_STAGE_FINISH, dense_simd<cpu::has_avx2, MOE_STAGE_FINISH>,
     Arithmetic::avx2},
    {"cpu_any_f32_finish_ref", MOE_STAGE_FINISH, in_f32},
    {"cpu_any_f64_finish_ref", MOE_STAGE_FINISH, in_f64, Arithmetic::ref_f64},
};

// --- CUDA -------------------------------------------------------------------------------------

template <moe_stage stage, class Check>
bool all_of_stage(const Problem& problem, Check check) {
    return stage == MOE_STAGE_EXPERTS ? all_matrices(problem, expert_matrices, check)
                                      : all_matrices(problem, dense_matrices, check);
}

// Families of 16-bit operands: nothing in the problem is wider.
template <moe_stage stage>
const Reason* in_16_bits(const Problem& problem) {
    if (problem.x_type == MOE_TYPE_F32) return &reasons::x_type;
    if (problem.intermediate_type == MOE_TYPE_F32) return &reasons::intermediate_type;
    const auto is_narrow = [](const moe_format& f) { return f.type != MOE_TYPE_F32; };
    return all_of_stage<stage>(problem, is_narrow) ? nullptr : &reasons::weight_type;
}

// float16 operands where both x and the intermediate are float16.
template <moe_stage stage>
const Reason* in_f16(const Problem& problem) {
    if (problem.x_type != MOE_TYPE_F16) return &reasons::x_type;
    if (problem.intermediate_type != MOE_TYPE_F16) return &reasons::intermediate_type;
    return in_16_bits<stage>(problem);
}

// The kernels that read packed tiles as they lie, of 16-bit operands, and activate in an epilogue.
template <moe_stage stage, bool (*reads)(PackedType)>
const Reason* whole_tiles(const Problem& problem) {
    if (const Reason* reason = in_16_bits<stage>(problem)) return reason;
    const auto is_read = [](const moe_format& f) { return reads(packed_type_of(f)); };
    if (!all_of_stage<stage>(problem, is_read)) return &reasons::weight_type;
    return problem.unfused ? &reasons::unfused : nullptr;
}

template <const Reason* (*check)(const Problem&)>
const Reason* on_hopper(const Problem& problem) {
    return has_hopper_instructions(problem.cuda->device.architecture()) ? check(problem)
                                                                        : &reasons::architecture;
}

const GemvRange& gemv_range_of_stage(const Problem& problem, moe_stage stage) {
    return stage == MOE_STAGE_EXPERTS ? problem.gemv_experts : problem.gemv_finish;
}

template <moe_stage stage>
const Reason* gemv(const Problem& problem) {
    if (stage == MOE_STAGE_FINISH && !problem.layout->layer.shared_intermediate)
        return &reasons::unneeded;
    if (stage == MOE_STAGE_EXPERTS && problem.layout->layer.latent) return &reasons::latent;
    if (problem.cuda->batch_invariant) return &reasons::batch_invariant;
    if (const Reason* reason = whole_tiles<stage, cuda::gemv_supports>(problem)) return reason;
    const auto has_no_table = [](const moe_format& f) {
        return column_table_of(f) == ColumnTable::none;
    };
    if (!all_of_stage<stage>(problem, has_no_table)) return &reasons::column_table;
    return gemv_range_of_stage(problem, stage).can > 0 ? nullptr : &reasons::size;
}

// Of many tokens float16 x is not rounded to bfloat16: it needs kernels with float16 operands, of
// which there is none that stores a latent in float16.
template <moe_stage stage>
const Reason* grouped_of_f16_x(const Problem& problem) {
    if (problem.layout->layer.latent) return &reasons::latent;
    if (const Reason* reason = whole_tiles<stage, cuda::grouped_supports>(problem)) return reason;
    const auto is_read = [](const moe_format& f) {
        return cuda::grouped_in_f16_supports(packed_type_of(f));
    };
    return all_of_stage<stage>(problem, is_read) ? nullptr : &reasons::x_type;
}

template <moe_stage stage>
const Reason* grouped(const Problem& problem) {
    if (problem.intermediate_type == MOE_TYPE_F16) return &reasons::intermediate_type;
    return problem.x_type == MOE_TYPE_F16 ? grouped_of_f16_x<stage>(problem)
                                          : whole_tiles<stage, cuda::grouped_supports>(problem);
}

template <moe_stage stage>
const Reason* grouped_f16(const Problem& problem) {
    const Reason* reason = in_f16<stage>(problem);
    return reason ? reason : grouped_of_f16_x<stage>(problem);
}

// The families of GEMMs in their order, best first, for the experts and for what finish multiplies.
template <moe_stage stage>
constexpr std::array<Row, 7> gemm_rows = {{
    {.stage = stage,
     .check = on_hopper<gemv<stage>>,
     .family = Family::sm90_gemv,
     .tokens = Tokens::small_batch,
     .words = {"sm90", "bf16", "gemv"}},
    {.stage = stage,
     .check = gemv<stage>,
     .family = Family::sm80_gemv,
     .tokens = Tokens::small_batch,
     .words = {"sm80", "bf16", "gemv"}},
    {.stage = stage,
     .check = on_hopper<grouped<stage>>,
     .family = Family::grouped,
     .words = {"sm90", "bf16", "grouped_gemm"}},
    {.stage = stage,
     .check = on_hopper<grouped_f16<stage>>,
     .family = Family::grouped_f16,
     .words = {"sm90", "f16", "grouped_gemm"}},
    {.stage = stage,
     .check = in_f16<stage>,
     .family = Family::sm80_grouped_f16,
     .words = {"sm80", "f16", "grouped_gemm"}},
    {.stage = stage,
     .check = in_16_bits<stage>,
     .family = Family::sm80_grouped_bf16,
     .words = {"sm80", "bf16", "grouped_gemm"}},
    {.stage = stage, .check = in_f32, .words = {"sm80", "f32", "exact"}},
}};

constexpr KernelWords portable_f32{"sm80", "f32", ""};

constexpr auto cuda_table = [] {
    constexpr auto experts = gemm_rows<MOE_STAGE_EXPERTS>;
    constexpr auto finish = gemm_rows<MOE_STAGE_FINISH>;
    std::array<Row, 3 + experts.size() + finish.size()> rows{{
        {.stage = MOE_STAGE_ROUTE, .check = in_f32, .words = portable_f32},
        {.stage = MOE_STAGE_DISPATCH, .check = in_f32, .words = portable_f32},
        {.stage = MOE_STAGE_COMBINE, .check = in_f32, .words = portable_f32},
    }};
    std::copy(finish.begin(), finish.end(),
              std::copy(experts.begin(), experts.end(), rows.begin() + 3));
    return rows;
}();

std::span<const Row> table_of(const Problem& problem) {
    if (problem.cuda) return cuda_table;
    return cpu_table;
}

// The names of a CUDA row: what it multiplies by, and the stage.
void name_kernels(const Row& row, const WeightsLayout& layout, Candidate& candidate) {
    const auto set = [&](const cuda::KernelName& weight, const char* stage) {
        return kernel_name(row.words, weight.view(), stage);
    };
    switch (row.stage) {
        case MOE_STAGE_ROUTE:
            candidate.gate_up = set(weight_of(layout, MOE_ROLE_ROUTER), "router");
            break;
        case MOE_STAGE_EXPERTS:
            candidate.gate_up =
                set(weight_of_gate_up(layout, MOE_ROLE_GATE, MOE_ROLE_UP), "gate_up");
            candidate.down = set(weight_of(layout, MOE_ROLE_DOWN), "down");
            break;
        case MOE_STAGE_FINISH:
            candidate.gate_up =
                set(weight_of_gate_up(layout, MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP), "gate_up");
            candidate.down = set(weight_of(layout, MOE_ROLE_SHARED_DOWN), "down");
            break;
        default:
            candidate.gate_up = kernel_name(row.words, "any", stage_name(row.stage));
    }
}

// The activations of a GEMM as its kernel takes them.
const char* cpu_activation(const Row& row, const Problem& problem, moe_role role, moe_type type) {
    constexpr const char* of_parts[] = {"f32", "int8", "int8x2", "int8x3"};
    const cpu::GemvFamily* family = cpu::gemv_family(row.arithmetic);
    if (!family || !problem.layout->needs(role)) return of_parts[0];
    const bool in_panels = row.tokens == Tokens::many_rows;
    const cpu::Quantization rows = rows_of(problem, row.arithmetic, role, type, in_panels);
    if (!in_panels && rows.parts) return of_parts[rows.parts];
    if (!in_panels) return rows.has_bf16_pair ? "bf16x2" : rows.has_bf16 ? "bf16" : of_parts[0];
    const auto format = format_of(problem, problem.layout->formats[role]);
    switch (cpu::gemm_kernels(*family, format, rows).rows) {
        case cpu::RowForm::integers:
        case cpu::RowForm::words:
            return of_parts[rows.parts];
        case cpu::RowForm::bf16:
            return "bf16";
        default:
            return of_parts[0];
    }
}

// The same for the gemv and gemm kernels of the CPU.
void name_cpu_kernels(const Row& row, const Problem& problem, Candidate& candidate) {
    const WeightsLayout& layout = *problem.layout;
    const bool experts = row.stage == MOE_STAGE_EXPERTS;
    const moe_role gate = experts ? MOE_ROLE_GATE : MOE_ROLE_SHARED_GATE;
    const moe_role up = experts ? MOE_ROLE_UP : MOE_ROLE_SHARED_UP;
    const moe_role down = experts ? MOE_ROLE_DOWN : MOE_ROLE_SHARED_DOWN;
    KernelWords words = row.words;
    words.activation = cpu_activation(row, problem, up, problem.x_type);
    candidate.gate_up = kernel_name(words, weight_of_gate_up(layout, gate, up).view(), "gate_up");
    words.activation = cpu_activation(row, problem, down, problem.intermediate_type);
    const bool is_amx = row.arithmetic == Arithmetic::gemv_amx && cpu::gemv_family(row.arithmetic);
    if (is_amx && layout.needs(down) && !has_tiles_for(problem, down, problem.intermediate_type))
        words.architecture = avx512vnni_gemm_row<MOE_STAGE_EXPERTS>.words.architecture;
    candidate.down = kernel_name(words, weight_of(layout, down).view(), "down");
}

Candidate describe(const Row& row, const Problem& problem) {
    Candidate candidate{};
    candidate.words = row.words;
    candidate.stage = row.stage;
    candidate.tokens = row.tokens;
    candidate.arithmetic = row.arithmetic;
    candidate.family = row.family;
    candidate.reason = row.check(problem);
    candidate.applicable = candidate.reason == nullptr;
    if (row.cpu_name)
        candidate.gate_up = {row.cpu_name};
    else if (!problem.cuda)
        name_cpu_kernels(row, problem, candidate);
    else
        name_kernels(row, *problem.layout, candidate);
    return candidate;
}

// is_open: no better candidate of its stage was chosen.
void judge(Candidate& candidate, const Problem& problem, const KernelFilter& filter, bool is_open) {
    if (!candidate.applicable) return;
    const Wish wish = filter.wish(candidate);
    if (candidate.tokens == Tokens::small_batch) {
        const GemvRange& range = gemv_range_of_stage(problem, candidate.stage);
        candidate.most_tokens = wish == Wish::force ? range.can : range.worth;
    }
    if (wish == Wish::forbid) {
        candidate.reason = &reasons::forbidden;
    } else if (wish != Wish::force && filter.forces_another(candidate)) {
        candidate.reason = &reasons::not_forced;
    } else {
        candidate.is_chosen = is_open;
        candidate.reason = !is_open              ? &reasons::slower
                           : wish == Wish::force ? &reasons::forced
                                                 : &reasons::chosen;
    }
}

// Goes with the one before it for any number, whose family it shares; forced without that one it
// takes any number of rows. is_open: no better one of many rows was chosen.
void choose_for_many_rows(Candidate& candidate, const Candidate& before, const Problem& problem,
                          const KernelFilter& filter, bool is_open) {
    judge(candidate, problem, filter, before.is_chosen && is_open);
    const bool is_forced = filter.wish(candidate) == Wish::force;
    candidate.min_rows = is_forced && filter.wish(before) != Wish::force ? 1
                         : candidate.applicable
                             ? min_panel_rows(problem, candidate.arithmetic, candidate.stage)
                             : cpu::min_panel_rows;
    if (candidate.is_chosen) candidate.reason = &reasons::many_rows;
}

// Kernels for many rows that are forced without those beside them. A pattern may force those of
// several families, of which one is chosen.
struct ForcedAlone {
    const Candidate *candidate = nullptr, *before = nullptr;
    bool is_another_chosen = false;

    void add(const Candidate& one, const Candidate& one_before, const KernelFilter& filter) {
        if (!one.applicable || filter.wish(one) != Wish::force) return;
        is_another_chosen |= one.is_chosen;
        if (!one_before.is_chosen && !candidate) candidate = &one, before = &one_before;
    }
    void refuse() const {
        if (candidate && !is_another_chosen)
            fail(MOE_ERROR_UNSUPPORTED, "kernel_filter forces {}, but leaves out {} beside it",
                 candidate->name(), before->name());
    }
};

// A filter that forces kernels for many rows alone means the candidate beside them, too: the first
// such one, or null.
const Candidate* beside_forced(std::span<const Candidate> all, moe_stage stage,
                               const KernelFilter& filter) {
    const Candidate *before = nullptr, *found = nullptr;
    for (const Candidate& candidate : all) {
        if (candidate.stage != stage || candidate.tokens == Tokens::small_batch) continue;
        const bool is_forced = candidate.applicable && filter.wish(candidate) == Wish::force;
        if (candidate.tokens == Tokens::any) {
            if (is_forced) return nullptr;
            before = &candidate;
        } else if (is_forced && !found && before->applicable &&
                   filter.wish(*before) != Wish::forbid) {
            found = before;
        }
    }
    return found;
}

// One for any number of tokens, and where a better one takes small batches, that one too, as one
// for many rows.
void choose_for_stage(std::span<Candidate> all, moe_stage stage, const Problem& problem,
                      const KernelFilter& filter) {
    bool is_open[2] = {true, true};  // for any number of tokens, for small batches
    bool is_open_for_many_rows = true;
    const Candidate* before = nullptr;  // those of many rows are behind one for any number
    ForcedAlone forced_alone;
    const Candidate* const preferred = beside_forced(all, stage, filter);
    for (Candidate& candidate : all) {
        if (candidate.stage != stage) continue;
        if (candidate.tokens == Tokens::many_rows) {
            choose_for_many_rows(candidate, *before, problem, filter, is_open_for_many_rows);
            is_open_for_many_rows &= !candidate.is_chosen;
            forced_alone.add(candidate, *before, filter);
            continue;
        }
        const bool is_small_batch = candidate.tokens == Tokens::small_batch;
        const bool is_left_out = preferred && !is_small_batch && &candidate != preferred;
        judge(candidate, problem, filter, is_open[is_small_batch] && is_open[0] && !is_left_out);
        if (candidate.is_chosen) is_open[is_small_batch] = false;
        before = &candidate;
    }
    if (is_open[0])
        fail(MOE_ERROR_UNSUPPORTED, "kernel_filter leaves no candidate for stage {}",
             stage_name(stage));
    forced_alone.refuse();
}

}  // namespace

std::pmr::vector<Candidate> choose_candidates(std::pmr::memory_resource& memory,
                                              const Problem& problem, const char* filter_text) {
    const std::span<const Row> table = table_of(problem);
    std::pmr::vector<Candidate> all(&memory);
    all.reserve(table.size());
    for (const moe_stage stage : all_stages)
        for (const Row& row : table)
            if (row.stage == stage) all.push_back(describe(row, problem));
    const KernelFilter filter(all, filter_text);
    for (const moe_stage stage : all_stages) choose_for_stage(all, stage, problem, filter);
    return all;
}

const char* stage_name(moe_stage stage) {
    switch (stage) {
        case MOE_STAGE_ROUTE:
            return "route";
        case MOE_STAGE_DISPATCH:
            return "dispatch";
        case MOE_STAGE_EXPERTS:
            return "experts";
        case MOE_STAGE_COMBINE:
            return "combine";
        case MOE_STAGE_FINISH:
            return "finish";
        default:
            return "unknown";
    }
}

}  // namespace moe
