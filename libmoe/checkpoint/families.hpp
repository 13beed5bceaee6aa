// Model families: what a configuration and its tensors mean as a layer description. One file per
// group of relatives; the names of families are those of transformers' model types.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "libmoe/checkpoint/layer_builder.hpp"

namespace moe {

struct Family {
    const char* name;
    void (*build)(LayerBuilder& layer);  // safetensors
    void (*build_gguf)(LayerBuilder& layer);
};

std::span<const Family> all_families();
// null when unknown.
const Family* find_family(std::string_view name);
// "model_type" of config.json, or of its text_config. Unknown: MOE_ERROR_UNSUPPORTED lists the
// known families.
const Family& family_of_config(const Settings& settings, std::string_view& model_type);
// "general.architecture" of a GGUF.
const Family& family_of_gguf(const Settings& settings, std::string_view& architecture);

// family_mixtral.cpp, family_qwen.cpp, family_deepseek.cpp, family_gpt_oss.cpp
void build_mixtral(LayerBuilder& layer);
void build_qwen2_moe(LayerBuilder& layer);
void build_qwen3_moe(LayerBuilder& layer);
void build_qwen3_next(LayerBuilder& layer);
void build_deepseek_v2(LayerBuilder& layer);
void build_deepseek_v3(LayerBuilder& layer);
void build_gpt_oss(LayerBuilder& layer);
// family_gguf.cpp
void build_gguf_mixtral(LayerBuilder& layer);
void build_gguf_qwen2_moe(LayerBuilder& layer);
void build_gguf_qwen3_moe(LayerBuilder& layer);
void build_gguf_qwen3_next(LayerBuilder& layer);
void build_gguf_deepseek_v2(LayerBuilder& layer);
void build_gguf_deepseek_v3(LayerBuilder& layer);
void build_gguf_gpt_oss(LayerBuilder& layer);

// family_parts.cpp: what families share.

// hidden_size, experts, top_k and the width under one of the keys; the activation that hidden_act
// names.
void read_sizes(LayerBuilder& layer, SettingKeys intermediate_keys);
void set_activation(LayerBuilder& layer);
// Softmax over all experts, the chosen weights divided by their plain sum or not. transformers adds
// nothing to the sum.
void set_softmax_routing(moe_layer_desc& desc, bool renormalize);
// gpt-oss: top-k of the logits, softmax of those chosen; SILU with alpha 1.702, up + 1 and limits;
// biases everywhere.
void set_gpt_oss_layer(moe_layer_desc& desc, float limit);
void add_router(LayerBuilder& layer, std::string_view name);
// gate_proj/up_proj/down_proj or w1/w3/w2 per expert, or merged gate_up_proj and down_proj.
void add_experts(LayerBuilder& layer);
// stem + "gate_proj.weight" and so on; the width is that of the tensors.
void add_shared_expert(LayerBuilder& layer, std::string_view stem);
// After add_shared_expert.
void add_shared_expert_gate(LayerBuilder& layer, std::string_view name);

}  // namespace moe
