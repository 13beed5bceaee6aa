// Gemma 4: the router normalises its input, and every expert has a scale. In the model the router
// reads the residual and the experts a normalised copy of it, so a program gives router_input; the
// dense MLP that runs beside the experts is the program's as well. Names are those of the layer.
#include <cmath>

#include "libmoe/checkpoint/families.hpp"

namespace moe {

void build_gemma4(LayerBuilder& layer) {
    read_sizes(layer, {"moe_intermediate_size", "expert_intermediate_size"});
    set_activation(layer);
    moe_layer_desc& desc = layer.desc();
    set_softmax_routing(desc, true);
    desc.has_router_norm = desc.has_router_norm_weight = 1;
    desc.router_norm_eps = layer.settings().find_number("rms_norm_eps").value_or(1e-6f);
    desc.has_router_input_scale = 1;
    desc.router_input_scale = 1.0f / std::sqrt(static_cast<float>(desc.hidden));
    desc.has_expert_scale = 1;
    add_router(layer, "router.proj.weight");
    layer.vector("router.scale", {MOE_ROLE_ROUTER_NORM, 0, 1, desc.hidden});
    layer.vector("router.per_expert_scale", {MOE_ROLE_EXPERT_SCALE, 0, 1, desc.n_experts});
    add_experts(layer);
}

}  // namespace moe
