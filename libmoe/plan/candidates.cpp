// The tables, the filter, and the choice.
#include "libmoe/plan/candidates.hpp"

#include <algorithm>
#include <initializer_list>

#include "libmoe/base/error.hpp"
#include "libmoe/cpu/dot.hpp"
#include "libmoe/formats/format.hpp"

namespace moe {
namespace {

using cpu::Arithmetic;
using Check = const Reason* (*)(const Problem&);  // null: applies

struct Row {
    const char* name;
    moe_stage stage;
    Arithmetic arithmetic;
    Check check;
};

const Reason* always(const Problem&) {
    return nullptr;
}

const Reason* in_f32(const Problem& problem) {
    return problem.intermediate_type == MOE_TYPE_F64 ? &reasons::intermediate_type : nullptr;
}

const Reason* in_f64(const Problem& problem) {
    return problem.intermediate_type == MOE_TYPE_F64 ? nullptr : &reasons::intermediate_type;
}

bool are_plain(const WeightsLayout& layout, std::initializer_list<moe_role> roles) {
    return std::all_of(roles.begin(), roles.end(), [&](moe_role role) {
        return !layout.needs(role) || is_plain(layout.formats[role]);
    });
}

template <bool (*has_isa)(), moe_stage stage>
const Reason* dense_simd(const Problem& problem) {
    if (!has_isa()) return &reasons::isa;
    const bool dense =
        stage == MOE_STAGE_EXPERTS
            ? are_plain(*problem.layout,
                        {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN, MOE_ROLE_LATENT_IN})
            : are_plain(*problem.layout, {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP,
                                          MOE_ROLE_SHARED_DOWN, MOE_ROLE_LATENT_OUT});
    return dense ? in_f32(problem) : &reasons::weight_type;
}

// <arch>_<weight>_<activation>_<stage>[_variant]; dense is f32, f16 and bf16. Best first.
constexpr Row table[] = {
    {"cpu_any_f32_route_ref", MOE_STAGE_ROUTE, Arithmetic::ref_f32, always},
    {"cpu_any_f32_dispatch_ref", MOE_STAGE_DISPATCH, Arithmetic::ref_f32, always},
    {"avx512_dense_f32_experts", MOE_STAGE_EXPERTS, Arithmetic::avx512,
     dense_simd<cpu::has_avx512, MOE_STAGE_EXPERTS>},
    {"avx2_dense_f32_experts", MOE_STAGE_EXPERTS, Arithmetic::avx2,
     dense_simd<cpu::has_avx2, MOE_STAGE_EXPERTS>},
    {"cpu_any_f32_experts_ref", MOE_STAGE_EXPERTS, Arithmetic::ref_f32, in_f32},
    {"cpu_any_f64_experts_ref", MOE_STAGE_EXPERTS, Arithmetic::ref_f64, in_f64},
    {"cpu_any_f32_combine_ref", MOE_STAGE_COMBINE, Arithmetic::ref_f32, in_f32},
    {"cpu_any_f64_combine_ref", MOE_STAGE_COMBINE, Arithmetic::ref_f64, in_f64},
    {"avx512_dense_f32_finish", MOE_STAGE_FINISH, Arithmetic::avx512,
     dense_simd<cpu::has_avx512, MOE_STAGE_FINISH>},
    {"avx2_dense_f32_finish", MOE_STAGE_FINISH, Arithmetic::avx2,
     dense_simd<cpu::has_avx2, MOE_STAGE_FINISH>},
    {"cpu_any_f32_finish_ref", MOE_STAGE_FINISH, Arithmetic::ref_f32, in_f32},
    {"cpu_any_f64_finish_ref", MOE_STAGE_FINISH, Arithmetic::ref_f64, in_f64},
};

// What kernel_filter says of one name.
enum class Wish { none, force, forbid };

class Filter {
  public:
    explicit Filter(const char* text) : text_(text ? text : "") { for_each(check_name); }

    Wish wish(std::string_view name) const {
        Wish wish = Wish::none;
        for_each([&](std::string_view listed, Wish wanted) {
            if (listed == name) wish = wanted;
        });
        return wish;
    }
    bool forces(moe_stage stage) const {
        return std::any_of(std::begin(table), std::end(table), [&](const Row& row) {
            return row.stage == stage && wish(row.name) == Wish::force;
        });
    }

  private:
    static void check_name(std::string_view name, Wish) {
        const bool known = std::any_of(std::begin(table), std::end(table),
                                       [&](const Row& row) { return name == row.name; });
        require(known, "kernel_filter names {}, which is not a candidate of the CPU", name);
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

    std::string_view text_;
};

// Judges one row; is_open says that no better one of its stage was taken.
Candidate judge(const Row& row, const Problem& problem, const Filter& filter, bool is_open) {
    const Reason* obstacle = row.check(problem);
    Candidate candidate{row.name, row.stage, row.arithmetic, obstacle == nullptr, false, obstacle};
    const Wish wish = filter.wish(row.name);
    if (obstacle) {
        if (wish == Wish::force)
            fail(MOE_ERROR_UNSUPPORTED, "kernel_filter forces {}, which does not apply: {}",
                 row.name, obstacle->sentence);
    } else if (wish == Wish::forbid) {
        candidate.reason = &reasons::forbidden;
    } else if (filter.forces(row.stage) && wish != Wish::force) {
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
    const Filter filter(filter_text);
    std::pmr::vector<Candidate> all(&memory);
    all.reserve(std::size(table));
    for (const moe_stage stage : all_stages) {
        bool is_open = true;
        for (const Row& row : table) {
            if (row.stage != stage) continue;
            all.push_back(judge(row, problem, filter, is_open));
            if (all.back().is_chosen) is_open = false;
        }
        if (is_open)
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
