// Mixtral: softmax over all experts, top-k, divided by the plain sum. block_sparse_moe with
// w1/w3/w2 as released. And those with a softmax and names of their own: Phi-3.5-MoE, Jamba, DBRX,
// Granite, Cohere.
#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/families.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

void set_softmax_of_selected(moe_layer_desc& desc) {
    desc.score = MOE_SCORE_NONE;
    desc.post_score = MOE_SCORE_SOFTMAX;
}

}  // namespace

void build_mixtral(LayerBuilder& layer) {
    read_sizes(layer, {"intermediate_size"});
    set_activation(layer);
    set_softmax_routing(layer.desc(), true);
    add_router(layer, "gate.weight");
    add_experts(layer);
}

// Merged tensors under names of their own.
void build_iquest_q1(LayerBuilder& layer) {
    read_sizes(layer, {"intermediate_size"});
    set_activation(layer);
    set_softmax_routing(layer.desc(), true);
    add_router(layer, "router.weight");
    const int64_t hidden = layer.desc().hidden, width = layer.desc().intermediate;
    layer.weight("experts.fc", {MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS, 2 * width, hidden, true});
    layer.weight("experts.proj", {MOE_ROLE_DOWN, MOE_ALL_EXPERTS, hidden, width, true});
}

void build_phimoe(LayerBuilder& layer) {
    read_sizes(layer, {"intermediate_size"});
    set_activation(layer);
    layer.desc().selection = MOE_SELECT_SPARSEMIXER;
    layer.desc().sparsemixer_jitter =
        layer.settings().find_number("router_jitter_noise").value_or(0.01f);
    add_router(layer, first_weight(layer, {"gate.weight", "router.weight"}));
    add_experts(layer);
}

void build_jamba(LayerBuilder& layer) {
    read_sizes(layer, {"intermediate_size"});
    set_activation(layer);
    set_softmax_routing(layer.desc(), false);
    add_router(layer, "router.weight");
    add_experts(layer);
}

// All experts of a matrix one below the other; w2 is multiplied from the right, so it is stored as
// [E * in, out].
void build_dbrx(LayerBuilder& layer) {
    read_sizes(layer, {"ffn_config.ffn_hidden_size"});
    set_activation(layer);
    moe_layer_desc& desc = layer.desc();
    // The weights' norm of this order; only the sum is a rule of moe_layer_desc.
    const Settings& settings = layer.settings();
    const float order = settings.find_number("ffn_config.moe_normalize_expert_weights").value_or(1);
    if (order != 1.0f)
        fail(MOE_ERROR_UNSUPPORTED, "{}: ffn_config.moe_normalize_expert_weights is {}, not 1",
             settings.file(), order);
    set_softmax_routing(desc, true);
    add_router(layer, "router.layer.weight");
    const int64_t hidden = desc.hidden, width = desc.intermediate;
    constexpr FusedForm transposed = {MOE_ORIENTATION_IN_OUT, MOE_GATE_UP_GATE_FIRST};
    layer.flat_stack("experts.mlp.w1", {MOE_ROLE_GATE, MOE_ALL_EXPERTS, width, hidden});
    layer.flat_stack("experts.mlp.v1", {MOE_ROLE_UP, MOE_ALL_EXPERTS, width, hidden});
    layer.flat_stack("experts.mlp.w2",
                     {MOE_ROLE_DOWN, MOE_ALL_EXPERTS, hidden, width, true, transposed});
}

// Softmax of the logits chosen. The block's shared expert lies beside it: names are those of the
// whole layer. transformers' own names for the stacks, and one by one as quantisers write them, are
// those of others.
void build_granitemoe(LayerBuilder& layer) {
    read_sizes(layer, {"intermediate_size"});
    set_activation(layer);
    moe_layer_desc& desc = layer.desc();
    set_softmax_of_selected(desc);
    add_router(layer, first_weight(layer, {"block_sparse_moe.router.layer.weight",
                                           "block_sparse_moe.router.weight"}));
    const int64_t hidden = desc.hidden, width = desc.intermediate;
    if (!stack_stem(layer).empty() || layer.has_any("block_sparse_moe.experts.")) {
        add_experts(layer, {}, "block_sparse_moe.experts.");
    } else {
        layer.weight("block_sparse_moe.input_linear.weight",
                     {MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS, 2 * width, hidden, true});
        layer.weight("block_sparse_moe.output_linear.weight",
                     {MOE_ROLE_DOWN, MOE_ALL_EXPERTS, hidden, width, true});
    }
    const auto shared = layer.settings().find_integer({"shared_intermediate_size"}, 0, 1 << 24);
    if (shared.value_or(0) > 0 || layer.has_any("shared_mlp."))
        add_shared_gate_up(layer, "shared_mlp.input_linear.weight",
                           "shared_mlp.output_linear.weight", {});
}

void build_cohere2_moe(LayerBuilder& layer) {
    const Settings& settings = layer.settings();
    read_sizes(layer, {"intermediate_size"});
    set_activation(layer);
    moe_layer_desc& desc = layer.desc();
    const auto name = settings.find_text("expert_selection_fn").value_or("softmax");
    set_softmax_of_selected(desc);
    if (name == "sigmoid") {
        desc.post_score = MOE_SCORE_SIGMOID;
        if (settings.flag({"norm_topk_prob"}, true)) desc.renormalize = MOE_RENORMALIZE_SUM_ADD;
    } else if (name != "softmax") {
        fail(MOE_ERROR_UNSUPPORTED, "{}: expert_selection_fn '{}' is not known", settings.file(),
             printable(name).text);
    }
    add_router(layer, "gate.weight");
    add_experts(layer);
    add_any_shared_expert(layer, {"shared_experts."});
    if (!desc.shared_intermediate) return;
    const auto rule = settings.find_text("shared_expert_combination_strategy").value_or("average");
    if (rule == "average") {
        desc.combine = MOE_COMBINE_MEAN;
    } else if (rule != "sum") {
        fail(MOE_ERROR_UNSUPPORTED, "{}: shared_expert_combination_strategy '{}' is not known",
             settings.file(), printable(rule).text);
    }
}

}  // namespace moe
