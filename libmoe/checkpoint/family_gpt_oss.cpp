// gpt-oss: experts in MXFP4 blocks (rows of gate and up interleaved) or, dequantised, in bf16
// stacks that are transposed and interleaved as well; biases on router and experts. OpenAI's own
// files have other names for the same, and a config.json without a model type: the option of
// moe_checkpoint_open names the family.
#include <string>

#include "libmoe/base/fmt.hpp"
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

// One by one, as quantisers write them that know linear modules alone: under "experts." or in a
// list of that name once more, or in two lists, where the rows lie as in the stack.
bool add_separate_experts_with_biases(LayerBuilder& layer, moe_gate_up_order order) {
    const moe_layer_desc& desc = layer.desc();
    const int64_t hidden = desc.hidden, width = desc.intermediate;
    const auto matrix = [&](const std::string& stem, const LayerBuilder::Wanted& weight,
                            moe_role bias_role) {
        layer.weight(stem + ".weight", weight);
        LayerBuilder::Wanted bias = weight;
        bias.role = bias_role;
        bias.columns = weight.rows;
        bias.rows = 1;
        layer.vector(stem + ".bias", bias);
    };
    if (layer.has_weight("experts.gate_up_projs.0.weight")) {
        const FusedForm form = {MOE_ORIENTATION_OUT_IN, order};
        for (int32_t e = 0; e < desc.n_experts; ++e) {
            matrix(fmt::format("experts.gate_up_projs.{}", e),
                   {MOE_ROLE_GATE_UP, e, 2 * width, hidden, false, form}, MOE_ROLE_GATE_UP_BIAS);
            matrix(fmt::format("experts.down_projs.{}", e), {MOE_ROLE_DOWN, e, hidden, width},
                   MOE_ROLE_DOWN_BIAS);
        }
        return true;
    }
    for (const char* list : {"experts.", "experts.experts."}) {
        if (!layer.has_weight(fmt::format("{}0.gate_proj.weight", list))) continue;
        for (int32_t e = 0; e < desc.n_experts; ++e) {
            const std::string stem = fmt::format("{}{}.", list, e);
            matrix(stem + "gate_proj", {MOE_ROLE_GATE, e, width, hidden}, MOE_ROLE_GATE_BIAS);
            matrix(stem + "up_proj", {MOE_ROLE_UP, e, width, hidden}, MOE_ROLE_UP_BIAS);
            matrix(stem + "down_proj", {MOE_ROLE_DOWN, e, hidden, width}, MOE_ROLE_DOWN_BIAS);
        }
        return true;
    }
    return false;
}

void build_with(LayerBuilder& layer, const FusedForm& form) {
    read_sizes(layer, {"intermediate_size"});
    moe_layer_desc& desc = layer.desc();
    set_gpt_oss_layer(desc, layer.settings().find_number("swiglu_limit").value_or(7.0f));
    desc.activation_alpha = layer.settings().find_number("swiglu_alpha").value_or(1.702f);
    const Names& names = layer.find(openai.router) ? openai : transformers;
    add_router(layer, names.router);
    layer.vector(names.router_bias, {MOE_ROLE_ROUTER_BIAS, 0, 1, desc.n_experts});
    if (add_separate_experts_with_biases(layer, form.order)) return;
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

}  // namespace

void build_gpt_oss(LayerBuilder& layer) {
    build_with(layer, {MOE_ORIENTATION_IN_OUT, MOE_GATE_UP_INTERLEAVED});
}

// Gate before up. Its weights are divided by top_k and the sum multiplied by it: as those of
// gpt-oss.
void build_openai_privacy_filter(LayerBuilder& layer) {
    build_with(layer, {MOE_ORIENTATION_IN_OUT, MOE_GATE_UP_GATE_FIRST});
}

}  // namespace moe
