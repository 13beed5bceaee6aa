#include "libmoe/cuda/gemv_calls.hpp"

namespace moe::cuda {
namespace {

bool shares_codebook(const PackedMatrix& matrix) {
    const CodebookMode mode = codebook_mode_of(matrix);
    return mode == CodebookMode::shared_lanes || mode == CodebookMode::shared_bytes;
}

// A pair that is not fused must share the codebooks of every matrix that has some.
bool gate_up_shares_codebook(const GemvArgs& args) {
    if (!has_codebook(args.gate_up.type)) return shares_codebook(args.up);
    if (!has_codebook(args.up.type)) return shares_codebook(args.gate_up);
    return shares_codebook(args.gate_up) && shares_codebook(args.up);
}

bool adds_shared(const Layer& layer, const FinishTerms& terms) {
    return layer.shared_intermediate && (terms.parts & MOE_FINISH_SHARED);
}

GemvArgs args_of(const Call& call, const DeviceRows& x, int64_t n_tokens) {
    GemvArgs args{};
    args.scale = 1.0f;
    args.faults = call.faults;
    args.x = x;
    args.n_tokens = static_cast<int32_t>(n_tokens);
    args.h_type = call.setup.intermediate_type == MOE_TYPE_F16 ? MOE_TYPE_F16 : MOE_TYPE_BF16;
    return args;
}

// Gate and up, fused or as a pair.
void set_gate_up(const Call& call, moe_role gate, moe_role up, bool is_fused, GemvArgs& args) {
    const auto& matrices = call.weights.matrices;
    args.gate_up = matrices[args.activation.gated ? gate : up];
    if (args.activation.gated && !is_fused) args.up = matrices[up];
}

}  // namespace

bool takes_gemv(const GemvLaunches& launches, const DeviceRows& x, int64_t n_tokens,
                const int32_t* n_tokens_device) {
    return n_tokens <= launches.max_tokens && !n_tokens_device && begin_on_16_bytes(x, n_tokens);
}

bool takes_gemv_rows(const Setup& setup, int64_t n_rows) {
    return n_rows <= int64_t{setup.launch->expert_rows_gemv.max_tokens} * setup.layer->top_k;
}

const GemvLaunch& launch_of(const GemvLaunches& launches, const GemvArgs& args) {
    return launches.at(args.n_tokens, gate_up_shares_codebook(args), shares_codebook(args.down));
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
    args.activation = layer.activation;
    set_gate_up(call, MOE_ROLE_GATE, MOE_ROLE_UP, weights.is_gate_up_fused, args);
    args.down = weights.matrices[MOE_ROLE_DOWN];
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
    args.gate_values = scratch.pre_activation;
    args.slot_rows = scratch.slot_rows;
    return args;
}

void run_gemv_rows(const Call& call, const Scratch& scratch, const GemvRows& rows) {
    const Setup& setup = call.setup;
    const GemvLaunches& launches = setup.launch->expert_rows_gemv;
    GemvArgs args = expert_gemv_args(call, scratch, rows.x, rows.n);
    args.n_slots = args.top_k = 1;
    args.hidden = setup.layer->expert_width();
    args.ids = rows.experts.ids;
    args.ids_stride = 1;
    args.local_of = rows.experts.local_of;
    args.n_ids = rows.experts.n_ids;
    args.n_ids_all = rows.experts.n_ids_all;
    args.weights = rows.weights ? rows.weights : setup.constants.one;
    args.weights_stride = rows.weights ? 1 : 0;
    args.out = const_cast<void*>(rows.out.data);
    args.out_type = rows.out.type;
    args.out_stride = rows.out.stride;
    args.keeps_absent = rows.keeps_absent;
    const GemvLaunch& launch =
        launches.at((rows.n + setup.layer->top_k - 1) / setup.layer->top_k,
                    gate_up_shares_codebook(args), shares_codebook(args.down));
    run_gemv(launch, args, static_cast<cudaStream_t>(call.stream));
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
    GemvArgs args = args_of(call, x, n_tokens);
    args.activation = layer.shared_activation;
    set_gate_up(call, MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP,
                call.weights.is_shared_gate_up_fused, args);
    args.down = call.weights.matrices[MOE_ROLE_SHARED_DOWN];
    args.n_slots = args.top_k = args.n_ids = args.n_ids_all = args.n_local = 1;
    args.ids = setup.constants.zero;
    args.weights = setup.constants.one;
    args.hidden = layer.hidden;
    args.intermediate = static_cast<int32_t>(setup.slice->shared_count);
    args.h = scratch.shared_h;
    args.gate_values = scratch.shared_pre;
    args.slot_rows = scratch.slot_rows;
    args.out = scratch.shared_y;
    args.out_type = MOE_TYPE_F32;
    args.out_stride = layer.hidden;
    return args;
}

}  // namespace moe::cuda
