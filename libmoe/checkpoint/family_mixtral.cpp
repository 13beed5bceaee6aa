// Mixtral: softmax over all experts, top-k, divided by the plain sum. block_sparse_moe with
// w1/w3/w2 as released.
#include "libmoe/checkpoint/families.hpp"

namespace moe {

void build_mixtral(LayerBuilder& layer) {
    read_sizes(layer, {"intermediate_size"});
    set_activation(layer);
    set_softmax_routing(layer.desc(), true);
    add_router(layer, "gate.weight");
    add_experts(layer);
}

}  // namespace moe
