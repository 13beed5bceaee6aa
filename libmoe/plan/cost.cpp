// The cost model: cost.hpp.
#include "libmoe/plan/cost.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "libmoe/plan/cost_constants.hpp"
#include "libmoe/plan/plan.hpp"

namespace moe {
namespace {

// Types without constants cost what their likes do, as far as is known.
PackedType like(PackedType type) {
    switch (type) {
        case PackedType::f16:
            return PackedType::bf16;
        case PackedType::kbit2_f32:
            return PackedType::kbit2;
        case PackedType::kbit3_f32:
            return PackedType::kbit3;
        case PackedType::kbit4_f32:
            return PackedType::kbit4;
        case PackedType::kbit5_f32:
            return PackedType::kbit5;
        case PackedType::grid_1:
        case PackedType::grid_2:
        case PackedType::grid_3:
        case PackedType::grid_5:
            return PackedType::grid_4;
        case PackedType::grid_6:
        case PackedType::grid_7:
            return PackedType::grid_8;
        default:
            return type;
    }
}

// Null where nothing like it was measured.
const CostConstants* constants_of(cuda::Family family, PackedType type) {
    const PackedType kind = kind_of(type);
    for (const KernelCost& one : kernel_costs)
        if (one.family == family && one.type == kind) return &one.constants;
    return like(kind) == kind ? nullptr : constants_of(family, like(kind));
}

void add_matrices(const DevicePlacement& placement, std::initializer_list<moe_role> roles,
                  ExpertWork& work) {
    for (const moe_role role : roles) {
        const DevicePlacement::Region& region = placement.matrices[role];
        if (placement.is_up_half(role) || region.n_tiles == 0) continue;
        work.weights += 16.0 * region.n_tiles * region.k;
        work.bytes += static_cast<double>(region.n_tiles) *
                      static_cast<double>(tile_bytes(region.type, region.k));
    }
}

}  // namespace

ExpertWork work_of_experts(const moe_plan& plan, const DevicePlacement& placement, bool joined) {
    const Layer& layer = plan.layout.layer;
    const int32_t shared = joined ? 1 : 0;
    ExpertWork work{};
    work.n_slots = layer.top_k + shared;
    work.n_experts = layer.n_experts + shared;
    work.n_local = plan.layout.slice.n_local + shared;
    work.width = layer.expert_width();
    work.n_shared = shared;
    add_matrices(placement, {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN}, work);
    return work;
}

ExpertWork work_of_shared(const moe_plan& plan, const DevicePlacement& placement) {
    ExpertWork work{};
    work.n_slots = work.n_experts = work.n_local = 1;
    work.width = plan.layout.layer.hidden;
    add_matrices(placement, {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP, MOE_ROLE_SHARED_DOWN}, work);
    return work;
}

DeviceRates::DeviceRates(const cuda::NominalRates& nominal)
    : latency_us(1.6),
      bytes_per_us(0.95 * nominal.bytes_per_us),
      flops_per_us(0.63 * nominal.flops_per_us) {}

ExpertTerms::ExpertTerms(const ExpertWork& work, const DeviceRates& rates) {
    const auto n_tokens = static_cast<double>(work.n_tokens);
    const double n_routed = work.n_experts - work.n_shared;
    const double routed_here = work.n_local - work.n_shared;
    const double routed_slots = work.n_slots - work.n_shared;
    const double slots = n_tokens * (routed_here / n_routed * routed_slots + work.n_shared);
    const double missed = std::pow(1.0 - routed_slots / n_routed, n_tokens);
    const double met = routed_here * (1.0 - missed) + work.n_shared;
    const double crowd = std::min(1.0, (slots / met - 1.0) / 16.0);
    read_us = rates.latency_us + met * work.bytes / rates.bytes_per_us;
    again_us = (slots - met) * work.bytes / rates.bytes_per_us;
    dequantized = met * work.weights * 1e-6 * crowd;
    gemm_us = 2.0 * slots * work.weights / rates.flops_per_us;
    row_mb = slots * work.width * 2e-6;
}

std::optional<double> predicted_us(cuda::Family family, PackedType type, const ExpertWork& work,
                                   const DeviceRates& rates) {
    const CostConstants* constants = constants_of(family, type);
    const bool has_rates = rates.bytes_per_us > 0 && rates.flops_per_us > 0;
    if (!constants || work.n_tokens < 1 || !has_rates) return std::nullopt;
    const CostConstants& c = *constants;
    const ExpertTerms terms(work, rates);
    return c.fixed + c.read * terms.read_us + c.again * terms.again_us +
           c.dequantize * terms.dequantized + c.multiply * terms.gemm_us + c.rows * terms.row_mb;
}

int32_t gemv_tokens_worth(PackedType type, ExpertWork work, const DeviceRates& rates, int32_t can) {
    // The model is right where experts are equally popular. Where they are not (Zipf 1.2), reading
    // them once saves more, and the more the more tokens there are (bench/notes.md); for a few
    // there is little to share, and fewer kernels are worth what the model may be off by.
    const auto margin = [&] { return work.n_tokens <= 4 ? 1.05 : work.n_tokens <= 16 ? 0.9 : 0.8; };
    const auto is_worth = [&] {
        const auto alone = predicted_us(cuda::Family::sm90_gemv, type, work, rates);
        const auto together = predicted_us(cuda::Family::grouped, type, work, rates);
        if (alone && together) return *alone <= margin() * *together;
        if (work.n_experts == 1) return work.n_tokens <= 4;
        return 2 * work.n_tokens * work.n_slots <= work.n_experts;
    };
    for (work.n_tokens = 2; work.n_tokens <= can; ++work.n_tokens)
        if (!is_worth()) return static_cast<int32_t>(work.n_tokens) - 1;
    return can;
}

std::optional<double> predicted_us(const moe_plan& plan, const DeviceRates& rates) {
    const moe_role first = plan.layout.layer.activation.gated ? MOE_ROLE_GATE : MOE_ROLE_UP;
    ExpertWork work = work_of_experts(plan, plan.placement, plan.cuda.shared_joins);
    double sum = 0;
    for (int64_t done = 0; done < plan.max_tokens; done += work.n_tokens) {
        work.n_tokens = std::min(plan.chunk_tokens(), plan.max_tokens - done);
        const cuda::Family family = plan.chosen(MOE_STAGE_EXPERTS, work.n_tokens).family;
        const auto us = predicted_us(family, plan.placement.matrices[first].type, work, rates);
        if (!us) return std::nullopt;
        sum += *us;
    }
    return sum;
}

}  // namespace moe
