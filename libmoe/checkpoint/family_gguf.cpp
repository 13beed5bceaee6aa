// The families as GGUF files: what llama.cpp's graph of an architecture fixes and which keys it
// reads, where the model's own code may differ. Phi-3.5-MoE is a softmax there, not the
// sparsemixer.
#include <cmath>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/families.hpp"
#include "libmoe/checkpoint/gguf_block.hpp"

namespace moe {
namespace {

// Every key is read. Some of these architectures llama.cpp does not load without the key of the
// gating function. Here they are what the model is in any case: converters leave the key out where
// config.json has no scoring_func.
constexpr GgufFacts scored = {.score = GgufScore::Sigmoid,
                              .reads_score = true,
                              .norm = GgufNorm::ByKey,
                              .reads_scale = true,
                              .has_bias = true};

constexpr GgufFacts with(GgufFacts facts, GgufScore score) {
    facts.score = score;
    return facts;
}

constexpr GgufFacts with(GgufFacts facts, GgufLimit limit, GgufSharedLimit shared) {
    facts.limit = limit;
    facts.shared_limit = shared;
    return facts;
}

}  // namespace

// Softmax, with little else to say.

void build_gguf_softmax(LayerBuilder& layer) {
    build_gguf_block(layer, {});
}

void build_gguf_plain_softmax(LayerBuilder& layer) {
    build_gguf_block(layer, {.norm = GgufNorm::Never});
}

void build_gguf_ernie(LayerBuilder& layer) {
    build_gguf_block(layer, {.has_bias = true});
}

void build_gguf_qwen2_moe(LayerBuilder& layer) {
    build_gguf_block(layer, {.norm = GgufNorm::Never, .has_shared_gate = true});
}

void build_gguf_qwen3_next(LayerBuilder& layer) {
    build_gguf_block(layer, {.has_shared_gate = true});
}

void build_gguf_granite_swa(LayerBuilder& layer) {
    build_gguf_block(layer, {.shared_is_merged = true});
}

void build_gguf_maple(LayerBuilder& layer) {
    build_gguf_block(layer, {.limit = GgufLimit::BeforeActivation});
}

void build_gguf_nomic_bert(LayerBuilder& layer) {
    build_gguf_block(
        layer,
        {.norm = GgufNorm::Never, .is_gated = false, .activation = MOE_ACTIVATION_GELU_TANH});
}

void build_gguf_deepseek(LayerBuilder& layer) {
    build_gguf_block(layer, {.norm = GgufNorm::Never, .reads_scale = true});
}

void build_gguf_bailing_moe(LayerBuilder& layer) {
    build_gguf_block(layer, {.norm = GgufNorm::ByKey, .reads_scale = true});
}

// Scores that keys name.

bool is_gguf_glm_flash(const SettingsPart& keys, const Settings& settings) {
    constexpr int64_t glm_vocabulary = 154880;
    const auto blocks = keys.find_integer("block_count", 0, INT32_MAX).value_or(0) -
                        keys.find_integer("nextn_predict_layers", 0, INT32_MAX).value_or(0);
    const auto written = keys.find_integer("vocab_size", 0, INT32_MAX);
    const auto vocabulary =
        written ? *written : settings.find_length("tokenizer.ggml.tokens").value_or(0);
    return (blocks == 47 || blocks == 48) && vocabulary == glm_vocabulary;
}

void build_gguf_deepseek_v2(LayerBuilder& layer) {
    const bool is_glm = is_gguf_glm_flash({layer.settings(), ""}, layer.settings());
    build_gguf_block(layer, with(scored, is_glm ? GgufScore::Sigmoid : GgufScore::Softmax));
}

void build_gguf_scored(LayerBuilder& layer) {
    build_gguf_block(layer, scored);
}

void build_gguf_scored_softmax(LayerBuilder& layer) {
    build_gguf_block(layer, with(scored, GgufScore::Softmax));
}

void build_gguf_normalised_sigmoid(LayerBuilder& layer) {
    build_gguf_block(layer, {.score = GgufScore::Sigmoid, .reads_score = true, .has_bias = true});
}

void build_gguf_mimo2(LayerBuilder& layer) {
    build_gguf_block(layer, {.score = GgufScore::Sigmoid, .has_bias = true});
}

void build_gguf_kimi_linear(LayerBuilder& layer) {
    build_gguf_block(
        layer,
        {.score = GgufScore::Sigmoid, .reads_score = true, .reads_scale = true, .has_bias = true});
}

// The mean of the experts' sum and of the shared expert.
void build_gguf_cohere2_moe(LayerBuilder& layer) {
    GgufFacts facts = scored;
    facts.has_bias = false;
    build_gguf_block(layer, facts);
    if (layer.desc().shared_intermediate) layer.desc().combine = MOE_COMBINE_MEAN;
}

void build_gguf_post_limited(LayerBuilder& layer) {
    build_gguf_block(layer, with(scored, GgufLimit::AfterActivation, GgufSharedLimit::ByKey));
}

void build_gguf_glm5_next(LayerBuilder& layer) {
    build_gguf_block(layer,
                     with(scored, GgufLimit::BeforeActivation, GgufSharedLimit::ByKeyOrAsExperts));
}

void build_gguf_hy_v4(LayerBuilder& layer) {
    build_gguf_block(layer, with(scored, GgufLimit::BeforeActivation, GgufSharedLimit::None));
}

// The first layers take their experts from a table of token ids.
void build_gguf_deepseek_v4(LayerBuilder& layer) {
    constexpr const char* table = "ffn_gate_tid2eid.weight";
    const bool hash = layer.find(table) != nullptr;
    GgufFacts facts = with(with(scored, GgufScore::SqrtSoftplus), GgufLimit::BeforeActivation,
                           GgufSharedLimit::ByKeyOrAsExperts);
    facts.reads_score = false;
    facts.has_bias = !hash;
    build_gguf_block(layer, facts);
    if (hash) add_hash_table(layer, table);
}

// Other activations.

void build_gguf_minimax_m3(LayerBuilder& layer) {
    build_gguf_block(layer, scored);
    set_oai_activation(layer.desc(), 7.0f);  // a constant in llama.cpp
    give_shared_expert_the_limits(layer.desc());
}

void build_gguf_gpt_oss(LayerBuilder& layer) {
    // The converter has taken gate and up apart.
    const GgufFacts facts = {.score = GgufScore::SoftmaxAfterTopK, .norm = GgufNorm::Never};
    read_gguf_sizes(layer, facts);
    moe_layer_desc& desc = layer.desc();
    set_gpt_oss_layer(desc, 7.0f);
    set_gguf_routing(layer, facts);
    add_gguf_tensors(layer, facts);
    layer.vector("ffn_gate_inp.bias", {MOE_ROLE_ROUTER_BIAS, 0, 1, desc.n_experts});
    layer.vector("ffn_gate_exps.bias", {MOE_ROLE_GATE_BIAS, MOE_ALL_EXPERTS, 1, desc.intermediate});
    layer.vector("ffn_up_exps.bias", {MOE_ROLE_UP_BIAS, MOE_ALL_EXPERTS, 1, desc.intermediate});
    layer.vector("ffn_down_exps.bias", {MOE_ROLE_DOWN_BIAS, MOE_ALL_EXPERTS, 1, desc.hidden});
}

void build_gguf_llama4(LayerBuilder& layer) {
    // The logits choose.
    build_gguf_block(layer, {.score = GgufScore::Sigmoid, .norm = GgufNorm::Never});
    layer.desc().score = MOE_SCORE_NONE;
    layer.desc().post_score = MOE_SCORE_SIGMOID;
    layer.desc().weight_on = MOE_WEIGHT_ON_INPUT;
    if (layer.desc().has_expert_scale)
        fail(MOE_ERROR_UNSUPPORTED,
             "{}: 'ffn_down_exps.scale' of llama4 multiplies what an expert gives, and its weights "
             "multiply what it takes",
             layer.settings().file());
}

// The factors of the experts lie beside down, and LayerBuilder finds them. The rest as in
// safetensors: the router's input is the program's, and so is the dense MLP.
void build_gguf_gemma4(LayerBuilder& layer) {
    build_gguf_block(layer, {.activation = MOE_ACTIVATION_GELU_TANH});
    moe_layer_desc& desc = layer.desc();
    desc.has_router_norm = desc.has_router_norm_weight = 1;
    desc.router_norm_eps = layer.settings().number(gguf_norm_eps);
    desc.has_router_input_scale = 1;
    desc.router_input_scale = 1.0f / std::sqrt(static_cast<float>(desc.hidden));
    layer.vector("ffn_gate_inp.scale", {MOE_ROLE_ROUTER_NORM, 0, 1, desc.hidden});
}

void build_gguf_nemotron_h(LayerBuilder& layer) {
    build_gguf_block(layer, {.score = GgufScore::Sigmoid,
                             .norm = GgufNorm::ByKey,
                             .reads_scale = true,
                             .has_bias = true,
                             .is_gated = false,
                             .activation = MOE_ACTIVATION_RELU2,
                             .latent_in = "ffn_latent_down.weight",
                             .latent_out = "ffn_latent_up.weight"});
}

void build_gguf_kimi_k3(LayerBuilder& layer) {
    GgufFacts facts = scored;
    facts.activation = MOE_ACTIVATION_SITU;
    facts.latent_in = "ffn_routed_down.weight";
    facts.latent_out = "ffn_routed_up.weight";
    facts.latent_norm = "ffn_routed_norm.weight";
    moe_layer_desc& desc = layer.desc();
    desc.situ_beta = layer.settings().number("activation.situ_beta");
    desc.situ_beta_up = layer.settings().number("activation.situ_linear_beta");
    build_gguf_block(layer, facts);
}

}  // namespace moe
