// When few tokens may go the short way, and how.
#include "libmoe/cuda/one_token.hpp"

#include "libmoe/cuda/chunks.hpp"

namespace moe::cuda {
namespace {

// Nothing follows the routed sum.
bool sum_is_all(const Setup& setup) {
    const Layer& layer = *setup.layer;
    if (setup.partial) return true;
    return !layer.latent && !layer.shared_intermediate && !layer.n_identity_experts &&
           !setup.down_bias_in_finish && layer.combine_scale == 1.0f;
}

OneToken make_call(const Call& call, const Scratch& scratch, const Activations& x,
                   int64_t n_tokens) {
    const Layer& layer = *call.setup.layer;
    const auto& weights = call.weights;
    OneToken one{};
    one.gate_up = weights.matrices[layer.activation.gated ? MOE_ROLE_GATE : MOE_ROLE_UP];
    one.down = weights.matrices[MOE_ROLE_DOWN];
    one.activation = layer.activation;
    one.gate_bias = weights.vectors[MOE_ROLE_GATE_BIAS];
    one.up_bias = weights.vectors[MOE_ROLE_UP_BIAS];
    one.down_bias = call.setup.down_bias_in_finish ? nullptr : weights.vectors[MOE_ROLE_DOWN_BIAS];
    one.weight_on_input = layer.weight_on_input;
    one.n_slots = layer.top_k;
    one.n_ids = layer.n_experts;
    one.x = x.data;
    one.x_type = x.type;
    one.x_stride = x.stride;
    one.n_tokens = static_cast<int32_t>(n_tokens);
    one.h = scratch.h;
    one.faults = call.faults;
    one.n_ids_all = layer.n_experts_all();
    one.n_local = call.setup.slice->n_local;
    return one;
}

}  // namespace

int32_t few_tokens(const Setup& setup) {
    return setup.layer->latent ? 0 : setup.experts.few;
}

bool takes_few_tokens(int32_t few, const Activations& x, int64_t n_tokens,
                      const int32_t* n_tokens_device) {
    const int64_t row_bytes = n_tokens > 1 ? x.stride * element_size(x.type) : 0;
    return n_tokens <= few && !n_tokens_device && row_bytes % 16 == 0 &&
           reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

void run_few_tokens(Pipeline& p, const Call& call, const Activations& x, const int32_t* expert_map,
                    Pipeline::Sum sum, const CombineOutput& out) {
    const Layer& layer = *call.setup.layer;
    const bool direct = sum_is_all(call.setup);
    OneToken one = make_call(call, p.scratch(), x, p.tokens().n);
    one.ids = p.scratch().ids;
    one.ids_stride = layer.top_k;
    one.local_of = expert_map ? expert_map : call.setup.local_of;
    one.weights = p.scratch().weights;
    one.weights_stride = layer.top_k;
    one.out = direct ? out.data : p.scratch().routed;
    one.out_type = direct ? out.type : MOE_TYPE_F32;
    one.out_stride = direct ? out.stride : layer.expert_width();
    one.accumulate = direct && out.accumulate;
    run_one_token(call.setup.device, one, p.stream());
    if (direct) return;
    sum.has_y = false;
    sum.routed = {p.scratch().routed, MOE_TYPE_F32, layer.expert_width()};
    p.store_sum(sum, out);
}

bool forward_few_tokens(const Call& call, const moe_forward_args& args) {
    const Setup& setup = call.setup;
    const bool plain = args.routing == MOE_ROUTING_IDS_AND_WEIGHTS &&
                       args.ids_type == MOE_TYPE_I32 && args.weights_type == MOE_TYPE_F32 &&
                       !args.out_ids && !args.out_weights && !args.out_expert_counts &&
                       args.out_layout == MOE_OUT_REDUCED;
    const Activations x{args.x, setup.x_type, args.x_row_stride};
    if (!plain || !takes_few_tokens(few_tokens(setup), x, args.n_tokens, args.n_tokens_device) ||
        args.n_tokens > setup.chunk_tokens || args.n_tokens < 1 || !sum_is_all(setup))
        return false;
    const Scratch scratch(setup, args.n_tokens, call.scratch);
    OneToken one = make_call(call, scratch, x, args.n_tokens);
    one.ids = static_cast<const int32_t*>(args.ids);
    one.ids_stride = args.ids_row_stride;
    one.local_of = args.expert_map ? args.expert_map : call.setup.local_of;
    one.weights = static_cast<const float*>(args.weights);
    one.weights_stride = args.weights_row_stride;
    one.out = args.out;
    one.out_type = setup.out_type;
    one.out_stride = args.out_row_stride;
    one.accumulate = args.accumulate != 0;
    run_one_token(setup.device, one, static_cast<cudaStream_t>(call.stream));
    return true;
}

}  // namespace moe::cuda
