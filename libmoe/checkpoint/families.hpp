// Model families: what a configuration and its tensors mean as a layer description. One file per
// group of relatives; the names of families are those of transformers' model types.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include "libmoe/checkpoint/layer_builder.hpp"

namespace moe {

struct Family {
    const char* name;
    void (*build)(LayerBuilder& layer);       // safetensors; null: not read from them
    void (*build_gguf)(LayerBuilder& layer);  // null: not read from GGUF
    // Where config.json has the language model's values, if not in text_config.
    const char* config_part = nullptr;
    // Names begin at the layer, not at the block that has "experts.".
    bool names_layers = false;
};

// The end of the sentence about a name that is not known.
constexpr const char* how_to_name_a_family =
    "; moe_checkpoint_options.family, or --family of the command, reads it as one of a name that "
    "is known";

std::span<const Family> all_families();
// null when unknown.
const Family* find_family(std::string_view name);
// "model_type" of config.json, or of its text_config. Unknown: MOE_ERROR_UNSUPPORTED lists the
// known families.
const Family& family_of_config(const Settings& settings, std::string_view& model_type);

// architectures.cpp: "general.architecture" of a GGUF. Architectures of one family may differ in
// what llama.cpp does with them.
struct GgufFamily {
    const Family* family;
    void (*build)(LayerBuilder& layer);
};
GgufFamily family_of_gguf(const Settings& settings, std::string_view& architecture);

// family_mixtral.cpp
void build_mixtral(LayerBuilder& layer);
void build_phimoe(LayerBuilder& layer);
void build_jamba(LayerBuilder& layer);
void build_dbrx(LayerBuilder& layer);
void build_granitemoe(LayerBuilder& layer);
void build_iquest_q1(LayerBuilder& layer);
void build_cohere2_moe(LayerBuilder& layer);
// family_qwen.cpp
void build_qwen2_moe(LayerBuilder& layer);
void build_qwen3_moe(LayerBuilder& layer);
void build_qwen3_next(LayerBuilder& layer);
void build_qwen3_vl_moe(LayerBuilder& layer);
void build_mellum(LayerBuilder& layer);
void build_lara_mini(LayerBuilder& layer);
void build_olmoe(LayerBuilder& layer);
void build_hunyuan_v1_moe(LayerBuilder& layer);
void build_ernie4_5_moe(LayerBuilder& layer);
void build_longcat_flash(LayerBuilder& layer);
// family_deepseek.cpp
void build_deepseek_v2(LayerBuilder& layer);
void build_deepseek_v3(LayerBuilder& layer);
void build_deepseek_v4(LayerBuilder& layer);
void build_axk2(LayerBuilder& layer);
// family_sigmoid.cpp
void build_glm4_moe(LayerBuilder& layer);
void build_glm4_moe_lite(LayerBuilder& layer);
void build_glm_moe_dsa(LayerBuilder& layer);
void build_dots1(LayerBuilder& layer);
void build_exaone_moe(LayerBuilder& layer);
void build_mimo_v2_flash(LayerBuilder& layer);
void build_kimi_linear(LayerBuilder& layer);
void build_bailing_moe(LayerBuilder& layer);
void build_bailing_hybrid(LayerBuilder& layer);
void build_minimax_m2(LayerBuilder& layer);
void build_minimax_m3(LayerBuilder& layer);
void build_hy_v3(LayerBuilder& layer);
void build_afmoe(LayerBuilder& layer);
void build_laguna(LayerBuilder& layer);
void build_lfm2_moe(LayerBuilder& layer);
void build_step(LayerBuilder& layer);
void build_mistral4(LayerBuilder& layer);
void build_mistral_large4(LayerBuilder& layer);
void build_glm5_next(LayerBuilder& layer);
void build_hy_v4(LayerBuilder& layer);
void build_flint(LayerBuilder& layer);
void build_sarvam_moe(LayerBuilder& layer);
void build_param2moe(LayerBuilder& layer);
void build_beam(LayerBuilder& layer);
void build_kolibri1(LayerBuilder& layer);
void build_nemotron_h(LayerBuilder& layer);
// family_gpt_oss.cpp, family_llama4.cpp, family_gemma4.cpp, family_inkling.cpp,
// family_muse_spark.cpp
void build_gpt_oss(LayerBuilder& layer);
void build_openai_privacy_filter(LayerBuilder& layer);
void build_llama4(LayerBuilder& layer);
void build_gemma4(LayerBuilder& layer);
void build_inkling(LayerBuilder& layer);
void build_inkling2(LayerBuilder& layer);
void build_muse_spark(LayerBuilder& layer);
// family_gguf.cpp; what they have in common is in gguf_block.hpp
void build_gguf_softmax(LayerBuilder& layer);        // normalised
void build_gguf_plain_softmax(LayerBuilder& layer);  // not
void build_gguf_ernie(LayerBuilder& layer);
void build_gguf_qwen2_moe(LayerBuilder& layer);
void build_gguf_qwen3_next(LayerBuilder& layer);
void build_gguf_granite_swa(LayerBuilder& layer);
void build_gguf_maple(LayerBuilder& layer);
void build_gguf_nomic_bert(LayerBuilder& layer);
void build_gguf_deepseek(LayerBuilder& layer);
void build_gguf_bailing_moe(LayerBuilder& layer);
void build_gguf_deepseek_v2(LayerBuilder& layer);
void build_gguf_deepseek_v4(LayerBuilder& layer);
void build_gguf_scored(LayerBuilder& layer);  // a sigmoid; keys say norm, scale and groups
void build_gguf_scored_softmax(LayerBuilder& layer);
void build_gguf_normalised_sigmoid(LayerBuilder& layer);
void build_gguf_mimo2(LayerBuilder& layer);
void build_gguf_kimi_linear(LayerBuilder& layer);
void build_gguf_kimi_k3(LayerBuilder& layer);
void build_gguf_cohere2_moe(LayerBuilder& layer);
void build_gguf_post_limited(LayerBuilder& layer);
void build_gguf_glm5_next(LayerBuilder& layer);
void build_gguf_hy_v4(LayerBuilder& layer);
void build_gguf_minimax_m3(LayerBuilder& layer);
void build_gguf_gpt_oss(LayerBuilder& layer);
void build_gguf_llama4(LayerBuilder& layer);
void build_gguf_gemma4(LayerBuilder& layer);
void build_gguf_nemotron_h(LayerBuilder& layer);
// GLM-4.7-Flash among the deepseek2 files; llama.cpp tells it by its blocks and its vocabulary.
bool is_gguf_glm_flash(const SettingsPart& keys, const Settings& settings);

// family_deepseek.cpp: scores of all experts one by one, with a bias for the selection, norm and
// scale. What a family's configuration leaves out, and its names; "" for none.
struct ScoredFacts {
    const char* width = "moe_intermediate_size";
    moe_score score = MOE_SCORE_SIGMOID;
    const char* router = "gate.weight";
    const char* bias = "gate.e_score_correction_bias";
    const char* shared = "shared_experts.";
    int32_t groups = 1;
    int32_t kept_groups = 1;
    const char* scale_key = "routed_scaling_factor";
    float scale = 1.0f;
    bool norm = true;
    float eps = 1e-20f;  // added to the sum, as transformers does
    // The name of hidden_act that means the family's own activation, which follows; null: none.
    const char* own_activation = nullptr;
};
void build_scored_layer(LayerBuilder& layer, const ScoredFacts& facts);
// As the configuration names it, under any of the keys that families have for it.
moe_score score_of(const Settings& settings, moe_score implied);

// The experts of every token id, [vocabulary, top_k].
void add_hash_table(LayerBuilder& layer, std::string_view name);

// family_parts.cpp: what families share.

// hidden_size, experts, top_k and the width under one of the keys; the activation that hidden_act
// names.
void read_sizes(LayerBuilder& layer, SettingKeys intermediate_keys);
void set_activation(LayerBuilder& layer);
// Routed experts between projections to fewer features and back. First the width, under a key that
// need not be there; then, when the other sizes are known, the projections.
void read_latent(LayerBuilder& layer, std::string_view key);
void add_latent(LayerBuilder& layer, std::string_view in, std::string_view out);
// Features that a routed expert reads and writes.
int32_t expert_features(const moe_layer_desc& desc);
// Softmax over all experts, the chosen weights divided by their plain sum or not. transformers adds
// nothing to the sum.
void set_softmax_routing(moe_layer_desc& desc, bool renormalize);
// gpt-oss: top-k of the logits, softmax of those chosen; SILU with alpha 1.702, up + 1 and limits;
// biases everywhere.
void set_gpt_oss_layer(moe_layer_desc& desc, float limit);
void set_oai_activation(moe_layer_desc& desc, float limit);  // SILU and so on alone
// For a rule that the family's own code has fixed: a key that says otherwise is refused.
void require_flag(const Settings& settings, std::string_view key, bool fixed);
// One of the keys, or key.N of the layer's number N where a configuration has a list.
std::optional<int64_t> find_layer_integer(const LayerBuilder& layer, SettingKeys keys, int64_t low,
                                          int64_t high);
void set_routed_scale(LayerBuilder& layer, std::string_view key, float implied);
// A limit bounds gate and up before the activation, as in DeepSeek-V4, or the activated gate and
// up, as in Step. Zero is none.
void set_limit_before(moe_layer_desc& desc, float limit);
void set_limit_after(moe_layer_desc& desc, float limit);
void set_shared_limit_before(moe_layer_desc& desc, float limit);
void set_shared_limit_after(moe_layer_desc& desc, float limit);
// The value for this layer in a list; 0 where there is none.
float number_of_layer(const LayerBuilder& layer, std::string_view key);
// Under n_group or num_expert_group, and topk_group; one group is none.
void set_groups(LayerBuilder& layer, int32_t default_groups, int32_t default_kept,
                moe_group_score score);
// The first of the names that exists, else the first: a family's own, then those that transformers
// 5 gives the same tensor in memory and writes with save_original_format=False.
std::string_view first_weight(const LayerBuilder& layer, SettingKeys names);
void add_router(LayerBuilder& layer, std::string_view name);
void add_selection_bias(LayerBuilder& layer, SettingKeys names);
// The names of stacks, a tensor of three dimensions for each of gate, up and down, up to
// "gate_proj.weight"; "" where there are none.
std::string_view stack_stem(const LayerBuilder& layer);
// gate_proj/up_proj/down_proj or w1/w3/w2 per expert, stacks of the three, or merged gate_up_proj
// and down_proj. The stem is that of the experts' names, but for stacks, which have their own.
void add_experts(LayerBuilder& layer, const FusedForm& form = {},
                 std::string_view stem = "experts.");
// stem + "gate_proj.weight" or "w1.weight" and so on; the width is that of the tensors.
void add_shared_expert(LayerBuilder& layer, std::string_view stem);
void add_shared_gate_up(LayerBuilder& layer, std::string_view gate_up, std::string_view down,
                        const FusedForm& form);
// The description of a shared expert like the routed ones; name is for the sentence about its
// width.
void set_shared_expert(LayerBuilder& layer, int64_t width, std::string_view name);
// Under the first stem that has one. None is an error where the configuration counts shared
// experts.
void add_any_shared_expert(LayerBuilder& layer, SettingKeys stems);
void give_shared_expert_the_limits(moe_layer_desc& desc);
// After add_shared_expert.
void add_shared_expert_gate(LayerBuilder& layer, std::string_view name);

}  // namespace moe
