// The MoE block of a GGUF file.
#include "libmoe/checkpoint/gguf_block.hpp"

#include <algorithm>
#include <string>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/families.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

// llama.cpp divides by max(sum, 2^-14).
constexpr float llama_cpp_smallest_sum = 6.103515625e-5f;
// Limits up to this are none to llama.cpp.
constexpr float llama_cpp_no_limit = 1e-6f;
constexpr int64_t largest_width = 1 << 24;

std::string old_name(const char* matrix, int32_t expert) {
    return fmt::format("ffn_{}.{}.weight", matrix, expert);
}

int32_t checked_width(const LayerBuilder& layer, int64_t width, const char* what) {
    if (width < 1 || width > largest_width)
        fail(MOE_ERROR_CORRUPT_FILE, "{}: {} of width {}", layer.settings().file(), what, width);
    return static_cast<int32_t>(width);
}

// Stacks are [expert, row, column].
int64_t expert_rows(LayerBuilder& layer, bool is_gated) {
    if (!is_gated) return layer.dimension("ffn_up_exps.weight", 1);
    if (layer.find("ffn_gate_exps.weight")) return layer.dimension("ffn_gate_exps.weight", 1);
    if (layer.find("ffn_gate_up_exps.weight"))
        return layer.dimension("ffn_gate_up_exps.weight", 1) / 2;
    return layer.dimension(old_name("gate", 0), 0);
}

void add_gguf_latent(LayerBuilder& layer, const GgufFacts& facts) {
    moe_layer_desc& desc = layer.desc();
    if (!desc.latent) return;
    add_latent(layer, facts.latent_in, facts.latent_out);
    if (!facts.latent_norm || !layer.find(facts.latent_norm)) return;
    desc.has_latent_norm = 1;
    desc.latent_norm_eps = layer.settings().number(gguf_norm_eps);
    layer.vector(facts.latent_norm, {MOE_ROLE_LATENT_NORM, 0, 1, desc.latent});
}

void add_old_experts(LayerBuilder& layer) {
    const moe_layer_desc& desc = layer.desc();
    for (int32_t e = 0; e < desc.n_experts; ++e) {
        layer.weight(old_name("gate", e), {MOE_ROLE_GATE, e, desc.intermediate, desc.hidden});
        layer.weight(old_name("up", e), {MOE_ROLE_UP, e, desc.intermediate, desc.hidden});
        layer.weight(old_name("down", e), {MOE_ROLE_DOWN, e, desc.hidden, desc.intermediate});
    }
}

void add_stacked_experts(LayerBuilder& layer) {
    const moe_layer_desc& desc = layer.desc();
    const int64_t features = expert_features(desc), width = desc.intermediate;
    if (desc.is_gated && layer.find("ffn_gate_up_exps.weight")) {
        layer.weight("ffn_gate_up_exps.weight",
                     {MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS, 2 * width, features, true});
    } else {
        if (desc.is_gated)
            layer.weight("ffn_gate_exps.weight", {MOE_ROLE_GATE, MOE_ALL_EXPERTS, width, features});
        layer.weight("ffn_up_exps.weight", {MOE_ROLE_UP, MOE_ALL_EXPERTS, width, features});
    }
    layer.weight("ffn_down_exps.weight", {MOE_ROLE_DOWN, MOE_ALL_EXPERTS, features, width});
}

void add_separate_shared_expert(LayerBuilder& layer) {
    moe_layer_desc& desc = layer.desc();
    // expert_shared_feed_forward_length is the width of one shared expert at times: the tensor is
    // right.
    const char* first = desc.is_gated ? "ffn_gate_shexp.weight" : "ffn_up_shexp.weight";
    const int64_t width = layer.dimension(first, 0);
    set_shared_expert(layer, width, first);
    if (desc.is_gated)
        layer.weight("ffn_gate_shexp.weight", {MOE_ROLE_SHARED_GATE, 0, width, desc.hidden});
    layer.weight("ffn_up_shexp.weight", {MOE_ROLE_SHARED_UP, 0, width, desc.hidden});
    layer.weight("ffn_down_shexp.weight", {MOE_ROLE_SHARED_DOWN, 0, desc.hidden, width});
}

void add_gguf_shared_expert(LayerBuilder& layer, const GgufFacts& facts) {
    const char* names[] = {"ffn_gate_shexp.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight"};
    if (std::none_of(std::begin(names), std::end(names),
                     [&](const char* name) { return layer.find(name); })) {
        const auto count = layer.settings().find_integer({"expert_shared_count"}, 0, 4096);
        if (count.value_or(0) > 0) (void)layer.get("ffn_up_shexp.weight");  // says what is missing
        return;
    }
    if (facts.shared_is_merged) {
        add_shared_gate_up(layer, "ffn_up_shexp.weight", "ffn_down_shexp.weight", {});
    } else {
        add_separate_shared_expert(layer);
    }
    if (facts.has_shared_gate) add_shared_expert_gate(layer, "ffn_gate_inp_shexp.weight");
}

void add_selection_bias_if_any(LayerBuilder& layer) {
    // Hy3's converter leaves the suffix out.
    for (const char* name : {"exp_probs_b.bias", "exp_probs_b"}) {
        if (!layer.find(name)) continue;
        layer.desc().has_selection_bias = 1;
        layer.vector(name, {MOE_ROLE_SELECTION_BIAS, 0, 1, layer.desc().n_experts});
        return;
    }
}

template <class Value>
[[noreturn]] void fail_ignored(const LayerBuilder& layer, std::string_view key, const Value& value,
                               std::string_view instead) {
    fail(MOE_ERROR_UNSUPPORTED, "{}: '{}' is {}, but models of this architecture {}",
         layer.settings().file(), printable(gguf_key(layer, key)).text, value, instead);
}

const char* score_name(GgufScore score) {
    switch (score) {
        case GgufScore::Softmax:
            return "a softmax";
        case GgufScore::Sigmoid:
            return "a sigmoid";
        case GgufScore::SoftmaxAfterTopK:
            return "a softmax of the chosen logits";
        case GgufScore::SqrtSoftplus:
            return "the root of a softplus";
    }
    return "?";
}

GgufScore read_score(const LayerBuilder& layer, const GgufFacts& facts) {
    constexpr std::string_view key = "expert_gating_func";
    const auto value = layer.settings().find_integer({key}, 0, 4).value_or(0);
    const auto implied = static_cast<int64_t>(facts.score);
    if (value == 0 || value == implied) return facts.score;
    if (!facts.reads_score)
        fail_ignored(layer, key, value,
                     fmt::format("have {} ({})", score_name(facts.score), implied));
    return static_cast<GgufScore>(value);
}

void set_score(moe_layer_desc& desc, GgufScore score) {
    switch (score) {
        case GgufScore::Softmax:
            desc.score = MOE_SCORE_SOFTMAX;
            break;
        case GgufScore::Sigmoid:
            desc.score = MOE_SCORE_SIGMOID;
            break;
        case GgufScore::SqrtSoftplus:
            desc.score = MOE_SCORE_SQRT_SOFTPLUS;
            break;
        case GgufScore::SoftmaxAfterTopK:
            desc.score = MOE_SCORE_NONE;
            desc.post_score = MOE_SCORE_SOFTMAX;
            break;
    }
}

void set_norm(LayerBuilder& layer, GgufNorm norm) {
    constexpr std::string_view key = "expert_weights_norm";
    const auto value = layer.settings().find_flag(key);
    const bool is_fixed = norm != GgufNorm::ByKey, fixed = norm == GgufNorm::Always;
    if (is_fixed && value && *value != fixed)
        fail_ignored(layer, key, *value,
                     fixed ? "have weights of sum 1" : "have weights as they are scored");
    if (!(is_fixed ? fixed : value.value_or(false))) return;
    layer.desc().renormalize = MOE_RENORMALIZE_SUM_CLAMP;
    layer.desc().renormalize_eps = llama_cpp_smallest_sum;
}

// llama.cpp takes 0 for no scale.
void set_scale(LayerBuilder& layer, bool reads_scale) {
    constexpr std::string_view key = "expert_weights_scale";
    const float value = layer.settings().find_number(key).value_or(0.0f);
    const float scale = value == 0.0f ? 1.0f : value;
    if (!reads_scale && scale != 1.0f) fail_ignored(layer, key, value, "have no such scale");
    if (!reads_scale) return;
    layer.desc().has_routed_scale = 1;
    layer.desc().routed_scale = scale;
}

// In llama.cpp of every architecture, always by the two best of a group.
void set_gguf_groups(LayerBuilder& layer) {
    constexpr const char* key = "expert_group_count";
    moe_layer_desc& desc = layer.desc();
    const Settings& settings = layer.settings();
    const int64_t groups = settings.find_integer({key}, 0, desc.n_experts).value_or(0);
    if (groups <= 1) return;
    if (desc.n_experts % groups != 0 || desc.n_experts / groups < 2)
        fail(MOE_ERROR_CORRUPT_FILE,
             "{}: '{}' is {}, but {} experts are not {} groups of 2 or more", settings.file(),
             printable(gguf_key(layer, key)).text, groups, desc.n_experts, groups);
    desc.n_group = static_cast<int32_t>(groups);
    desc.topk_group =
        static_cast<int32_t>(settings.integer({"expert_group_used_count"}, 1, groups));
    desc.group_score = MOE_GROUP_SCORE_TOP2_SUM;
}

// For one number, or an array with one for each block.
std::string block_key(const LayerBuilder& layer, std::string_view key) {
    const auto length = layer.settings().find_length(key);
    if (!length) return std::string(key);
    std::string listed = fmt::format("{}.{}", key, layer.number());
    if (!layer.settings().has(listed))
        fail(MOE_ERROR_CORRUPT_FILE, "{}: '{}' is an array of {} values and has none for block {}",
             layer.settings().file(), printable(gguf_key(layer, key)).text, *length,
             layer.number());
    return listed;
}

// No limit is 0.
std::optional<float> find_limit(const LayerBuilder& layer, std::string_view key) {
    const auto value = layer.settings().find_number(block_key(layer, key));
    if (value && *value <= llama_cpp_no_limit) return 0.0f;
    return value;
}

void set_limits(LayerBuilder& layer, const GgufFacts& facts) {
    constexpr std::string_view key = "swiglu_clamp_exp", shared_key = "swiglu_clamp_shexp";
    moe_layer_desc& desc = layer.desc();
    const float limit = find_limit(layer, key).value_or(0.0f);
    const auto found = find_limit(layer, shared_key);
    if (limit > 0 && facts.limit == GgufLimit::None)
        fail_ignored(layer, key, limit, "have no limit of the experts");
    if (found.value_or(0.0f) > 0 && facts.shared_limit == GgufSharedLimit::None)
        fail_ignored(layer, shared_key, *found, "have no limit of the shared expert");
    const bool before = facts.limit == GgufLimit::BeforeActivation;
    before ? set_limit_before(desc, limit) : set_limit_after(desc, limit);
    if (facts.shared_limit == GgufSharedLimit::None || !desc.shared_intermediate) return;
    const bool as_experts = facts.shared_limit == GgufSharedLimit::ByKeyOrAsExperts;
    const float shared = found.value_or(as_experts ? limit : 0.0f);
    before ? set_shared_limit_before(desc, shared) : set_shared_limit_after(desc, shared);
}

void refuse_softcap(const LayerBuilder& layer) {
    constexpr std::string_view key = "router_logit_softcapping";
    const float cap = layer.settings().find_number(key).value_or(0.0f);
    if (cap != 0) fail_ignored(layer, key, cap, "have no cap of the router's logits");
}

}  // namespace

std::string gguf_key(const LayerBuilder& layer, std::string_view key) {
    const auto architecture = layer.settings().find_text("general.architecture");
    return fmt::format("{}.{}", architecture.value_or(""), key);
}

void read_gguf_sizes(LayerBuilder& layer, const GgufFacts& facts) {
    const Settings& settings = layer.settings();
    moe_layer_desc& desc = layer.desc();
    desc.hidden = static_cast<int32_t>(settings.integer({"embedding_length"}, 1, largest_width));
    desc.n_experts = static_cast<int32_t>(settings.integer({"expert_count"}, 1, 4096));
    const std::string top_k = block_key(layer, "expert_used_count");
    desc.top_k = static_cast<int32_t>(settings.integer({top_k}, 1, 64));
    desc.is_gated = facts.is_gated;
    if (facts.latent_in && layer.find(facts.latent_in))
        desc.latent = checked_width(layer, layer.dimension(facts.latent_in, 0), "a latent");
    desc.intermediate = checked_width(layer, expert_rows(layer, facts.is_gated), "experts");
}

void set_gguf_routing(LayerBuilder& layer, const GgufFacts& facts) {
    set_score(layer.desc(), read_score(layer, facts));
    set_norm(layer, facts.norm);
    set_scale(layer, facts.reads_scale);
    set_gguf_groups(layer);
    refuse_softcap(layer);
}

void add_gguf_tensors(LayerBuilder& layer, const GgufFacts& facts) {
    moe_layer_desc& desc = layer.desc();
    add_router(layer, "ffn_gate_inp.weight");
    add_gguf_latent(layer, facts);
    if (desc.is_gated && layer.find(old_name("gate", 0))) {
        add_old_experts(layer);
    } else {
        add_stacked_experts(layer);
    }
    add_gguf_shared_expert(layer, facts);
    set_limits(layer, facts);
    if (facts.has_bias) add_selection_bias_if_any(layer);
}

void build_gguf_block(LayerBuilder& layer, const GgufFacts& facts) {
    read_gguf_sizes(layer, facts);
    layer.desc().activation = facts.activation;
    set_gguf_routing(layer, facts);
    add_gguf_tensors(layer, facts);
}

}  // namespace moe
