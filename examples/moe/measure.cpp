// measure.cpp - counts and bytes from what the library reports.
#include "measure.hpp"

#include <algorithm>

namespace moe::cli {
namespace {

bool is_routed(size_t role) {
    return (role >= MOE_ROLE_GATE && role <= MOE_ROLE_GATE_UP_BIAS) ||
           role == MOE_ROLE_EXPERT_SCALE;
}

}  // namespace

int64_t experts_hit(const CallResult& result) {
    return std::count_if(result.counts.begin(), result.counts.end(),
                         [](int64_t n) { return n > 0; });
}

uint64_t touched_bytes(const moe_memory_report& report, int64_t n_hit) {
    uint64_t routed = 0;
    uint64_t rest = 0;
    for (size_t role = 0; role < MOE_ROLE_COUNT; ++role) {
        (is_routed(role) ? routed : rest) += report.role_bytes[role];
    }
    const uint64_t one_expert = report.n_local_experts > 0 ? routed / report.n_local_experts : 0;
    return one_expert * static_cast<uint64_t>(n_hit) + rest;
}

double median(std::vector<double> values) {
    if (values.empty()) return 0.0;
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

std::vector<std::pair<std::string, std::string>> kernels_of(const moe_plan* plan,
                                                            int64_t n_tokens) {
    constexpr std::pair<moe_stage, const char*> stages[] = {{MOE_STAGE_ROUTE, "route"},
                                                            {MOE_STAGE_DISPATCH, "dispatch"},
                                                            {MOE_STAGE_EXPERTS, "experts"},
                                                            {MOE_STAGE_COMBINE, "combine"},
                                                            {MOE_STAGE_FINISH, "finish"}};
    std::vector<std::pair<std::string, std::string>> kernels;
    for (const auto& [stage, stage_name] : stages) {
        const char* kernel = nullptr;
        if (moe_plan_kernel(plan, stage, n_tokens, &kernel) == MOE_OK && kernel)
            kernels.emplace_back(stage_name, kernel);
    }
    return kernels;
}

moe_memory_report memory_of(const moe_weights* weights) {
    auto report = sized<moe_memory_report>();
    check(moe_weights_memory(weights, &report));
    return report;
}

}  // namespace moe::cli
