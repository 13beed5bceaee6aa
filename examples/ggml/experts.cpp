#include "experts.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "loaded_weights.hpp"
#include "names.hpp"
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

// Set to 1, matrices of formats that have kernels for it take activations as signed bytes, as
// ggml's do.
bool wants_int8() {
    const char* value = std::getenv("MOE_GGML_INT8");
    return value && std::strcmp(value, "1") == 0;
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

moe_plan* make_plan(const Problem& problem, int64_t max_tokens) {
    const moe_layer_desc layer = layer_of(problem);
    std::array<const moe_format*, MOE_ROLE_COUNT> formats{};
    if (problem.activation.is_gated) formats[MOE_ROLE_GATE] = &problem.gate;
    formats[MOE_ROLE_UP] = &problem.up;
    formats[MOE_ROLE_DOWN] = &problem.down;
    moe_plan_desc desc{};
    desc.struct_size = sizeof desc;
    desc.device = MOE_DEVICE_CPU;
    desc.x_type = MOE_TYPE_F32;
    desc.stages = MOE_STAGE_DISPATCH | MOE_STAGE_EXPERTS | MOE_STAGE_COMBINE;
    desc.layer = &layer;
    desc.formats = formats.data();
    desc.n_formats = formats.size();
    desc.max_tokens = max_tokens;
    desc.residency = MOE_RESIDENCY_SOURCE;
    if (wants_int8()) desc.activation_quantization = MOE_ACTIVATION_QUANTIZATION_INT8;
    moe_plan* plan = nullptr;
    if (moe_plan_create(nullptr, &desc, &plan) != MOE_OK)
        std::fprintf(stderr, "libmoe: %s instead of one call: %s\n",
                     problem.is_matrix ? "a plain loop for a matrix" : "matrix by matrix",
                     moe_last_error());
    return plan;
}

int64_t stride_of(const Tensor* tensor, int dim) {
    return static_cast<int64_t>(tensor->nb[dim] / sizeof(float));
}

}  // namespace

const moe_plan* Experts::plan_for(const Problem& problem, int64_t n_tokens) {
    for (const Planned& planned : plans_)
        if (planned.problem == problem && (!planned.plan || planned.max_tokens >= n_tokens))
            return planned.plan.get();
    int64_t max_tokens = least_max_tokens;
    while (max_tokens < n_tokens) max_tokens *= 2;
    std::erase_if(plans_, [&](const Planned& planned) { return planned.problem == problem; });
    Planned planned{problem, max_tokens, nullptr};
    planned.plan.reset(make_plan(problem, max_tokens));
    return plans_.emplace_back(std::move(planned)).plan.get();
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
    if (!report(moe_workspace_create(nullptr, &desc, &workspace))) return nullptr;
    workspace_.reset(workspace);
    workspace_bytes_ = need.host_bytes;
    return workspace;
}

bool Experts::can_run(const Chain& chain) {
    const Slots slots = slots_of(chain.up.x(), chain.up.ids());
    return plan_for(problem_of(chain), slots.n_tokens) != nullptr;
}

bool Experts::run(const Chain& chain, int n_threads) {
    const Slots slots = slots_of(chain.up.x(), chain.up.ids());
    if (slots.n_tokens == 0) return true;
    const moe_plan* plan = plan_for(problem_of(chain), slots.n_tokens);
    const Weights weights = weights_of(plan, chain);
    if (!weights) return false;
    moe_experts_args args{};
    args.n_threads = n_threads;
    args.out_layout = MOE_OUT_PER_SLOT;
    if (const Tensor* w = chain.routing_weights) {
        args.out_layout = MOE_OUT_REDUCED;
        args.weights = static_cast<const float*>(w->data);
        args.weights_row_stride = stride_of(w, 2);
        if (w->nb[1] != sizeof(float) && w->ne[1] > 1) {
            weights_.resize(static_cast<size_t>(w->ne[1] * w->ne[2]));
            for (int64_t t = 0; t < w->ne[2]; ++t)
                for (int64_t j = 0; j < w->ne[1]; ++j)
                    weights_[static_cast<size_t>(t * w->ne[1] + j)] =
                        args.weights[t * stride_of(w, 2) + j * stride_of(w, 1)];
            args.weights = weights_.data();
            args.weights_row_stride = w->ne[1];
        }
    }
    return call(plan, weights.get(), chain.up, chain.result, args);
}

bool Experts::run_matrix(Tensor* product, int n_threads) {
    const Projection up{product, nullptr, nullptr};
    if (!has_even_rows(up.x()) || !is_dense(product)) return false;
    const Slots slots = slots_of(up.x(), up.ids());
    if (slots.n_tokens == 0) return true;
    const Problem problem = problem_of_matrix(product);
    const moe_plan* plan = plan_for(problem, slots.n_tokens);
    if (!plan) return false;
    const Weights weights = weights_of_matrix(plan, problem, product);
    if (!weights) return false;
    moe_experts_args args{};
    args.n_threads = n_threads;
    args.out_layout = MOE_OUT_PER_SLOT;
    args.stop_before_activation = 1;
    return call(plan, weights.get(), up, product, args);
}

bool Experts::call(const moe_plan* plan, const moe_weights* weights, const Projection& first,
                   Tensor* out, moe_experts_args& args) {
    const Tensor *x = first.x(), *ids = first.ids();
    const Slots slots = slots_of(x, ids);
    moe_workspace* workspace = workspace_for(plan, slots.n_tokens);
    if (!workspace) return false;
    args.struct_size = sizeof args;
    args.in_layout = MOE_IN_TOKENS;
    args.n_tokens = slots.n_tokens;
    args.x = x->data;
    args.x_row_stride = x->ne[1] == 1 ? stride_of(x, 2) : stride_of(x, 1);
    args.ids = ids->data;
    args.ids_row_stride = stride_of(ids, 1);
    // A slot that counts as a token has its id alone, so ids lie without gaps.
    if (x->ne[1] != 1) {
        ids_.resize(static_cast<size_t>(slots.n_tokens));
        for (int64_t t = 0; t < ids->ne[1]; ++t)
            std::memcpy(&ids_[static_cast<size_t>(t * ids->ne[0])],
                        static_cast<const char*>(ids->data) + static_cast<size_t>(t) * ids->nb[1],
                        static_cast<size_t>(ids->ne[0]) * sizeof(int32_t));
        args.ids = ids_.data();
        args.ids_row_stride = 1;
    }
    // The allocator of graphs may have given the memory of x to the result.
    Range written = range_of(out);
    bool is_apart = !overlap(written, range_of(x)) && !overlap(written, range_of(ids));
    const size_t n = static_cast<size_t>(out->ne[0] * n_rows(out));
    if (args.weights) {
        const Range read{
            reinterpret_cast<const char*>(args.weights),
            reinterpret_cast<const char*>(
                args.weights + (slots.n_tokens - 1) * args.weights_row_stride + slots.top_k)};
        is_apart = is_apart && !overlap(written, read);
    }
    if (!is_apart) out_.resize(n);
    args.out = is_apart ? out->data : out_.data();
    if (!report(moe_experts(plan, weights, workspace, &args))) return false;
    if (!is_apart) std::memcpy(out->data, out_.data(), n * sizeof(float));
    return true;
}

}  // namespace moe::ggml
