// The tables, the filter, and the choice.
#include "libmoe/plan/candidates.hpp"

#include <algorithm>
#include <span>

#include "libmoe/base/error.hpp"
#include "libmoe/cpu/dot.hpp"
#include "libmoe/cuda/backend.hpp"
#include "libmoe/formats/format.hpp"

namespace moe {
namespace {

using cpu::Arithmetic;
using cuda::Family;
using Check = const Reason* (*)(const Problem&);  // null: applies

struct Row {
    const char* name;
    moe_stage stage;
    Check check;
    Arithmetic arithmetic = Arithmetic::ref_f32;
    Family family = Family::exact;
    Tokens tokens = Tokens::any;
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

template <bool (*has_isa)(), moe_stage stage>
const Reason* dense_simd(const Problem& problem) {
    if (!has_isa()) return &reasons::isa;
    static constexpr moe_role experts[] = {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN,
                                           MOE_ROLE_LATENT_IN};
    static constexpr moe_role finish[] = {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP,
                                          MOE_ROLE_SHARED_DOWN, MOE_ROLE_LATENT_OUT};
    const bool dense = stage == MOE_STAGE_EXPERTS ? all_matrices(problem, experts, is_plain)
                                                  : all_matrices(problem, finish, is_plain);
    return dense ? in_f32(problem) : &reasons::weight_type;
}

// <arch>_<weight>_<activation>_<stage>[_variant]; dense is f32, f16 and bf16. Best first.
constexpr Row cpu_table[] = {
    {"cpu_any_f32_route_ref", MOE_STAGE_ROUTE, always},
    {"cpu_any_f32_dispatch_ref", MOE_STAGE_DISPATCH, always},
    {"avx512_dense_f32_experts", MOE_STAGE_EXPERTS, dense_simd<cpu::has_avx512, MOE_STAGE_EXPERTS>,
     Arithmetic::avx512},
    {"avx2_dense_f32_experts", MOE_STAGE_EXPERTS, dense_simd<cpu::has_avx2, MOE_STAGE_EXPERTS>,
     Arithmetic::avx2},
    {"cpu_any_f32_experts_ref", MOE_STAGE_EXPERTS, in_f32},
    {"cpu_any_f64_experts_ref", MOE_STAGE_EXPERTS, in_f64, Arithmetic::ref_f64},
    {"cpu_any_f32_combine_ref", MOE_STAGE_COMBINE, in_f32},
    {"cpu_any_f64_combine_ref", MOE_STAGE_COMBINE, in_f64, Arithmetic::ref_f64},
    {"avx512_dense_f32_finish", MOE_STAGE_FINISH, dense_simd<cpu::has_avx512, MOE_STAGE_FINISH>,
     Arithmetic::avx512},
    {"avx2_dense_f32_finish", MOE_STAGE_FINISH, dense_simd<cpu::has_avx2, MOE_STAGE_FINISH>,
     Arithmetic::avx2},
    {"cpu_any_f32_finish_ref", MOE_STAGE_FINISH, in_f32},
    {"cpu_any_f64_finish_ref", MOE_STAGE_FINISH, in_f64, Arithmetic::ref_f64},
};

// --- CUDA -------------------------------------------------------------------------------------

// Families of 16-bit operands: nothing in the problem is wider.
template <moe_stage stage>
const Reason* in_16_bits(const Problem& problem) {
    if (problem.x_type == MOE_TYPE_F32) return &reasons::x_type;
    if (problem.intermediate_type == MOE_TYPE_F32) return &reasons::intermediate_type;
    const auto is_narrow = [](const moe_format& f) { return f.type != MOE_TYPE_F32; };
    const bool narrow = stage == MOE_STAGE_EXPERTS
                            ? all_matrices(problem, expert_matrices, is_narrow)
                            : all_matrices(problem, dense_matrices, is_narrow);
    return narrow ? nullptr : &reasons::weight_type;
}

// float16 operands where both x and the intermediate are float16.
template <moe_stage stage>
const Reason* in_f16(const Problem& problem) {
    if (problem.x_type != MOE_TYPE_F16) return &reasons::x_type;
    if (problem.intermediate_type != MOE_TYPE_F16) return &reasons::intermediate_type;
    return in_16_bits<stage>(problem);
}

// What the kernels that read packed tiles as they lie want of a layer.
const Reason* in_whole_tiles(const Problem& problem, bool is_gate_up_fused, bool is_gated) {
    const Layer& layer = problem.layout->layer;
    const Slice& slice = problem.layout->slice;
    if (problem.unfused) return &reasons::unfused;
    if (is_gated && !is_gate_up_fused) return &reasons::gate_up_types;
    const bool on_grid = layer.hidden % 64 == 0 && layer.latent % 64 == 0 &&
                         slice.intermediate_count % 64 == 0 && slice.shared_count % 64 == 0;
    return on_grid ? nullptr : &reasons::shape;
}

// bfloat16 operands; those of many tokens would round float16 x.
template <moe_stage stage, bool (*reads)(PackedType), Tokens tokens>
const Reason* tiles_in_bf16(const Problem& problem) {
    const bool experts = stage == MOE_STAGE_EXPERTS;
    const Layer& layer = problem.layout->layer;
    if (problem.intermediate_type == MOE_TYPE_F16) return &reasons::intermediate_type;
    if (problem.x_type == MOE_TYPE_F16 && tokens == Tokens::any) return &reasons::x_type;
    if (const Reason* reason = in_16_bits<stage>(problem)) return reason;
    const auto is_read = [](const moe_format& f) { return reads(packed_type_of(f)); };
    const bool all_read = experts ? all_matrices(problem, expert_matrices, is_read)
                                  : all_matrices(problem, dense_matrices, is_read);
    if (!all_read) return &reasons::weight_type;
    return experts ? in_whole_tiles(problem, problem.cuda->is_gate_up_fused, layer.activation.gated)
                   : in_whole_tiles(problem, problem.cuda->is_shared_gate_up_fused,
                                    layer.shared_intermediate && layer.shared_activation.gated);
}

template <const Reason* (*check)(const Problem&)>
const Reason* on_hopper(const Problem& problem) {
    return problem.cuda->device.is_hopper() ? check(problem) : &reasons::architecture;
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
    if (const Reason* reason =
            tiles_in_bf16<stage, cuda::gemv_supports, Tokens::small_batch>(problem))
        return reason;
    return gemv_range_of_stage(problem, stage).can > 0 ? nullptr : &reasons::size;
}

template <moe_stage stage>
const Reason* grouped(const Problem& problem) {
    return tiles_in_bf16<stage, cuda::grouped_supports, Tokens::any>(problem);
}

constexpr Row cuda_table[] = {
    {.name = "cuda_any_f32_route", .stage = MOE_STAGE_ROUTE, .check = in_f32},
    {.name = "cuda_any_f32_dispatch", .stage = MOE_STAGE_DISPATCH, .check = in_f32},
    {.name = "sm90_any_bf16_experts_one_token",
     .stage = MOE_STAGE_EXPERTS,
     .check = on_hopper<gemv<MOE_STAGE_EXPERTS>>,
     .family = Family::sm90_gemv,
     .tokens = Tokens::small_batch},
    {.name = "cuda_any_bf16_experts_one_token",
     .stage = MOE_STAGE_EXPERTS,
     .check = gemv<MOE_STAGE_EXPERTS>,
     .family = Family::sm80_gemv,
     .tokens = Tokens::small_batch},
    {.name = "sm90_any_bf16_experts_grouped",
     .stage = MOE_STAGE_EXPERTS,
     .check = on_hopper<grouped<MOE_STAGE_EXPERTS>>,
     .family = Family::grouped},
    {.name = "cuda_any_f16_experts_generic",
     .stage = MOE_STAGE_EXPERTS,
     .check = in_f16<MOE_STAGE_EXPERTS>,
     .family = Family::generic_f16},
    {.name = "cuda_any_bf16_experts_generic",
     .stage = MOE_STAGE_EXPERTS,
     .check = in_16_bits<MOE_STAGE_EXPERTS>,
     .family = Family::generic_bf16},
    {.name = "cuda_any_f32_experts_exact", .stage = MOE_STAGE_EXPERTS, .check = in_f32},
    {.name = "cuda_any_f32_combine", .stage = MOE_STAGE_COMBINE, .check = in_f32},
    {.name = "sm90_any_bf16_finish_one_token",
     .stage = MOE_STAGE_FINISH,
     .check = on_hopper<gemv<MOE_STAGE_FINISH>>,
     .family = Family::sm90_gemv,
     .tokens = Tokens::small_batch},
    {.name = "cuda_any_bf16_finish_one_token",
     .stage = MOE_STAGE_FINISH,
     .check = gemv<MOE_STAGE_FINISH>,
     .family = Family::sm80_gemv,
     .tokens = Tokens::small_batch},
    {.name = "sm90_any_bf16_finish_grouped",
     .stage = MOE_STAGE_FINISH,
     .check = on_hopper<grouped<MOE_STAGE_FINISH>>,
     .family = Family::grouped},
    {.name = "cuda_any_f16_finish_generic",
     .stage = MOE_STAGE_FINISH,
     .check = in_f16<MOE_STAGE_FINISH>,
     .family = Family::generic_f16},
    {.name = "cuda_any_bf16_finish_generic",
     .stage = MOE_STAGE_FINISH,
     .check = in_16_bits<MOE_STAGE_FINISH>,
     .family = Family::generic_bf16},
    {.name = "cuda_any_f32_finish_exact", .stage = MOE_STAGE_FINISH, .check = in_f32},
};

std::span<const Row> table_of(const Problem& problem) {
    if (problem.cuda) return cuda_table;
    return cpu_table;
}

// What kernel_filter says of one name.
enum class Wish { none, force, forbid };

class Filter {
  public:
    Filter(std::span<const Row> table, const char* text) : table_(table), text_(text ? text : "") {
        for_each([&](std::string_view name, Wish) { check_name(name); });
        for (const Row& row : table_) check_wishes(row);
    }

    Wish wish(std::string_view name) const {
        Wish wish = Wish::none;
        for_each([&](std::string_view listed, Wish wanted) {
            if (listed == name) wish = wanted;
        });
        return wish;
    }
    // Is a row forced that takes any number of tokens, or this one's?
    bool forces_another(const Row& row) const {
        return std::any_of(table_.begin(), table_.end(), [&](const Row& other) {
            return other.stage == row.stage && wish(other.name) == Wish::force &&
                   (other.tokens == Tokens::any || other.tokens == row.tokens);
        });
    }

  private:
    void check_name(std::string_view name) const {
        const bool known = std::any_of(table_.begin(), table_.end(),
                                       [&](const Row& row) { return name == row.name; });
        require(known, "kernel_filter names {}, which is not a candidate of the plan's device",
                name);
    }
    // No row is both forced and forbidden, nor forced beside another of its stage for the same
    // tokens.
    void check_wishes(const Row& row) const {
        bool is_forced = false, is_forbidden = false;
        for_each([&](std::string_view name, Wish wanted) {
            if (name == row.name) (wanted == Wish::force ? is_forced : is_forbidden) = true;
        });
        require(!(is_forced && is_forbidden), "kernel_filter forces {} and forbids it", row.name);
        if (!is_forced) return;
        for (const Row& other : table_)
            require(other.name == row.name || other.stage != row.stage ||
                        other.tokens != row.tokens || wish(other.name) != Wish::force,
                    "kernel_filter forces {} and {}, of which the stage {} can have but one",
                    row.name, other.name, stage_name(row.stage));
    }
    template <class Use>
    void for_each(Use use) const {
        std::string_view rest = text_;
        while (!rest.empty()) {
            const size_t comma = std::min(rest.find(','), rest.size());
            std::string_view item = rest.substr(0, comma);
            rest.remove_prefix(std::min(comma + 1, rest.size()));
            while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
            while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
            if (item.empty()) continue;
            const bool forbid = item.front() == '-';
            if (forbid || item.front() == '+') item.remove_prefix(1);
            use(item, forbid ? Wish::forbid : Wish::force);
        }
    }

    std::span<const Row> table_;
    std::string_view text_;
};

// Judges one row; is_open says that no better one of its stage was taken.
Candidate judge(const Row& row, const Problem& problem, const Filter& filter, bool is_open) {
    const Reason* obstacle = row.check(problem);
    const Wish wish = filter.wish(row.name);
    Candidate candidate{row.name,   row.stage,           row.tokens, 0,       row.arithmetic,
                        row.family, obstacle == nullptr, false,      obstacle};
    if (!obstacle && row.tokens == Tokens::small_batch) {
        const GemvRange& small_batch = gemv_range_of_stage(problem, row.stage);
        candidate.most_tokens = wish == Wish::force ? small_batch.can : small_batch.worth;
    }
    if (obstacle) {
        if (wish == Wish::force)
            fail(MOE_ERROR_UNSUPPORTED, "kernel_filter forces {}, which does not apply: {}",
                 row.name, obstacle->sentence);
    } else if (wish == Wish::forbid) {
        candidate.reason = &reasons::forbidden;
    } else if (wish != Wish::force && filter.forces_another(row)) {
        candidate.reason = &reasons::not_forced;
    } else {
        candidate.is_chosen = is_open;
        candidate.reason = !is_open              ? &reasons::slower
                           : wish == Wish::force ? &reasons::forced
                                                 : &reasons::chosen;
    }
    return candidate;
}

}  // namespace

std::pmr::vector<Candidate> choose_candidates(std::pmr::memory_resource& memory,
                                              const Problem& problem, const char* filter_text) {
    const std::span<const Row> table = table_of(problem);
    const Filter filter(table, filter_text);
    std::pmr::vector<Candidate> all(&memory);
    all.reserve(table.size());
    for (const moe_stage stage : all_stages) {
        bool is_open[2] = {true, true};  // for any number of tokens, for small_batch
        for (const Row& row : table) {
            if (row.stage != stage) continue;
            const bool is_small_batch = row.tokens == Tokens::small_batch;
            all.push_back(judge(row, problem, filter, is_open[is_small_batch] && is_open[0]));
            if (all.back().is_chosen) is_open[is_small_batch] = false;
        }
        if (is_open[0])
            fail(MOE_ERROR_UNSUPPORTED, "kernel_filter leaves no candidate for stage {}",
                 stage_name(stage));
    }
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
