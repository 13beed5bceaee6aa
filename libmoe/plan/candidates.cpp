// The tables of CUDA, and the choice.
#include "libmoe/plan/candidates.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "libmoe/base/error.hpp"
#include "libmoe/cuda/kernel_types.hpp"
#include "libmoe/formats/format.hpp"
#include "libmoe/plan/cpu_candidates.hpp"
#include "libmoe/plan/kernel_filter.hpp"

namespace moe {
namespace {

using cuda::Family;

constexpr moe_role expert_matrices[] = {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN};
constexpr moe_role dense_matrices[] = {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP,
                                       MOE_ROLE_SHARED_DOWN, MOE_ROLE_LATENT_IN,
                                       MOE_ROLE_LATENT_OUT};

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

// Would gate and up, in launches of their own, want the columns of x gathered?
template <moe_stage stage>
bool gathers_pair(const Problem& problem) {
    const bool is_shared = stage == MOE_STAGE_FINISH;
    const Layer& layer = problem.layout->layer;
    const bool is_gated = (is_shared ? layer.shared_activation : layer.activation).gated;
    const bool is_fused =
        is_shared ? problem.cuda->is_shared_gate_up_fused : problem.cuda->is_gate_up_fused;
    const auto has_table = [&](moe_role role) {
        return column_table_of(problem.layout->formats[role]) != ColumnTable::none;
    };
    return is_gated && !is_fused &&
           (has_table(is_shared ? MOE_ROLE_SHARED_GATE : MOE_ROLE_GATE) ||
            has_table(is_shared ? MOE_ROLE_SHARED_UP : MOE_ROLE_UP));
}

template <moe_stage stage>
const Reason* gemv(const Problem& problem) {
    if (stage == MOE_STAGE_FINISH && !problem.layout->layer.shared_intermediate)
        return &reasons::unneeded;
    if (stage == MOE_STAGE_EXPERTS && problem.layout->layer.latent) return &reasons::latent;
    if (problem.cuda->batch_invariant) return &reasons::batch_invariant;
    if (const Reason* reason = whole_tiles<stage, cuda::gemv_supports>(problem)) return reason;
    if (gathers_pair<stage>(problem)) return &reasons::column_table;
    const GemvRange& range = gemv_range_of_stage(problem, stage);
    if (range.lacks_rows) return &reasons::expert_norm;
    return range.can > 0 ? nullptr : &reasons::size;
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

// Does one scale serve the 128 columns that a kernel sums up? The kernel finds one for codes of
// E2M1. first: the column of the format at which those of the plan begin.
bool has_scale_of_128(const moe_format& format, int64_t first) {
    return format.type == MOE_TYPE_E2M1 || format.group_columns < 0 ||
           (format.group_columns % 128 == 0 && first % 128 == 0);
}

template <moe_stage stage>
const Reason* grouped_fp8(const Problem& problem) {
    const WeightsLayout& layout = *problem.layout;
    const bool is_shared = stage == MOE_STAGE_FINISH;
    const Activation& activation =
        is_shared ? layout.layer.shared_activation : layout.layer.activation;
    if (is_shared && !layout.layer.shared_intermediate) return &reasons::unneeded;
    if (layout.layer.latent) return &reasons::latent;
    if (problem.intermediate_type != MOE_TYPE_BF16) return &reasons::intermediate_type;
    if (const Reason* reason = whole_tiles<stage, cuda::fp8_grouped_supports>(problem))
        return reason;
    const auto is_in_order = [](const moe_format& f) {
        return column_table_of(f) == ColumnTable::none;
    };
    if (!all_of_stage<stage>(problem, is_in_order)) return &reasons::weight_type;
    // Its epilogue wants gate and up of one matrix.
    const bool is_fused =
        is_shared ? problem.cuda->is_shared_gate_up_fused : problem.cuda->is_gate_up_fused;
    if (!activation.gated || !is_fused) return &reasons::weight_type;
    const moe_role gate = is_shared ? MOE_ROLE_SHARED_GATE : MOE_ROLE_GATE;
    const moe_role up = is_shared ? MOE_ROLE_SHARED_UP : MOE_ROLE_UP;
    const moe_role down = is_shared ? MOE_ROLE_SHARED_DOWN : MOE_ROLE_DOWN;
    const int64_t first = is_shared ? layout.slice.shared_begin : layout.slice.intermediate_begin;
    const bool fits = has_scale_of_128(layout.formats[gate], 0) &&
                      has_scale_of_128(layout.formats[up], 0) &&
                      has_scale_of_128(layout.formats[down], first);
    return fits ? nullptr : &reasons::scale_grid;
}

// The families of GEMMs in their order, best first, for the experts and for what finish multiplies.
template <moe_stage stage>
constexpr std::array<Row, 8> gemm_rows = {{
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
     .check = on_hopper<grouped_fp8<stage>>,
     .family = Family::grouped_fp8,
     .words = {"sm90", "fp8", "grouped_gemm"}},
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

// Codes of four bits cost more than E4M3 saves, but for the longest prompts: then its kernels come
// behind those of bfloat16 (bench/notes/fp8_grouped_gemm.md).
void order_fp8(const Problem& problem, moe_stage stage, std::span<Candidate> of_stage) {
    const auto is_fp8 = [](const moe_format& f) { return f.type == MOE_TYPE_F8_E4M3; };
    const bool are_fp8 = stage == MOE_STAGE_EXPERTS
                             ? all_of_stage<MOE_STAGE_EXPERTS>(problem, is_fp8)
                             : all_of_stage<MOE_STAGE_FINISH>(problem, is_fp8);
    const auto fp8 = std::find_if(of_stage.begin(), of_stage.end(), [](const Candidate& one) {
        return one.family == Family::grouped_fp8;
    });
    if (are_fp8 || fp8 == of_stage.end()) return;
    const auto behind = std::find_if(fp8, of_stage.end(), [](const Candidate& one) {
        return cuda::is_sm80_grouped(one.family);
    });
    std::rotate(fp8, fp8 + 1, behind);
}

std::span<const Row> table_of(const Problem& problem) {
    if (problem.cuda) return cuda_table;
    return cpu_rows();
}

// Kernels that quantize activations are candidates of plans that ask for it alone.
bool is_row_of(const Problem& problem, const Row& row) {
    return row.family != Family::grouped_fp8 || problem.quantizes_to_fp8;
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
    candidate.min_rows = panel_rows_of(problem, candidate.arithmetic, candidate.stage);
    if (is_forced && filter.wish(before) != Wish::force) candidate.min_rows.begin_at_one();
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
    for (const moe_stage stage : all_stages) {
        const size_t first = all.size();
        for (const Row& row : table)
            if (row.stage == stage && is_row_of(problem, row))
                all.push_back(describe(row, problem));
        if (problem.quantizes_to_fp8)
            order_fp8(problem, stage, std::span<Candidate>(all).subspan(first));
    }
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
