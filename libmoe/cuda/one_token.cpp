// When few tokens may go the short way, and how.
#include "libmoe/cuda/one_token.hpp"

#include "libmoe/cuda/chunks.hpp"

namespace moe::cuda {
namespace {

// What a call adds to the weighted sum over its slots.
struct Rest {
    uint32_t parts;  // MOE_FINISH_ bits
    bool identity;
};

// Can the kernels add it themselves? The shared expert as one more slot, the scale of the sum.
bool adds_all(const Setup& setup, const Rest& rest) {
    if (rest.identity) return false;
    const Layer& layer = *setup.layer;
    const bool shared = layer.shared_intermediate && (rest.parts & MOE_FINISH_SHARED);
    const bool biases = setup.down_bias_in_finish && (rest.parts & MOE_FINISH_DOWN_BIAS);
    return (!shared || setup.shared_joins) && !biases && !(layer.latent && rest.parts);
}

void add_rest(const Setup& setup, const DeviceWeights& weights, const Rest& rest, OneToken& one) {
    const Layer& layer = *setup.layer;
    if (rest.parts & MOE_FINISH_COMBINE) one.scale = layer.combine_scale;
    if (!layer.shared_intermediate || !(rest.parts & MOE_FINISH_SHARED)) return;
    ++one.n_slots;
    one.shared = {weights.vectors[MOE_ROLE_SHARED_EXPERT_GATE], layer.shared_scale};
}

OneToken make_call(const Call& call, const Scratch& scratch, const Activations& x,
                   int64_t n_tokens) {
    const Layer& layer = *call.setup.layer;
    const auto& weights = call.weights;
    OneToken one{};
    one.portable = call.setup.experts.few_is_portable;
    one.gate_up = weights.matrices[layer.activation.gated ? MOE_ROLE_GATE : MOE_ROLE_UP];
    one.down = weights.matrices[MOE_ROLE_DOWN];
    one.activation = layer.activation;
    one.gate_bias = weights.vectors[MOE_ROLE_GATE_BIAS];
    one.up_bias = weights.vectors[MOE_ROLE_UP_BIAS];
    one.down_bias = call.setup.down_bias_in_finish ? nullptr : weights.vectors[MOE_ROLE_DOWN_BIAS];
    one.weight_on_input = layer.weight_on_input;
    one.n_slots = one.top_k = layer.top_k;
    one.scale = 1.0f;
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

bool takes_few_tokens(int32_t few, const Activations& x, int64_t n_tokens,
                      const int32_t* n_tokens_device) {
    const int64_t row_bytes = n_tokens > 1 ? x.stride * element_size(x.type) : 0;
    return n_tokens <= few && !n_tokens_device && row_bytes % 16 == 0 &&
           reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

void run_few_tokens(Pipeline& p, const Call& call, const Activations& x, const int32_t* expert_map,
                    Pipeline::Sum sum, const CombineOutput& out) {
    const Layer& layer = *call.setup.layer;
    const Rest rest{sum.parts, sum.identity};
    const bool direct = adds_all(call.setup, rest);
    OneToken one = make_call(call, p.scratch(), x, p.tokens().n);
    if (direct) add_rest(call.setup, call.weights, rest, one);
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
    const Rest rest{setup.partial ? 0 : every_finish_part,
                    !setup.partial && setup.layer->n_identity_experts > 0};
    if (!plain || !takes_few_tokens(setup.experts.few, x, args.n_tokens, args.n_tokens_device) ||
        args.n_tokens > setup.chunk_tokens || args.n_tokens < 1 || !adds_all(setup, rest))
        return false;
    const Scratch scratch(setup, args.n_tokens, call.scratch);
    OneToken one = make_call(call, scratch, x, args.n_tokens);
    add_rest(setup, call.weights, rest, one);
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
