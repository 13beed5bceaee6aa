// When gemv_tokens tokens may go the short way, and how.
#include "libmoe/cuda/gemv_forward.hpp"

#include "libmoe/cuda/chunks.hpp"

namespace moe::cuda {
namespace {

// What a call adds to the weighted sum over its slots.
struct FinishParts {
    uint32_t parts;  // MOE_FINISH_ bits
    bool identity;
};

// Can the kernels add it themselves? The shared expert as args more slot, the scale of the sum.
bool adds_all(const Setup& setup, const FinishParts& finish) {
    if (finish.identity) return false;
    const Layer& layer = *setup.layer;
    const bool shared = layer.shared_intermediate && (finish.parts & MOE_FINISH_SHARED);
    const bool biases = setup.down_bias_in_finish && (finish.parts & MOE_FINISH_DOWN_BIAS);
    return (!shared || setup.shared_joins) && !biases && !(layer.latent && finish.parts);
}

void add_finish_parts(const Setup& setup, const DeviceWeights& weights, const FinishParts& finish,
                      GemvArgs& args) {
    const Layer& layer = *setup.layer;
    if (finish.parts & MOE_FINISH_COMBINE) args.scale = layer.combine_scale;
    if (!layer.shared_intermediate || !(finish.parts & MOE_FINISH_SHARED)) return;
    ++args.n_slots;
    args.shared = {weights.vectors[MOE_ROLE_SHARED_EXPERT_GATE], layer.shared_scale};
}

GemvArgs make_call(const Call& call, const Scratch& scratch, const Activations& x,
                   int64_t n_tokens) {
    const Layer& layer = *call.setup.layer;
    const auto& weights = call.weights;
    GemvArgs args{};
    args.portable = call.setup.experts.gemv_is_portable;
    args.gate_up = weights.matrices[layer.activation.gated ? MOE_ROLE_GATE : MOE_ROLE_UP];
    args.down = weights.matrices[MOE_ROLE_DOWN];
    args.activation = layer.activation;
    args.gate_bias = weights.vectors[MOE_ROLE_GATE_BIAS];
    args.up_bias = weights.vectors[MOE_ROLE_UP_BIAS];
    args.down_bias = call.setup.down_bias_in_finish ? nullptr : weights.vectors[MOE_ROLE_DOWN_BIAS];
    args.weight_on_input = layer.weight_on_input;
    args.n_slots = args.top_k = layer.top_k;
    args.scale = 1.0f;
    args.n_ids = layer.n_experts;
    args.x = x.data;
    args.x_type = x.type;
    args.x_stride = x.stride;
    args.n_tokens = static_cast<int32_t>(n_tokens);
    args.h = scratch.h;
    args.faults = call.faults;
    args.n_ids_all = layer.n_experts_all();
    args.n_local = call.setup.slice->n_local;
    return args;
}

}  // namespace

bool takes_gemv(int32_t gemv_tokens, const Activations& x, int64_t n_tokens,
                const int32_t* n_tokens_device) {
    const int64_t row_bytes = n_tokens > 1 ? x.stride * element_size(x.type) : 0;
    return n_tokens <= gemv_tokens && !n_tokens_device && row_bytes % 16 == 0 &&
           reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

void run_gemv_experts(LayerPass& p, const Call& call, const Activations& x,
                      const int32_t* expert_map, LayerPass::Sum sum, const CombineOutput& out) {
    const Layer& layer = *call.setup.layer;
    const FinishParts finish{sum.parts, sum.identity};
    const bool direct = adds_all(call.setup, finish);
    GemvArgs args = make_call(call, p.scratch(), x, p.tokens().n);
    if (direct) add_finish_parts(call.setup, call.weights, finish, args);
    args.ids = p.scratch().ids;
    args.ids_stride = layer.top_k;
    args.local_of = expert_map ? expert_map : call.setup.local_of;
    args.weights = p.scratch().weights;
    args.weights_stride = layer.top_k;
    args.out = direct ? out.data : p.scratch().routed;
    args.out_type = direct ? out.type : MOE_TYPE_F32;
    args.out_stride = direct ? out.stride : layer.expert_width();
    args.accumulate = direct && out.accumulate;
    run_gemv(call.setup.device, args, p.stream());
    if (direct) return;
    sum.has_y = false;
    sum.routed = {p.scratch().routed, MOE_TYPE_F32, layer.expert_width()};
    p.store_sum(sum, out);
}

bool forward_gemv(const Call& call, const moe_forward_args& args) {
    const Setup& setup = call.setup;
    const bool plain = args.routing == MOE_ROUTING_IDS_AND_WEIGHTS &&
                       args.ids_type == MOE_TYPE_I32 && args.weights_type == MOE_TYPE_F32 &&
                       !args.out_ids && !args.out_weights && !args.out_expert_counts &&
                       args.out_layout == MOE_OUT_REDUCED;
    const Activations x{args.x, setup.x_type, args.x_row_stride};
    const FinishParts finish{setup.partial ? 0 : every_finish_part,
                             !setup.partial && setup.layer->n_identity_experts > 0};
    if (!plain || !takes_gemv(setup.experts.gemv_tokens, x, args.n_tokens, args.n_tokens_device) ||
        args.n_tokens > setup.chunk_tokens || args.n_tokens < 1 || !adds_all(setup, finish))
        return false;
    const Scratch scratch(setup, args.n_tokens, call.scratch);
    GemvArgs gemv = make_call(call, scratch, x, args.n_tokens);
    add_finish_parts(setup, call.weights, finish, gemv);
    gemv.ids = static_cast<const int32_t*>(args.ids);
    gemv.ids_stride = args.ids_row_stride;
    gemv.local_of = args.expert_map ? args.expert_map : call.setup.local_of;
    gemv.weights = static_cast<const float*>(args.weights);
    gemv.weights_stride = args.weights_row_stride;
    gemv.out = args.out;
    gemv.out_type = setup.out_type;
    gemv.out_stride = args.out_row_stride;
    gemv.accumulate = args.accumulate != 0;
    run_gemv(setup.device, gemv, static_cast<cudaStream_t>(call.stream));
    return true;
}

}  // namespace moe::cuda
