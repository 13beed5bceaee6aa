// config_text.cpp - config.json with the keys that released models of each family have.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "checkpoint_files.hpp"

namespace moe::cli {
namespace {

using Json = nlohmann::ordered_json;

int32_t layer_count(const Model& model, const RecipeOptions& options) {
    return model.first_moe_layer + options.n_layers;
}

Json common_keys(const Model& model, const RecipeOptions& options, const char* architecture,
                 const char* model_type) {
    Json config;
    config["architectures"] = {architecture};
    config["model_type"] = model_type;
    config["hidden_size"] = model.hidden;
    config["num_hidden_layers"] = layer_count(model, options);
    config["num_attention_heads"] = model.n_heads;
    config["hidden_act"] = "silu";
    config["num_experts_per_tok"] = model.top_k;
    const bool own = options.format == "f16" || options.format == "f32";
    config["torch_dtype"] = own ? (options.format == "f16" ? "float16" : "float32") : "bfloat16";
    return config;
}

Json mixtral(const Model& model, const RecipeOptions& options) {
    Json config = common_keys(model, options, "MixtralForCausalLM", "mixtral");
    config["intermediate_size"] = model.intermediate;
    config["num_local_experts"] = model.n_experts;
    config["router_jitter_noise"] = 0.0;
    return config;
}

Json qwen(const Model& model, const RecipeOptions& options, const char* architecture,
          const char* model_type) {
    Json config = common_keys(model, options, architecture, model_type);
    config["intermediate_size"] = model.dense_intermediate;
    config["moe_intermediate_size"] = model.intermediate;
    if (model.shared_intermediate > 0) {
        config["shared_expert_intermediate_size"] = model.shared_intermediate;
    }
    config["num_experts"] = model.n_experts;
    config["norm_topk_prob"] = model.family != Family::Qwen2Moe;
    config["decoder_sparse_step"] = 1;
    config["mlp_only_layers"] = Json::array();
    return config;
}

Json deepseek(const Model& model, const RecipeOptions& options) {
    const bool v3 = model.family == Family::DeepseekV3;
    Json config =
        common_keys(model, options, v3 ? "DeepseekV3ForCausalLM" : "DeepseekV2ForCausalLM",
                    v3 ? "deepseek_v3" : "deepseek_v2");
    config["intermediate_size"] = model.dense_intermediate;
    config["moe_intermediate_size"] = model.intermediate;
    config["n_routed_experts"] = model.n_experts;
    config["n_shared_experts"] = model.n_shared;
    config["n_group"] = v3 ? model.n_group : 1;
    config["topk_group"] = v3 ? model.topk_group : 1;
    config["topk_method"] = v3 ? "noaux_tc" : "greedy";
    config["scoring_func"] = v3 ? "sigmoid" : "softmax";
    config["norm_topk_prob"] = v3;
    config["routed_scaling_factor"] = model.routed_scale;
    config["first_k_dense_replace"] = model.first_moe_layer;
    config["moe_layer_freq"] = 1;
    return config;
}

Json gpt_oss(const Model& model, const RecipeOptions& options) {
    Json config = common_keys(model, options, "GptOssForCausalLM", "gpt_oss");
    config["intermediate_size"] = model.intermediate;
    config["num_local_experts"] = model.n_experts;
    config["experts_per_token"] = model.top_k;
    config["swiglu_limit"] = 7.0;
    return config;
}

Json family_keys(const Model& model, const RecipeOptions& options) {
    switch (model.family) {
        case Family::Mixtral:
            return mixtral(model, options);
        case Family::Qwen2Moe:
            return qwen(model, options, "Qwen2MoeForCausalLM", "qwen2_moe");
        case Family::Qwen3Moe:
            return qwen(model, options, "Qwen3MoeForCausalLM", "qwen3_moe");
        case Family::Qwen3Next:
            return qwen(model, options, "Qwen3NextForCausalLM", "qwen3_next");
        case Family::DeepseekV2:
        case Family::DeepseekV3:
            return deepseek(model, options);
        case Family::GptOss:
            return gpt_oss(model, options);
    }
    throw Failure(model.name + " has no config");
}

// Modules that quantisers leave alone.
Json unquantised_modules(const Model& model, const RecipeOptions& options) {
    Json modules = {"lm_head"};
    const char* block = model.family == Family::Mixtral ? "block_sparse_moe" : "mlp";
    for (int32_t i = model.first_moe_layer; i < layer_count(model, options); ++i) {
        modules.push_back(fmt::format("model.layers.{}.{}.gate", i, block));
    }
    return modules;
}

const Json mxfp4_keys = {
    {"quant_method", "mxfp4"},
    {"modules_to_not_convert",
     {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}}};

Json quantization_keys(const Model& model, const RecipeOptions& options) {
    if (options.format == "fp8_128x128") {
        return {{"quant_method", "fp8"},
                {"fmt", "e4m3"},
                {"activation_scheme", "dynamic"},
                {"weight_block_size", {128, 128}}};
    }
    if (options.format == "mxfp4") return mxfp4_keys;
    if (options.format == "nvfp4") {
        return {{"quant_method", "modelopt"},
                {"quant_algo", "NVFP4"},
                {"ignore", unquantised_modules(model, options)}};
    }
    return nullptr;
}

}  // namespace

std::string config_text(const Model& model, const RecipeOptions& options) {
    Json config = family_keys(model, options);
    const Json quantization = quantization_keys(model, options);
    if (!quantization.is_null()) config["quantization_config"] = quantization;
    return config.dump(2);
}

std::string quantization_config_text(const Model& model, const RecipeOptions& options) {
    if (options.format != "nvfp4") return "";
    const Json quantization = {{"quant_algo", "NVFP4"},
                               {"kv_cache_quant_algo", nullptr},
                               {"group_size", 16},
                               {"exclude_modules", unquantised_modules(model, options)}};
    return Json{{"producer", {{"name", "modelopt"}}}, {"quantization", quantization}}.dump(2);
}

}  // namespace moe::cli
