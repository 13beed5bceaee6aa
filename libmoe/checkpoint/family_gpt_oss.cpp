// gpt-oss: experts in MXFP4 blocks (rows of gate and up interleaved) or, dequantised, in bf16
// stacks that are transposed and interleaved as well; biases on router and experts.
#include "libmoe/checkpoint/families.hpp"

namespace moe {

void build_gpt_oss(LayerBuilder& layer) {
    constexpr FusedForm form = {MOE_ORIENTATION_IN_OUT, MOE_GATE_UP_INTERLEAVED};
    read_sizes(layer, {"intermediate_size"});
    moe_layer_desc& desc = layer.desc();
    set_gpt_oss_layer(desc, layer.settings().find_number("swiglu_limit").value_or(7.0f));
    add_router(layer, "router.weight");
    layer.vector("router.bias", {MOE_ROLE_ROUTER_BIAS, 0, 1, desc.n_experts});
    const int64_t hidden = desc.hidden, width = desc.intermediate;
    const LayerBuilder::Wanted gate_up = {
        MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS, 2 * width, hidden, true, form};
    const LayerBuilder::Wanted down = {MOE_ROLE_DOWN, MOE_ALL_EXPERTS, hidden, width, true, form};
    if (layer.find("experts.gate_up_proj_blocks")) {
        layer.mxfp4_blocks("experts.gate_up_proj", gate_up);
        layer.mxfp4_blocks("experts.down_proj", down);
    } else if (layer.find("experts.gate_up_proj")) {
        layer.weight("experts.gate_up_proj", gate_up);
        layer.weight("experts.down_proj", down);
    } else {
        layer.fail_missing("experts.gate_up_proj_blocks or experts.gate_up_proj");
    }
    layer.vector("experts.gate_up_proj_bias",
                 {MOE_ROLE_GATE_UP_BIAS, MOE_ALL_EXPERTS, 1, 2 * width, true, form});
    layer.vector("experts.down_proj_bias",
                 {MOE_ROLE_DOWN_BIAS, MOE_ALL_EXPERTS, 1, hidden, true, form});
}

}  // namespace moe
