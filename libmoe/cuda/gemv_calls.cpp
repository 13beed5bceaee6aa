#include "libmoe/cuda/gemv_calls.hpp"

namespace moe::cuda {
namespace {

bool shares_codebook(const PackedMatrix& matrix) {
    const CodebookMode mode = codebook_mode_of(matrix);
    return mode == CodebookMode::shared_lanes || mode == CodebookMode::shared_bytes;
}

bool adds_shared(const Layer& layer, const FinishTerms& terms) {
    return layer.shared_intermediate && (terms.parts & MOE_FINISH_SHARED);
}

GemvArgs args_of(const Call& call, const DeviceRows& x, int64_t n_tokens) {
    GemvArgs args{};
    args.scale = 1.0f;
    args.faults = call.faults;
    args.x = x.data;
    args.x_type = x.type;
    args.x_stride = x.stride;
    args.n_tokens = static_cast<int32_t>(n_tokens);
    return args;
}

}  // namespace

bool takes_gemv(const GemvLaunches& launches, const DeviceRows& x, int64_t n_tokens,
                const int32_t* n_tokens_device) {
    const int64_t row_bytes = n_tokens > 1 ? x.stride * element_size(x.type) : 0;
    return n_tokens <= launches.max_tokens && !n_tokens_device && row_bytes % 16 == 0 &&
           reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

const GemvLaunch& launch_of(const GemvLaunches& launches, const GemvArgs& args) {
    return launches.at(args.n_tokens, shares_codebook(args.gate_up), shares_codebook(args.down));
}

bool adds_all(const Setup& setup, const FinishTerms& terms) {
    if (terms.identity) return false;
    const Layer& layer = *setup.layer;
    const bool biases = setup.down_bias_in_finish && (terms.parts & MOE_FINISH_DOWN_BIAS);
    return (!adds_shared(layer, terms) || setup.shared_joins) && !biases &&
           !(layer.latent && terms.parts);
}

GemvArgs expert_gemv_args(const Call& call, const Scratch& scratch, const DeviceRows& x,
                          int64_t n_tokens) {
    const Layer& layer = *call.setup.layer;
    const auto& weights = call.weights;
    GemvArgs args = args_of(call, x, n_tokens);
    args.gate_up = weights.matrices[layer.activation.gated ? MOE_ROLE_GATE : MOE_ROLE_UP];
    args.down = weights.matrices[MOE_ROLE_DOWN];
    args.activation = layer.activation;
    args.gate_bias = weights.vectors[MOE_ROLE_GATE_BIAS];
    args.up_bias = weights.vectors[MOE_ROLE_UP_BIAS];
    args.down_bias = call.setup.down_bias_in_finish ? nullptr : weights.vectors[MOE_ROLE_DOWN_BIAS];
    args.weight_on_input = layer.weight_on_input;
    args.n_slots = args.top_k = layer.top_k;
    args.n_ids = layer.n_experts;
    args.n_ids_all = layer.n_experts_all();
    args.n_local = call.setup.slice->n_local;
    args.hidden = layer.hidden;
    args.intermediate = static_cast<int32_t>(call.setup.slice->intermediate_count);
    args.h = scratch.h;
    return args;
}

void add_finish_terms(const Call& call, const FinishTerms& terms, GemvArgs& args) {
    const Layer& layer = *call.setup.layer;
    if (terms.parts & MOE_FINISH_COMBINE) args.scale = layer.combine_scale;
    if (!adds_shared(layer, terms)) return;
    ++args.n_slots;
    args.shared = {call.weights.vectors[MOE_ROLE_SHARED_EXPERT_GATE], layer.shared_scale};
}

const GemvLaunches& expert_launches(const Setup& setup, const GemvArgs& args) {
    return args.n_slots > args.top_k ? setup.launch->experts_and_shared_gemv
                                     : setup.launch->experts_gemv;
}

GemvArgs shared_gemv_args(const Call& call, const Scratch& scratch, const DeviceRows& x,
                          int64_t n_tokens) {
    const Setup& setup = call.setup;
    const Layer& layer = *setup.layer;
    const auto& matrices = call.weights.matrices;
    GemvArgs args = args_of(call, x, n_tokens);
    args.gate_up =
        matrices[layer.shared_activation.gated ? MOE_ROLE_SHARED_GATE : MOE_ROLE_SHARED_UP];
    args.down = matrices[MOE_ROLE_SHARED_DOWN];
    args.activation = layer.shared_activation;
    args.n_slots = args.top_k = args.n_ids = args.n_ids_all = args.n_local = 1;
    args.ids = setup.constants.zero;
    args.weights = setup.constants.one;
    args.hidden = layer.hidden;
    args.intermediate = static_cast<int32_t>(setup.slice->shared_count);
    args.h = scratch.shared_h;
    args.out = scratch.shared_y;
    args.out_type = MOE_TYPE_F32;
    args.out_stride = layer.hidden;
    return args;
}

}  // namespace moe::cuda
