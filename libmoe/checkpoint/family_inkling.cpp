// Inkling: the router has rows for the shared experts as well, and divides the sigmoids of the
// chosen and of the shared ones by their sum. So the shared experts are here the last of the routed
// ones, with a selection bias beyond any score: every token takes them, first of all. Inkling 2 has
// no shared experts, and soft caps around its gate and up.
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
                            .n_stacked = n == layer.desc().n_experts ? 0 : n,
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

void require_sigmoid(const Settings& settings, const char* key) {
    const auto score = settings.find_text(key);
    if (score && *score != "sigmoid")
        fail(MOE_ERROR_UNSUPPORTED, "{}: '{}' is {}, but models of this family have sigmoid",
             settings.file(), key, printable(*score).text);
}

// In the models' own files the second is the width of an expert and dense_intermediate_size that
// of a dense MLP.
void read_inkling_sizes(LayerBuilder& layer) {
    read_sizes(layer, {"moe_intermediate_size", "intermediate_size"});
    moe_layer_desc& desc = layer.desc();
    desc.score = MOE_SCORE_SIGMOID;
    desc.renormalize = MOE_RENORMALIZE_SUM_ADD;
    set_routed_scale(layer, "route_scale", 8.0f);
}

constexpr std::string_view bias_names[] = {"gate.bias", "gate.e_score_correction_bias"};

}  // namespace

void build_inkling(LayerBuilder& layer) {
    const Settings& settings = layer.settings();
    for (const char* key :
         {"use_gate_bias", "use_global_scale", "norm_after_topk", "shared_expert_sink"})
        require_flag(settings, key, true);
    require_sigmoid(settings, "gate_activation");
    read_inkling_sizes(layer);
    set_activation(layer);
    moe_layer_desc& desc = layer.desc();
    desc.routed_scale *= layer.scalar("gate.global_scale");
    const int32_t n_routed = desc.n_experts;
    const auto n_shared =
        static_cast<int32_t>(settings.find_integer({"n_shared_experts"}, 0, 32).value_or(2));
    desc.n_experts += n_shared;
    desc.top_k += n_shared;
    add_router(layer, "gate.weight");
    desc.has_selection_bias = 1;
    layer.vector_and(first_weight(layer, {bias_names[0], bias_names[1]}),
                     {MOE_ROLE_SELECTION_BIAS, 0, 1, desc.n_experts}, chosen_always, n_shared);
    add_stacks(layer, routed_names, 0, n_routed);
    if (n_shared) add_stacks(layer, shared_names, n_routed, n_shared);
}

void build_inkling2(LayerBuilder& layer) {
    const Settings& settings = layer.settings();
    require_sigmoid(settings, "scoring_func");
    read_inkling_sizes(layer);
    moe_layer_desc& desc = layer.desc();
    desc.renormalize_eps = 1e-20f;
    set_activation(layer);
    if (desc.activation != MOE_ACTIVATION_SILU)
        fail(MOE_ERROR_UNSUPPORTED, "{}: hidden_act is not silu", settings.file());
    desc.activation = MOE_ACTIVATION_SITU;
    desc.situ_beta = settings.find_number("mlp_gate_softcap").value_or(4.0f);
    desc.situ_beta_up = settings.find_number("mlp_up_softcap").value_or(25.0f);
    add_router(layer, "gate.weight");
    add_selection_bias(layer, {bias_names[0], bias_names[1]});
    add_stacks(layer, routed_names, 0, desc.n_experts);
}

}  // namespace moe
