// Makes a Slice from a moe_slice and checks its rules. Inputs: layer, slice, and the grid on which
// ranges may begin. Output: the maps between global and local experts and the two ranges of
// features.
#include "libmoe/layer/slice.hpp"

#include <algorithm>
#include <numeric>

#include "libmoe/base/error.hpp"

namespace moe {
namespace {

// Every intermediate size is a multiple of this, and so is every part of one.
constexpr int64_t feature_step = 16;

void expect_no_range(bool has, int32_t begin, int32_t count, const char* name) {
    require(has || begin == 0, "{0}_begin is {1} but has_{0}_range is 0", name, begin);
    require(has || count == 0, "{0}_count is {1} but has_{0}_range is 0", name, count);
}

void set_expert_range(const moe_slice& desc, int32_t n_experts, Slice& slice) {
    const int32_t begin = desc.expert_begin, count = desc.expert_count;
    require(begin >= 0 && begin < n_experts, "expert_begin is {}; the layer has {} experts", begin,
            n_experts);
    require(count >= 1 && count <= n_experts - begin,
            "expert_count is {}; from expert_begin {} it must be 1 to {}", count, begin,
            n_experts - begin);
    slice.global_of.resize(static_cast<size_t>(count));
    std::iota(slice.global_of.begin(), slice.global_of.end(), begin);
    for (int32_t i = 0; i < count; i++) slice.local_of[static_cast<size_t>(begin + i)] = i;
}

void set_expert_map(const moe_slice& desc, int32_t n_experts, Slice& slice) {
    require(desc.n_expert_to_local == n_experts,
            "n_expert_to_local is {}; the layer has {} experts", desc.n_expert_to_local, n_experts);
    const int32_t* map = desc.expert_to_local;
    const auto n_local = static_cast<int32_t>(n_experts - std::count(map, map + n_experts, -1));
    require(n_local > 0, "expert_to_local is -1 for all {} experts", n_experts);
    slice.global_of.assign(static_cast<size_t>(n_local), -1);
    for (int32_t e = 0; e < n_experts; e++) {
        const int32_t local = map[e];
        slice.local_of[static_cast<size_t>(e)] = local;
        if (local == -1) continue;
        require(local >= 0 && local < n_local,
                "expert_to_local[{}] is {}; of {} local experts it must be 0 to {}, or -1", e,
                local, n_local, n_local - 1);
        int32_t& global = slice.global_of[static_cast<size_t>(local)];
        require(global == -1, "expert_to_local[{}] is {}, as expert_to_local[{}] is", e, local,
                global);
        global = e;
    }
}

void set_all_experts(int32_t n_experts, Slice& slice) {
    slice.global_of.resize(static_cast<size_t>(n_experts));
    std::iota(slice.global_of.begin(), slice.global_of.end(), 0);
    slice.local_of = slice.global_of;
}

void set_experts(const moe_slice& desc, int32_t n_experts, Slice& slice) {
    check_flag(desc.has_expert_range, "has_expert_range");
    expect_no_range(desc.has_expert_range, desc.expert_begin, desc.expert_count, "expert");
    require(!desc.expert_to_local || !desc.has_expert_range,
            "expert_to_local is given but has_expert_range is 1");
    require(desc.expert_to_local || desc.n_expert_to_local == 0,
            "n_expert_to_local is {} but expert_to_local is NULL", desc.n_expert_to_local);
    if (!desc.expert_to_local && !desc.has_expert_range) return set_all_experts(n_experts, slice);
    slice.local_of.assign(static_cast<size_t>(n_experts), -1);
    if (desc.has_expert_range) return set_expert_range(desc, n_experts, slice);
    set_expert_map(desc, n_experts, slice);
}

// One of the two ranges of features, routed or shared.
struct FeatureRange {
    const char* name;  // "intermediate" or "shared"
    bool has;
    int64_t begin, count, total;
    RangeGrid grid;
};

void check_on_grid(const FeatureRange& range, int64_t value, const char* what, int64_t step) {
    if (value % step == 0 || value == range.total) return;
    const int64_t below = value / step * step;
    const int64_t above = std::min(below + step, range.total);
    fail(MOE_ERROR_INVALID_ARGUMENT,
         "{}{} is {}, off the grid of {} that the formats need; the nearest legal are {} and {}",
         range.name, what, value, step, below, above);
}

// Checks the range; returns false when it is the whole intermediate.
bool check_features(const FeatureRange& range) {
    if (!range.has) return false;
    require(range.total > 0, "has_{}_range is 1 but the layer has no shared expert", range.name);
    require(range.begin >= 0 && range.begin < range.total, "{0}_begin is {1}; {0} has {2} features",
            range.name, range.begin, range.total);
    require(range.count >= 1 && range.count <= range.total - range.begin,
            "{0}_count is {1}; from {0}_begin {2} it must be 1 to {3}", range.name, range.count,
            range.begin, range.total - range.begin);
    const int64_t step = std::lcm(feature_step, std::lcm(range.grid.rows, range.grid.columns));
    check_on_grid(range, range.begin, "_begin", step);
    check_on_grid(range, range.begin + range.count, "_begin + count", step);
    return range.count < range.total;
}

void set_intermediate(const moe_slice& desc, const Layer& layer, const RangeGrid& grid,
                      Slice& slice) {
    check_flag(desc.has_intermediate_range, "has_intermediate_range");
    const bool has = desc.has_intermediate_range;
    expect_no_range(has, desc.intermediate_begin, desc.intermediate_count, "intermediate");
    if (!check_features({"intermediate", has, desc.intermediate_begin, desc.intermediate_count,
                         layer.intermediate, grid})) {
        return;
    }
    require(
        !layer.has_expert_norm,
        "intermediate_count is {} of {}, but has_expert_norm is 1: the norm of an expert's output "
        "needs the whole sum",
        desc.intermediate_count, layer.intermediate);
    slice.whole_intermediate = false;
    slice.intermediate_begin = desc.intermediate_begin;
    slice.intermediate_count = desc.intermediate_count;
}

void set_shared(const moe_slice& desc, const Layer& layer, const RangeGrid& grid, Slice& slice) {
    check_flag(desc.has_shared_range, "has_shared_range");
    const bool has = desc.has_shared_range;
    expect_no_range(has, desc.shared_begin, desc.shared_count, "shared");
    if (!check_features({"shared", has, desc.shared_begin, desc.shared_count,
                         layer.shared_intermediate, grid})) {
        return;
    }
    slice.whole_shared = false;
    slice.shared_begin = desc.shared_begin;
    slice.shared_count = desc.shared_count;
}

}  // namespace

bool Slice::every_id_is_local() const {
    for (size_t e = 0; e < local_of.size(); e++)
        if (local_of[e] != static_cast<int32_t>(e)) return false;
    return true;
}

Slice make_slice(std::pmr::memory_resource& memory, const Layer& layer, const moe_slice* slice,
                 const SliceGrid& grid) {
    const moe_slice whole{};
    const moe_slice& desc = slice ? *slice : whole;
    Slice result(memory);
    set_experts(desc, layer.n_experts, result);
    result.n_local = static_cast<int32_t>(result.global_of.size());
    result.all_experts = result.n_local == layer.n_experts;
    result.intermediate_count = layer.intermediate;
    result.shared_count = layer.shared_intermediate;
    set_intermediate(desc, layer, grid.routed, result);
    set_shared(desc, layer, grid.shared, result);
    return result;
}

}  // namespace moe
