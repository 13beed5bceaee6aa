// Inkling: the router has rows for the shared experts as well, and divides the sigmoids of the
// chosen and of the shared ones by their sum. So the shared experts are here the last of the routed
// ones, with a selection bias beyond any score: every token takes them, first of all.
#include <limits>
#include <string>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/families.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

constexpr float chosen_always = std::numeric_limits<float>::max();

// The names of the stacks of one kind of experts, up to three; gate_up or gate and up.
struct StackNames {
    const char* gate_up;
    const char* gate;
    const char* up;
    const char* down;
    moe_gate_up_order order = MOE_GATE_UP_GATE_FIRST;
};

// The model's own files; transformers; MLX.
constexpr StackNames routed_names[] = {
    {"experts.w13_weight", nullptr, nullptr, "experts.w2_weight", MOE_GATE_UP_INTERLEAVED},
    {"experts.gate_up_proj", nullptr, nullptr, "experts.down_proj"},
    {nullptr, "switch_mlp.gate_proj.weight", "switch_mlp.up_proj.weight",
     "switch_mlp.down_proj.weight"},
};
constexpr StackNames shared_names[] = {
    {"shared_experts.shared_w13_weight", nullptr, nullptr, "shared_experts.shared_w2_weight",
     MOE_GATE_UP_INTERLEAVED},
    {nullptr, "shared_experts.gate_proj", "shared_experts.up_proj", "shared_experts.down_proj"},
    {nullptr, "shared_experts.gate_proj.weight", "shared_experts.up_proj.weight",
     "shared_experts.down_proj.weight"},
};

void add_stacks(LayerBuilder& layer, std::span<const StackNames> spellings, int32_t first,
                int32_t n) {
    const int64_t hidden = layer.desc().hidden, width = layer.desc().intermediate;
    const StackNames* names = &spellings.front();
    for (const StackNames& one : spellings)
        if (layer.has_weight(one.gate_up ? one.gate_up : one.gate)) names = &one;
    const auto add = [&](const char* name, moe_role role, int64_t rows, int64_t columns) {
        layer.weight(name, {.role = role,
                            .expert = MOE_ALL_EXPERTS,
                            .rows = rows,
                            .columns = columns,
                            .form = {MOE_ORIENTATION_OUT_IN, names->order},
                            .n_stacked = n,
                            .first_stacked = first});
    };
    if (names->gate_up) {
        add(names->gate_up, MOE_ROLE_GATE_UP, 2 * width, hidden);
    } else {
        add(names->gate, MOE_ROLE_GATE, width, hidden);
        add(names->up, MOE_ROLE_UP, width, hidden);
    }
    add(names->down, MOE_ROLE_DOWN, hidden, width);
}

void require_rules(const Settings& settings) {
    for (const char* key :
         {"use_gate_bias", "use_global_scale", "norm_after_topk", "shared_expert_sink"})
        require_flag(settings, key, true);
    const auto score = settings.find_text("gate_activation");
    if (score && *score != "sigmoid")
        fail(MOE_ERROR_UNSUPPORTED,
             "{}: 'gate_activation' is {}, but models of this family have sigmoid", settings.file(),
             printable(*score).text);
}

}  // namespace

void build_inkling(LayerBuilder& layer) {
    const Settings& settings = layer.settings();
    require_rules(settings);
    // In the model's own files the second is the width of an expert and dense_intermediate_size
    // that of a dense MLP.
    read_sizes(layer, {"moe_intermediate_size", "intermediate_size"});
    set_activation(layer);
    moe_layer_desc& desc = layer.desc();
    const int32_t n_routed = desc.n_experts;
    const auto n_shared =
        static_cast<int32_t>(settings.find_integer({"n_shared_experts"}, 0, 32).value_or(2));
    desc.n_experts += n_shared;
    desc.top_k += n_shared;
    desc.score = MOE_SCORE_SIGMOID;
    desc.renormalize = MOE_RENORMALIZE_SUM_ADD;
    set_routed_scale(layer, "route_scale", 8.0f);
    desc.routed_scale *= layer.scalar("gate.global_scale");
    add_router(layer, "gate.weight");
    desc.has_selection_bias = 1;
    layer.vector_and(first_weight(layer, {"gate.bias", "gate.e_score_correction_bias"}),
                     {MOE_ROLE_SELECTION_BIAS, 0, 1, desc.n_experts}, chosen_always, n_shared);
    add_stacks(layer, routed_names, 0, n_routed);
    if (n_shared) add_stacks(layer, shared_names, n_routed, n_shared);
}

}  // namespace moe
