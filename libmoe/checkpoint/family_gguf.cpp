// The same families as GGUF files. Sizes are read from the tensors and checked against the keys
// that exist; most routing is implied by the architecture, as llama.cpp runs it.
#include <algorithm>
#include <string>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/families.hpp"

namespace moe {
namespace {

// llama.cpp divides by max(sum, 2^-14).
constexpr float llama_cpp_smallest_sum = 6.103515625e-5f;
constexpr int64_t largest_width = 1 << 24;

enum class Gating { Implied = 0, Softmax = 1, Sigmoid = 2, SoftmaxAfterTopK = 3, SqrtSoftplus = 4 };

std::string old_name(const char* matrix, int32_t expert) {
    return fmt::format("ffn_{}.{}.weight", matrix, expert);
}

int32_t width_of(LayerBuilder& layer) {
    // Stacks are [expert, row, column].
    const int64_t width =
        layer.find("ffn_gate_exps.weight")      ? layer.dimension("ffn_gate_exps.weight", 1)
        : layer.find("ffn_gate_up_exps.weight") ? layer.dimension("ffn_gate_up_exps.weight", 1) / 2
                                                : layer.dimension(old_name("gate", 0), 0);
    if (width < 1 || width > largest_width) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: experts of width {}", layer.settings().file(), width);
    }
    return static_cast<int32_t>(width);
}

void read_gguf_sizes(LayerBuilder& layer) {
    const Settings& settings = layer.settings();
    moe_layer_desc& desc = layer.desc();
    desc.hidden = static_cast<int32_t>(settings.integer({"embedding_length"}, 1, largest_width));
    desc.n_experts = static_cast<int32_t>(settings.integer({"expert_count"}, 1, 4096));
    desc.top_k = static_cast<int32_t>(settings.integer({"expert_used_count"}, 1, 64));
    desc.intermediate = width_of(layer);
}

void set_gguf_norm(moe_layer_desc& desc) {
    desc.renormalize = MOE_RENORMALIZE_SUM_CLAMP;
    desc.renormalize_eps = llama_cpp_smallest_sum;
}

void add_old_experts(LayerBuilder& layer) {
    const moe_layer_desc& desc = layer.desc();
    for (int32_t e = 0; e < desc.n_experts; ++e) {
        layer.weight(old_name("gate", e), {MOE_ROLE_GATE, e, desc.intermediate, desc.hidden});
        layer.weight(old_name("up", e), {MOE_ROLE_UP, e, desc.intermediate, desc.hidden});
        layer.weight(old_name("down", e), {MOE_ROLE_DOWN, e, desc.hidden, desc.intermediate});
    }
}

void add_gguf_experts(LayerBuilder& layer) {
    const moe_layer_desc& desc = layer.desc();
    if (layer.find(old_name("gate", 0))) return add_old_experts(layer);
    const int64_t hidden = desc.hidden, width = desc.intermediate;
    if (layer.find("ffn_gate_up_exps.weight")) {
        layer.weight("ffn_gate_up_exps.weight",
                     {MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS, 2 * width, hidden, true});
    } else {
        layer.weight("ffn_gate_exps.weight", {MOE_ROLE_GATE, MOE_ALL_EXPERTS, width, hidden});
        layer.weight("ffn_up_exps.weight", {MOE_ROLE_UP, MOE_ALL_EXPERTS, width, hidden});
    }
    layer.weight("ffn_down_exps.weight", {MOE_ROLE_DOWN, MOE_ALL_EXPERTS, hidden, width});
}

void add_gguf_shared_expert(LayerBuilder& layer) {
    moe_layer_desc& desc = layer.desc();
    const char* names[] = {"ffn_gate_shexp.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight"};
    if (std::none_of(std::begin(names), std::end(names),
                     [&](const char* name) { return layer.find(name); }))
        return;
    // expert_shared_feed_forward_length is the width of one shared expert at times: the tensor is
    // right.
    const int64_t width = layer.dimension("ffn_gate_shexp.weight", 0);
    if (width > largest_width) layer.fail_unsupported("ffn_gate_shexp.weight", "its width");
    desc.shared_intermediate = static_cast<int32_t>(width);
    desc.shared_activation = desc.activation;
    desc.shared_is_gated = 1;
    layer.weight("ffn_gate_shexp.weight", {MOE_ROLE_SHARED_GATE, 0, width, desc.hidden});
    layer.weight("ffn_up_shexp.weight", {MOE_ROLE_SHARED_UP, 0, width, desc.hidden});
    layer.weight("ffn_down_shexp.weight", {MOE_ROLE_SHARED_DOWN, 0, desc.hidden, width});
}

void build_silu_layer(LayerBuilder& layer) {
    read_gguf_sizes(layer);
    layer.desc().activation = MOE_ACTIVATION_SILU;
    layer.desc().is_gated = 1;
    add_router(layer, "ffn_gate_inp.weight");
    add_gguf_experts(layer);
    add_gguf_shared_expert(layer);
}

void build_softmax_layer(LayerBuilder& layer, bool norm) {
    build_silu_layer(layer);
    layer.desc().score = MOE_SCORE_SOFTMAX;
    if (norm) set_gguf_norm(layer.desc());
}

void build_gated_shared_layer(LayerBuilder& layer, bool norm) {
    build_softmax_layer(layer, norm);
    if (layer.desc().shared_intermediate)
        add_shared_expert_gate(layer, "ffn_gate_inp_shexp.weight");
}

void set_gating(LayerBuilder& layer, Gating implied) {
    const auto key = layer.settings().find_integer({"expert_gating_func"}, 0, 4).value_or(0);
    const Gating gating = key == 0 ? implied : static_cast<Gating>(key);
    moe_layer_desc& desc = layer.desc();
    switch (gating) {
        case Gating::Sigmoid:
            desc.score = MOE_SCORE_SIGMOID;
            break;
        case Gating::SqrtSoftplus:
            desc.score = MOE_SCORE_SQRT_SOFTPLUS;
            break;
        case Gating::SoftmaxAfterTopK:
            desc.score = MOE_SCORE_NONE;
            desc.post_score = MOE_SCORE_SOFTMAX;
            break;
        default:
            desc.score = MOE_SCORE_SOFTMAX;
            break;
    }
}

void add_selection_bias_if_any(LayerBuilder& layer) {
    // Some converters leave the suffix out.
    const char* names[] = {"exp_probs_b.bias", "exp_probs_b"};
    for (const char* name : names) {
        if (!layer.find(name)) continue;
        layer.desc().has_selection_bias = 1;
        layer.vector(name, {MOE_ROLE_SELECTION_BIAS, 0, 1, layer.desc().n_experts});
        return;
    }
}

enum class Norm { ByKey, Always };

void build_scored_gguf(LayerBuilder& layer, Gating implied, Norm norm = Norm::ByKey) {
    build_silu_layer(layer);
    const Settings& settings = layer.settings();
    moe_layer_desc& desc = layer.desc();
    set_gating(layer, implied);
    if (norm == Norm::Always || settings.find_flag("expert_weights_norm").value_or(false))
        set_gguf_norm(desc);
    const float scale = settings.find_number("expert_weights_scale").value_or(0.0f);
    desc.has_routed_scale = 1;
    desc.routed_scale = scale == 0.0f ? 1.0f : scale;  // llama.cpp takes 0 for no scale
    const auto groups =
        settings.find_integer({"expert_group_count"}, 0, desc.n_experts).value_or(0);
    if (groups > 1) {
        desc.n_group = static_cast<int32_t>(groups);
        desc.topk_group =
            static_cast<int32_t>(settings.integer({"expert_group_used_count"}, 1, groups));
        desc.group_score = MOE_GROUP_SCORE_TOP2_SUM;  // llama.cpp knows no other
    }
    add_selection_bias_if_any(layer);
}

}  // namespace

void build_gguf_mixtral(LayerBuilder& layer) {
    build_softmax_layer(layer, true);
}

void build_gguf_qwen2_moe(LayerBuilder& layer) {
    build_gated_shared_layer(layer, false);
}

void build_gguf_qwen3_moe(LayerBuilder& layer) {
    build_softmax_layer(layer, true);
}

void build_gguf_qwen3_next(LayerBuilder& layer) {
    build_gated_shared_layer(layer, true);
}

void build_gguf_deepseek_v2(LayerBuilder& layer) {
    build_scored_gguf(layer, Gating::Softmax);
}

void build_gguf_deepseek_v3(LayerBuilder& layer) {
    build_scored_gguf(layer, Gating::Sigmoid);
}

// What a file does not say is as llama.cpp has it for the architecture, where the model's own code
// may differ: Phi-3.5-MoE is a softmax there, not the sparsemixer.
void build_gguf_softmax(LayerBuilder& layer) {
    build_softmax_layer(layer, true);
    add_selection_bias_if_any(layer);  // ERNIE-4.5
}

void build_gguf_plain_softmax(LayerBuilder& layer) {
    build_softmax_layer(layer, false);
}

void build_gguf_bailing_moe(LayerBuilder& layer) {
    build_scored_gguf(layer, Gating::Softmax);
}

// llama.cpp does not load some of these without the key of the gating function. Here they are what
// the model is in any case: converters leave the key out where config.json has no scoring_func.
void build_gguf_sigmoid(LayerBuilder& layer) {
    build_scored_gguf(layer, Gating::Sigmoid);
}

void build_gguf_normalised_sigmoid(LayerBuilder& layer) {
    build_scored_gguf(layer, Gating::Sigmoid, Norm::Always);
}

void build_gguf_llama4(LayerBuilder& layer) {
    build_silu_layer(layer);
    layer.desc().post_score = MOE_SCORE_SIGMOID;
    layer.desc().weight_on = MOE_WEIGHT_ON_INPUT;
}

void build_gguf_gpt_oss(LayerBuilder& layer) {
    // The converter has taken gate and up apart; limits and alpha are fixed in llama.cpp.
    build_silu_layer(layer);
    moe_layer_desc& desc = layer.desc();
    set_gpt_oss_layer(desc, 7.0f);
    layer.vector("ffn_gate_inp.bias", {MOE_ROLE_ROUTER_BIAS, 0, 1, desc.n_experts});
    layer.vector("ffn_gate_exps.bias", {MOE_ROLE_GATE_BIAS, MOE_ALL_EXPERTS, 1, desc.intermediate});
    layer.vector("ffn_up_exps.bias", {MOE_ROLE_UP_BIAS, MOE_ALL_EXPERTS, 1, desc.intermediate});
    layer.vector("ffn_down_exps.bias", {MOE_ROLE_DOWN_BIAS, MOE_ALL_EXPERTS, 1, desc.hidden});
}

}  // namespace moe
