// gpt-oss: experts in MXFP4 blocks (rows of gate and up interleaved) or, dequantised, in bf16
// stacks that are transposed and interleaved as well; biases on router and experts. OpenAI's own
// files have other names for the same, and a config.json without a model type: the option of
// moe_checkpoint_open names the family.
#include <string>

#include "libmoe/checkpoint/families.hpp"

namespace moe {
namespace {

struct Names {
    const char* router;
    const char* router_bias;
    const char* gate_up;
    const char* gate_up_bias;
    const char* down;
    const char* down_bias;
    char mark;
};
constexpr Names transformers = {"router.weight",
                                "router.bias",
                                "experts.gate_up_proj",
                                "experts.gate_up_proj_bias",
                                "experts.down_proj",
                                "experts.down_proj_bias",
                                '_'};
constexpr Names openai = {"mlp.gate.weight",
                          "mlp.gate.bias",
                          "mlp.mlp1_weight",
                          "mlp.mlp1_bias",
                          "mlp.mlp2_weight",
                          "mlp.mlp2_bias",
                          '.'};

// MLX: gate and up apart, "weight", and "bias" of the layer beside the "biases" of codes.
void add_stacks_with_biases(LayerBuilder& layer) {
    const int64_t hidden = layer.desc().hidden, width = layer.desc().intermediate;
    add_experts(layer);
    layer.vector("experts.gate_proj.bias", {MOE_ROLE_GATE_BIAS, MOE_ALL_EXPERTS, 1, width});
    layer.vector("experts.up_proj.bias", {MOE_ROLE_UP_BIAS, MOE_ALL_EXPERTS, 1, width});
    layer.vector("experts.down_proj.bias", {MOE_ROLE_DOWN_BIAS, MOE_ALL_EXPERTS, 1, hidden});
}

}  // namespace

void build_gpt_oss(LayerBuilder& layer) {
    constexpr FusedForm form = {MOE_ORIENTATION_IN_OUT, MOE_GATE_UP_INTERLEAVED};
    read_sizes(layer, {"intermediate_size"});
    moe_layer_desc& desc = layer.desc();
    set_gpt_oss_layer(desc, layer.settings().find_number("swiglu_limit").value_or(7.0f));
    const Names& names = layer.find(openai.router) ? openai : transformers;
    add_router(layer, names.router);
    layer.vector(names.router_bias, {MOE_ROLE_ROUTER_BIAS, 0, 1, desc.n_experts});
    const int64_t hidden = desc.hidden, width = desc.intermediate;
    if (layer.has_weight("experts.gate_proj.weight")) return add_stacks_with_biases(layer);
    const LayerBuilder::Wanted gate_up = {
        MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS, 2 * width, hidden, true, form};
    const LayerBuilder::Wanted down = {MOE_ROLE_DOWN, MOE_ALL_EXPERTS, hidden, width, true, form};
    if (layer.find("experts.gate_up_proj")) {
        layer.weight("experts.gate_up_proj", gate_up);
        layer.weight("experts.down_proj", down);
    } else if (layer.find(std::string(names.gate_up) + names.mark + "blocks")) {
        layer.mxfp4_blocks(names.gate_up, names.mark, gate_up);
        layer.mxfp4_blocks(names.down, names.mark, down);
    } else {
        layer.fail_missing("experts.gate_up_proj_blocks or experts.gate_up_proj");
    }
    layer.vector(names.gate_up_bias,
                 {MOE_ROLE_GATE_UP_BIAS, MOE_ALL_EXPERTS, 1, 2 * width, true, form});
    layer.vector(names.down_bias, {MOE_ROLE_DOWN_BIAS, MOE_ALL_EXPERTS, 1, hidden, true, form});
}

}  // namespace moe
