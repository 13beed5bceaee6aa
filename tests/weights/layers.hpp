// Layers, plans and slices that the tests of loading share.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "libmoe/weights/weights.hpp"
#include "tests/support/matrices.hpp"

namespace moe::test {

struct PlanChoices {
    const moe_slice* slice = nullptr;
    uint32_t stages = 0;
    moe_residency residency = MOE_RESIDENCY_AUTO;
};

inline moe_test::Plan make_plan(const LayerTensors& layer, const PlanChoices& choices = {}) {
    auto desc = moe_test::sized<moe_plan_desc>();
    desc.device = MOE_DEVICE_CPU;
    desc.layer = &layer.layer.desc;
    desc.x_type = MOE_TYPE_F32;
    desc.formats = layer.formats;
    desc.n_formats = MOE_ROLE_COUNT;
    desc.slice = choices.slice;
    desc.partial = choices.slice != nullptr;
    desc.stages = choices.stages;
    desc.residency = choices.residency;
    desc.max_tokens = 4;
    moe_plan* plan = nullptr;
    EXPECT_MOE_OK(moe_plan_create(nullptr, &desc, &plan));
    return moe_test::Plan(plan);
}

// A hash table of a layer as a tensor.
struct HashTable {
    HashTable(int64_t vocabulary, int64_t top_k, std::vector<int32_t> ids) : ids_(std::move(ids)) {
        format_.type = MOE_TYPE_I32;
        tensor.role = MOE_ROLE_HASH_TABLE;
        tensor.format = &format_;
        tensor.rows = vocabulary;
        tensor.columns = top_k;
        tensor.data = ids_.data();
        tensor.data_bytes = ids_.size() * sizeof ids_[0];
    }
    HashTable(const HashTable&) = delete;  // tensor points into it
    HashTable& operator=(const HashTable&) = delete;

    const std::vector<int32_t>& ids() const { return ids_; }
    moe_tensor tensor = moe_test::sized<moe_tensor>();

  private:
    std::vector<int32_t> ids_;
    moe_format format_ = moe_test::sized<moe_format>();
};

// The tensors of a layer but for those of some roles.
inline std::vector<const moe_tensor*> tensors_without(const LayerTensors& layer,
                                                      std::initializer_list<moe_role> roles) {
    std::vector<const moe_tensor*> rest;
    for (const moe_tensor* tensor : layer.tensors)
        if (std::find(roles.begin(), roles.end(), tensor->role) == roles.end())
            rest.push_back(tensor);
    return rest;
}

// Global expert whose tensor lies at a place of the role.
inline int64_t expert_at(const WeightsLayout& layout, moe_role role, int64_t place) {
    if (!is_expert_role(role)) return 0;
    if (role == MOE_ROLE_DOWN_BIAS && layout.down_bias_in_finish()) return place;
    return layout.slice.global_of[static_cast<size_t>(place)];
}

inline moe_layer_desc rich_layer(int32_t hidden = 256, int32_t intermediate = 512,
                                 int32_t n_experts = 5) {
    moe_layer_desc desc = plain_layer(hidden, intermediate, n_experts, 2);
    desc.has_router_bias = desc.has_selection_bias = desc.has_expert_scale = 1;
    desc.has_router_norm = desc.has_router_norm_weight = 1;
    desc.router_norm_eps = 1e-6f;
    desc.has_gate_bias = desc.has_up_bias = desc.has_down_bias = 1;
    desc.shared_intermediate = 256;
    desc.shared_activation = MOE_ACTIVATION_SILU;
    desc.shared_is_gated = 1;
    desc.has_shared_expert_gate = 1;
    return desc;
}

// With a first, a middle and a last expert: for tests of every format.
inline moe_layer_desc three_rich_experts() {
    return rich_layer(256, 512, 3);
}

inline moe_slice odd_experts(const std::vector<int32_t>& map) {
    auto slice = moe_test::sized<moe_slice>();
    slice.expert_to_local = map.data();
    slice.n_expert_to_local = static_cast<int32_t>(map.size());
    return slice;
}

// Tensors as files have them at their most awkward: padded rows, scales and experts; a pointer per
// expert.
inline LayerChoices padded_and_by_table(const char* format) {
    LayerChoices choices{.everywhere = format};
    choices.placings[MOE_ROLE_UP] = {
        .row_padding = 8, .scale_row_padding = 4, .expert_padding = 64};
    choices.placings[MOE_ROLE_DOWN] = {.by_table = true};
    return choices;
}

// The tensors of a layer of five experts one expert at a time, the last expert first.
inline std::vector<moe_tensor> singles_of(const LayerTensors& layer) {
    std::vector<moe_tensor> singles;
    for (const moe_tensor* tensor : layer.tensors)
        for (int32_t e = 4; e >= (is_expert_role(tensor->role) ? 0 : 4); --e)
            singles.push_back(is_expert_role(tensor->role) ? layer.stack(tensor->role).single(e)
                                                           : *tensor);
    return singles;
}

}  // namespace moe::test
