// The Qwen mixtures: softmax over all experts, top-k, divided by the plain sum when norm_topk_prob
// says so; Qwen2-MoE and Qwen3-Next have a shared expert behind a sigmoid gate.
#include "libmoe/checkpoint/families.hpp"

namespace moe {
namespace {

// The default of norm_topk_prob is that of the family's configuration class in transformers.
void build_qwen(LayerBuilder& layer, bool default_norm) {
    read_sizes(layer, {"moe_intermediate_size"});
    set_activation(layer);
    const bool norm = layer.settings().find_flag("norm_topk_prob").value_or(default_norm);
    set_softmax_routing(layer.desc(), norm);
    add_router(layer, "gate.weight");
    add_experts(layer);
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

}  // namespace moe
