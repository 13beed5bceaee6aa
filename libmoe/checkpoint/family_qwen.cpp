// The Qwen mixtures: softmax over all experts, top-k, divided by the plain sum when norm_topk_prob
// says so; Qwen2-MoE and Qwen3-Next have a shared expert behind a sigmoid gate.
#include <string>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/families.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

// Of merged tensors that may lie either way, by their shapes: where down's are alike both ways
// gate_up's are not.
moe_orientation orientation_of_stacks(LayerBuilder& layer) {
    const int64_t hidden = layer.desc().hidden, width = layer.desc().intermediate;
    const bool by_down = hidden != width;
    const TensorEntry* stack = layer.find(by_down ? "experts.down_proj" : "experts.gate_up_proj");
    const bool is_out_in =
        stack && stack->rank == 3 && stack->shape[1] == (by_down ? hidden : 2 * width);
    return is_out_in ? MOE_ORIENTATION_OUT_IN : MOE_ORIENTATION_IN_OUT;
}

// The default of norm_topk_prob is that of the family's configuration class in transformers.
void build_qwen(LayerBuilder& layer, bool default_norm, FusedForm form = {},
                const char* width = "moe_intermediate_size") {
    read_sizes(layer, {width});
    set_activation(layer);
    const bool norm = layer.settings().flag({"norm_topk_prob"}, default_norm);
    set_softmax_routing(layer.desc(), norm);
    add_router(layer, "gate.weight");
    if (form.orientation == MOE_ORIENTATION_IN_OUT) form.orientation = orientation_of_stacks(layer);
    add_experts(layer, form);
}

void add_gated_shared_expert(LayerBuilder& layer) {
    const auto width =
        layer.settings().find_integer({"shared_expert_intermediate_size"}, 0, 1 << 24);
    const bool wanted = width.value_or(0) > 0 || layer.has_weight("shared_expert.gate_proj.weight");
    if (!wanted) return;
    add_shared_expert(layer, "shared_expert.");
    add_shared_expert_gate(layer, "shared_expert_gate.weight");
}

}  // namespace

void build_qwen2_moe(LayerBuilder& layer) {
    build_qwen(layer, false);
    add_gated_shared_expert(layer);
}

void build_qwen3_moe(LayerBuilder& layer) {
    build_qwen(layer, false);
}

void build_qwen3_next(LayerBuilder& layer) {
    build_qwen(layer, true);
    add_gated_shared_expert(layer);
}

// As released, merged tensors are [E, in, out]; transformers 5 writes the same names as [E, out,
// in].
void build_qwen3_vl_moe(LayerBuilder& layer) {
    build_qwen(layer, true, {MOE_ORIENTATION_IN_OUT, MOE_GATE_UP_GATE_FIRST});
}

void build_mellum(LayerBuilder& layer) {
    build_qwen(layer, true);
}

// The shared expert has no gate.
void build_lara_mini(LayerBuilder& layer) {
    build_qwen(layer, true);
    add_any_shared_expert(layer, {"shared_expert."});
}

void build_olmoe(LayerBuilder& layer) {
    build_qwen(layer, false, {}, "intermediate_size");
}

// The shared expert has no key. Older files have gate and up of an expert in one matrix, up first.
void build_hunyuan_v1_moe(LayerBuilder& layer) {
    constexpr FusedForm up_first = {MOE_ORIENTATION_OUT_IN, MOE_GATE_UP_UP_FIRST};
    read_sizes(layer, {"moe_intermediate_size", "intermediate_size"});
    set_activation(layer);
    set_softmax_routing(layer.desc(), true);
    add_router(layer, first_weight(layer, {"gate.wg.weight", "gate.weight"}));
    const moe_layer_desc& desc = layer.desc();
    if (!layer.has_weight("experts.0.gate_and_up_proj.weight")) {
        add_experts(layer);
        return add_any_shared_expert(layer, {"shared_mlp."});
    }
    for (int32_t e = 0; e < desc.n_experts; ++e) {
        const std::string stem = "experts." + std::to_string(e) + ".";
        layer.weight(
            stem + "gate_and_up_proj.weight",
            {MOE_ROLE_GATE_UP, e, int64_t{2} * desc.intermediate, desc.hidden, true, up_first});
        layer.weight(stem + "down_proj.weight", {MOE_ROLE_DOWN, e, desc.hidden, desc.intermediate});
    }
    if (layer.has_weight("shared_mlp.gate_and_up_proj.weight"))
        add_shared_gate_up(layer, "shared_mlp.gate_and_up_proj.weight",
                           "shared_mlp.down_proj.weight", up_first);
}

// Softmax with a selection bias; the sum is at least moe_norm_min.
void build_ernie4_5_moe(LayerBuilder& layer) {
    read_sizes(layer, {"moe_intermediate_size"});
    set_activation(layer);
    moe_layer_desc& desc = layer.desc();
    desc.score = MOE_SCORE_SOFTMAX;
    desc.renormalize = MOE_RENORMALIZE_SUM_CLAMP;
    desc.renormalize_eps = layer.settings().find_number("moe_norm_min").value_or(1e-12f);
    add_router(layer, "gate.weight");
    add_selection_bias(
        layer, {"moe_statics.e_score_correction_bias", "gate.moe_statics.e_score_correction_bias"});
    add_experts(layer);
    add_any_shared_expert(layer, {"shared_experts."});
}

// Experts that return their input take part in the softmax and in the selection. Never normalised.
void build_longcat_flash(LayerBuilder& layer) {
    const Settings& settings = layer.settings();
    read_sizes(layer, {"expert_ffn_hidden_size", "moe_intermediate_size"});
    set_activation(layer);
    moe_layer_desc& desc = layer.desc();
    desc.score = MOE_SCORE_SOFTMAX;
    desc.n_experts = static_cast<int32_t>(settings.integer({"n_routed_experts"}, 1, 4096));
    desc.n_identity_experts =
        static_cast<int32_t>(settings.find_integer({"zero_expert_num"}, 0, 4096).value_or(0));
    const auto kind = settings.find_text("zero_expert_type").value_or("identity");
    if (kind != "identity")
        fail(MOE_ERROR_UNSUPPORTED, "{}: zero_expert_type '{}' is not known", settings.file(),
             printable(kind).text);
    set_routed_scale(layer, "routed_scaling_factor", 6.0f);
    add_router(layer, "router.classifier.weight");
    if (layer.find("router.classifier.bias")) {
        desc.has_router_bias = 1;
        layer.vector("router.classifier.bias",
                     {MOE_ROLE_ROUTER_BIAS, 0, 1, desc.n_experts + desc.n_identity_experts});
    }
    add_selection_bias(layer, {"router.e_score_correction_bias"});
    add_experts(layer);
}

}  // namespace moe
