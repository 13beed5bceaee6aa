#include "experts.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "names.hpp"
#include "threads.hpp"
#include "values.hpp"

namespace moe::ggml {
namespace {

// Tokens that a first plan is made for. A call with more gets a plan for the next power of two.
constexpr int64_t least_max_tokens = 512;

bool report(moe_status status) {
    if (status == MOE_OK) return true;
    std::fprintf(stderr, "libmoe: %s\n", moe_last_error());
    return false;
}

moe_layer_desc layer_of(const Problem& problem) {
    const Activation& a = problem.activation;
    moe_layer_desc layer{};
    layer.struct_size = sizeof layer;
    layer.hidden = problem.hidden;
    layer.intermediate = problem.intermediate;
    layer.n_experts = problem.n_experts;
    layer.top_k = problem.top_k;
    layer.activation = a.kind;
    layer.is_gated = a.is_gated;
    layer.has_activation_alpha = a.alpha != 0;
    layer.activation_alpha = a.alpha;
    layer.activation_up_offset = a.up_offset;
    layer.has_gate_limit = a.gate_limit != 0;
    layer.gate_limit = a.gate_limit;
    layer.has_up_limit = a.up_limit != 0;
    layer.up_limit = a.up_limit;
    layer.has_post_limit = a.post_limit != 0;
    layer.post_limit = a.post_limit;
    layer.situ_beta = a.situ_beta;
    layer.situ_beta_up = a.situ_beta_up;
    layer.has_gate_bias = problem.has_gate_bias;
    layer.has_up_bias = problem.has_up_bias;
    layer.has_down_bias = problem.has_down_bias;
    return layer;
}

moe_plan* make_plan(const Problem& problem, Precision precision, int64_t max_tokens) {
    const moe_layer_desc layer = layer_of(problem);
    std::array<const moe_format*, MOE_ROLE_COUNT> formats{};
    if (problem.activation.is_gated) formats[MOE_ROLE_GATE] = &problem.gate;
    formats[MOE_ROLE_UP] = &problem.up;
    formats[MOE_ROLE_DOWN] = &problem.down;
    moe_plan_desc desc{};
    desc.struct_size = sizeof desc;
    desc.device = MOE_DEVICE_CPU;
    desc.x_type = precision == Precision::bf16 ? MOE_TYPE_BF16 : MOE_TYPE_F32;
    desc.out_type = MOE_TYPE_F32;
    desc.stages = MOE_STAGE_DISPATCH | MOE_STAGE_EXPERTS | MOE_STAGE_COMBINE;
    desc.layer = &layer;
    desc.formats = formats.data();
    desc.n_formats = formats.size();
    desc.max_tokens = max_tokens;
    desc.residency = MOE_RESIDENCY_SOURCE;
    if (precision == Precision::int8)
        desc.activation_quantization = MOE_ACTIVATION_QUANTIZATION_INT8;
    moe_plan* plan = nullptr;
    if (moe_plan_create(runtime_of_calls(), &desc, &plan) != MOE_OK)
        std::fprintf(stderr, "libmoe: %s instead of one call: %s\n",
                     problem.is_matrix ? "a plain loop for a matrix" : "matrix by matrix",
                     moe_last_error());
    return plan;
}

int64_t stride_of(const Tensor* tensor, int dim) {
    return static_cast<int64_t>(tensor->nb[dim] / sizeof(float));
}

// moe.h takes this many slots of a token. llama.cpp chooses all experts when it warms up, so that
// more are computed in parts.
constexpr int64_t most_slots = 64;

int32_t slots_of_part(const Slots& slots, int64_t first) {
    return static_cast<int32_t>(std::min(most_slots, slots.top_k - first));
}

// The allocator of graphs may have given the memory of what a chain reads to its result.
bool is_apart_from(const Tensor* out, const Projection& first, const Slots& slots,
                   const moe_experts_args& args) {
    const Range written = range_of(out);
    if (overlap(written, range_of(first.x())) || overlap(written, range_of(first.ids())))
        return false;
    if (!args.weights) return true;
    const float* end = args.weights + (slots.n_tokens - 1) * args.weights_row_stride + slots.top_k;
    return !overlap(
        written, {reinterpret_cast<const char*>(args.weights), reinterpret_cast<const char*>(end)});
}

}  // namespace

const Experts::Planned& Experts::plan_for(const Problem& problem, int64_t n_tokens) {
    for (const Planned& planned : plans_)
        if (planned.problem == problem && (!planned.plan || planned.max_tokens >= n_tokens))
            return planned;
    int64_t max_tokens = least_max_tokens;
    while (max_tokens < n_tokens) max_tokens *= 2;
    std::erase_if(plans_, [&](const Planned& planned) { return planned.problem == problem; });
    Planned planned{problem, precision_of(problem), max_tokens, nullptr};
    planned.plan.reset(make_plan(problem, planned.precision, max_tokens));
    return plans_.emplace_back(std::move(planned));
}

moe_workspace* Experts::workspace_for(const moe_plan* plan, int64_t n_tokens) {
    moe_workspace_need need{};
    need.struct_size = sizeof need;
    if (!report(moe_plan_workspace_size(plan, n_tokens, &need))) return nullptr;
    if (workspace_ && workspace_bytes_ >= need.host_bytes) return workspace_.get();
    moe_workspace_desc desc{};
    desc.struct_size = sizeof desc;
    desc.device = MOE_DEVICE_CPU;
    desc.plan = plan;
    desc.host_bytes = need.host_bytes;
    moe_workspace* workspace = nullptr;
    workspace_.reset();
    if (!report(moe_workspace_create(runtime_of_calls(), &desc, &workspace))) return nullptr;
    workspace_.reset(workspace);
    workspace_bytes_ = need.host_bytes;
    return workspace;
}

bool Experts::can_run(const Chain& chain) {
    const Slots slots = slots_of(chain.up.x(), chain.up.ids());
    Problem problem = problem_of(chain);
    for (int64_t first = 0; first < slots.top_k; first += most_slots) {
        problem.top_k = slots_of_part(slots, first);
        if (!plan_for(problem, slots.n_tokens).plan) return false;
    }
    return true;
}

bool Experts::run(const Chain& chain, Prepared& prepared, int n_threads) {
    moe_experts_args args{};
    args.n_threads = n_threads;
    args.out_layout = MOE_OUT_PER_SLOT;
    if (chain.routing_weights) {
        args.out_layout = MOE_OUT_REDUCED;
        set_routing_weights(chain.routing_weights, args);
    }
    if (!prepared.problem) prepared.problem = problem_of(chain);
    return call(*prepared.problem, chain.up, chain.result, args, [&](const moe_plan* plan) {
        const uint64_t generation = weights_generation();
        if (prepared.weights && prepared.generation == generation) return prepared.weights;
        const Loaded loaded = weights_of(plan, chain);
        prepared.weights = loaded.is_kept ? loaded.weights : nullptr;
        prepared.generation = generation;
        return loaded.weights;
    });
}

bool Experts::run_matrix(Tensor* product, int n_threads) {
    const Projection up{product, nullptr, nullptr};
    if (!has_even_rows(up.x()) || !is_dense(product)) return false;
    const Problem problem = problem_of_matrix(product);
    moe_experts_args args{};
    args.n_threads = n_threads;
    args.out_layout = MOE_OUT_PER_SLOT;
    args.stop_before_activation = 1;
    return call(problem, up, product, args, [&](const moe_plan* plan) {
        return weights_of_matrix(plan, problem, product).weights;
    });
}

void Experts::set_routing_weights(const Tensor* w, moe_experts_args& args) {
    args.weights = static_cast<const float*>(w->data);
    args.weights_row_stride = stride_of(w, 2);
    if (w->nb[1] == sizeof(float) || w->ne[1] == 1) return;
    weights_.resize(static_cast<size_t>(w->ne[1] * w->ne[2]));
    for (int64_t t = 0; t < w->ne[2]; ++t)
        for (int64_t j = 0; j < w->ne[1]; ++j)
            weights_[static_cast<size_t>(t * w->ne[1] + j)] =
                args.weights[t * stride_of(w, 2) + j * stride_of(w, 1)];
    args.weights = weights_.data();
    args.weights_row_stride = w->ne[1];
}

void Experts::set_input(const Projection& first, const Slots& slots, moe_experts_args& args) {
    const Tensor *x = first.x(), *ids = first.ids();
    args.struct_size = sizeof args;
    args.in_layout = MOE_IN_TOKENS;
    args.n_tokens = slots.n_tokens;
    args.x = x->data;
    args.x_row_stride = x->ne[1] == 1 ? stride_of(x, 2) : stride_of(x, 1);
    args.ids = ids->data;
    args.ids_row_stride = stride_of(ids, 1);
    if (x->ne[1] == 1) return;
    // A slot that counts as a token has its id alone, so ids lie without gaps.
    ids_.resize(static_cast<size_t>(slots.n_tokens));
    for (int64_t t = 0; t < ids->ne[1]; ++t)
        std::memcpy(&ids_[static_cast<size_t>(t * ids->ne[0])],
                    static_cast<const char*>(ids->data) + static_cast<size_t>(t) * ids->nb[1],
                    static_cast<size_t>(ids->ne[0]) * sizeof(int32_t));
    args.ids = ids_.data();
    args.ids_row_stride = 1;
}

bool Experts::call(const Problem& whole, const Projection& first, Tensor* out,
                   moe_experts_args args, const std::function<Weights(const moe_plan*)>& load) {
    const Slots slots = slots_of(first.x(), first.ids());
    if (slots.n_tokens == 0) return true;
    set_input(first, slots, args);
    const bool is_apart = is_apart_from(out, first, slots, args);
    const int64_t row = out->ne[0];
    const auto n = static_cast<size_t>(row * n_rows(out));
    if (!is_apart) out_.resize(n);
    float* target = is_apart ? static_cast<float*>(out->data) : out_.data();
    Problem problem = whole;
    for (int64_t slot = 0; slot < slots.top_k; slot += most_slots) {
        problem.top_k = slots_of_part(slots, slot);
        const Planned& planned = plan_for(problem, slots.n_tokens);
        const moe_plan* plan = planned.plan.get();
        const Weights weights = plan ? load(plan) : nullptr;
        moe_workspace* workspace = weights ? workspace_for(plan, slots.n_tokens) : nullptr;
        if (!workspace) return false;
        moe_experts_args part = args;
        if (planned.precision == Precision::bf16) {
            if (slot == 0)
                round_to_bf16(static_cast<const float*>(args.x), slots.n_tokens, args.x_row_stride,
                              problem.hidden, x_);
            part.x = x_.data();
            part.x_row_stride = problem.hidden;
        }
        part.ids = static_cast<const int32_t*>(args.ids) + slot;
        part.out = target;
        if (args.out_layout == MOE_OUT_PER_SLOT) {
            part.out = target + slot * row;
            part.out_row_stride = slots.top_k * row;
        } else {
            part.weights = args.weights + slot;
            part.accumulate = slot > 0;
        }
        if (!report(moe_experts(plan, weights.get(), workspace, &part))) return false;
    }
    if (!is_apart) std::memcpy(out->data, out_.data(), n * sizeof(float));
    return true;
}

}  // namespace moe::ggml
