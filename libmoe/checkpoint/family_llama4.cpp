// Llama 4: the k largest logits, a sigmoid of each, and the weight multiplies the input of the
// expert. Merged tensors are [E, in, out], gate first.
#include "libmoe/checkpoint/families.hpp"

namespace moe {

void build_llama4(LayerBuilder& layer) {
    read_sizes(layer, {"intermediate_size"});
    set_activation(layer);
    moe_layer_desc& desc = layer.desc();
    desc.score = MOE_SCORE_NONE;
    desc.post_score = MOE_SCORE_SIGMOID;
    desc.weight_on = MOE_WEIGHT_ON_INPUT;
    add_router(layer, "router.weight");
    add_experts(layer, {MOE_ORIENTATION_IN_OUT, MOE_GATE_UP_GATE_FIRST});
    add_shared_expert(layer, "shared_expert.");
}

}  // namespace moe
