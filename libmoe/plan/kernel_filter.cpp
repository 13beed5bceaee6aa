#include "libmoe/plan/kernel_filter.hpp"

#include <algorithm>

#include "libmoe/base/error.hpp"

namespace moe {
namespace {

// Names that earlier versions printed, and the glob that says the same today.
struct OldName {
    std::string_view old_name;
    std::string_view glob;
};
constexpr OldName old_names[] = {
    {"cuda_any_f32_route", "route:sm80_*_f32_router"},
    {"cuda_any_f32_dispatch", "sm80_any_f32_dispatch"},
    {"sm90_any_bf16_experts_one_token", "experts:sm90_*_bf16_gemv_*"},
    {"cuda_any_bf16_experts_one_token", "experts:sm80_*_bf16_gemv_*"},
    {"sm90_any_bf16_experts_grouped", "experts:sm90_*_bf16_grouped_gemm_*"},
    {"cuda_any_f16_experts_generic", "experts:sm80_*_f16_grouped_gemm_*"},
    {"cuda_any_bf16_experts_generic", "experts:sm80_*_bf16_grouped_gemm_*"},
    {"cuda_any_f32_experts_exact", "experts:sm80_*_f32_exact_*"},
    {"cuda_any_f32_combine", "sm80_any_f32_combine"},
    {"sm90_any_bf16_finish_one_token", "finish:sm90_*_bf16_gemv_*"},
    {"cuda_any_bf16_finish_one_token", "finish:sm80_*_bf16_gemv_*"},
    {"sm90_any_bf16_finish_grouped", "finish:sm90_*_bf16_grouped_gemm_*"},
    {"cuda_any_f16_finish_generic", "finish:sm80_*_f16_grouped_gemm_*"},
    {"cuda_any_bf16_finish_generic", "finish:sm80_*_bf16_grouped_gemm_*"},
    {"cuda_any_f32_finish_exact", "finish:sm80_*_f32_exact_*"},
};

std::string_view without_spaces(std::string_view text) {
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    return text;
}

// Is it the name of a launch: a kernel's name and a variant, which the launch plan chooses?
bool is_variant_of(std::string_view name, const cuda::KernelName& kernel) {
    const std::string_view begin = kernel.view();
    return !begin.empty() && name.size() > begin.size() && name.starts_with(begin) &&
           name[begin.size()] == '_';
}

}  // namespace

bool KernelFilter::Item::matches(const Candidate& candidate) const {
    if (!stage.empty() && stage != stage_name(candidate.stage)) return false;
    return matches_glob(candidate.gate_up.view(), glob) ||
           (!candidate.down.empty() && matches_glob(candidate.down.view(), glob));
}

template <class Use>
void KernelFilter::for_each(Use use) const {
    std::string_view left = text_;
    while (!left.empty()) {
        const size_t comma = std::min(left.find(','), left.size());
        std::string_view text = without_spaces(left.substr(0, comma));
        left.remove_prefix(std::min(comma + 1, left.size()));
        if (text.empty()) continue;
        Item item{{}, {}, text.front() == '-' ? Wish::forbid : Wish::force};
        if (text.front() == '-' || text.front() == '+') text.remove_prefix(1);
        const size_t colon = text.find(':');
        if (colon != std::string_view::npos) {
            item.stage = text.substr(0, colon);
            text.remove_prefix(colon + 1);
        }
        item.glob = text;
        use(item);
    }
}

KernelFilter::KernelFilter(std::span<const Candidate> all, const char* text)
    : all_(all), text_(text ? text : "") {
    for_each([&](const Item& item) { check_known(item); });
    for (const Candidate& candidate : all_) check_contradictions(candidate);
    for_each([&](const Item& item) { check_applies(item); });
}

void KernelFilter::check_known(const Item& item) const {
    const auto matches = [&](const Candidate& candidate) { return item.matches(candidate); };
    if (std::any_of(all_.begin(), all_.end(), matches)) return;
    for (const OldName& one : old_names)
        require(item.glob != one.old_name, "kernel_filter names {}, which is called {} now",
                one.old_name, one.glob);
    for (const Candidate& one : all_)
        for (const cuda::KernelName& kernel : {one.gate_up, one.down})
            require(!is_variant_of(item.glob, kernel),
                    "kernel_filter names {}, a variant that the plan chooses of {}", item.glob,
                    kernel.view());
    fail(MOE_ERROR_INVALID_ARGUMENT,
         "kernel_filter names {}, which is not a candidate of the plan's device", item.glob);
}

void KernelFilter::check_applies(const Item& item) const {
    if (item.wish != Wish::force) return;
    const Candidate* first = nullptr;
    for (const Candidate& candidate : all_) {
        if (!item.matches(candidate)) continue;
        if (candidate.applicable) return;
        if (!first) first = &candidate;
    }
    fail(MOE_ERROR_UNSUPPORTED, "kernel_filter forces {}, which does not apply: {}", first->name(),
         first->reason->sentence);
}

// A candidate is not both forced and forbidden. Two exact names are not both forced for the same
// numbers of tokens of a stage: of what a glob or one name matches, the best one is taken.
void KernelFilter::check_contradictions(const Candidate& candidate) const {
    bool is_forced = false, is_forbidden = false;
    for_each([&](const Item& item) {
        if (item.matches(candidate)) (item.wish == Wish::force ? is_forced : is_forbidden) = true;
    });
    require(!(is_forced && is_forbidden), "kernel_filter forces {} and forbids it",
            candidate.name());
    const auto forced_by_name_without = [&](const Candidate& one, const Candidate& another) {
        bool found = false;
        for_each([&](const Item& item) {
            found |= item.wish == Wish::force && item.is_exact() && item.matches(one) &&
                     !item.matches(another);
        });
        return found;
    };
    const Candidate* also_forced = nullptr;
    for (const Candidate& other : all_)
        if (other.stage == candidate.stage && other.tokens == candidate.tokens &&
            forced_by_name_without(candidate, other) && forced_by_name_without(other, candidate))
            also_forced = &other;
    if (also_forced)
        fail(MOE_ERROR_INVALID_ARGUMENT,
             "kernel_filter forces {} and {}, of which the stage {} can have but one",
             candidate.name(), also_forced->name(), stage_name(candidate.stage));
}

Wish KernelFilter::wish(const Candidate& candidate) const {
    Wish wish = Wish::none;
    for_each([&](const Item& item) {
        if (item.matches(candidate)) wish = item.wish;
    });
    return wish;
}

bool KernelFilter::forces_another(const Candidate& candidate) const {
    return std::any_of(all_.begin(), all_.end(), [&](const Candidate& other) {
        return &other != &candidate && other.stage == candidate.stage && other.applicable &&
               wish(other) == Wish::force &&
               (other.tokens == Tokens::any || other.tokens == candidate.tokens);
    });
}

}  // namespace moe
