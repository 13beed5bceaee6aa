// Keys of config.json that no family's reader looks at: those of released files are left alone,
// those that would change the result are refused by name and value.
#include "tests/checkpoint/family_models.hpp"

namespace moe::test {
namespace {

// A block in one of the spellings of most families.
struct Spelling {
    const char* block = "mlp.";
    const char* bias = "gate.e_score_correction_bias";  // "" for none
    const char* shared = "shared_experts.";             // "" for none
    const char* router = "gate.weight";
    const char* gate = "gate_proj";
    const char* up = "up_proj";
    const char* down = "down_proj";
};
constexpr Spelling scored;
constexpr Spelling plain = {"mlp.", "", ""};
constexpr Spelling sparse = {"block_sparse_moe.", "", "", "gate.weight", "w1", "w3", "w2"};

Model block_of(const std::string& type, const std::string& keys, const Spelling& names) {
    Model model = model_of(type, keys);
    const std::string block = layer0 + names.block;
    model.add(block + names.router, "BF16", {experts, hidden});
    if (*names.bias) model.add(block + names.bias, "F32", {experts});
    add_expert_names(model, block, names.gate, names.up, names.down);
    if (*names.shared) add_shared(model, block + names.shared);
    return model;
}

// The keys of the MoE part as released files have them, with small sizes.
TEST(UnreadKeys, ThoseOfReleasedFilesAreLeftAlone) {
    const struct {
        const char* type;
        std::string keys;
        Spelling names;
    } cases[] = {
        {"mixtral",
         R"("hidden_act":"silu","intermediate_size":32,"num_local_experts":4,)"
         R"("output_router_logits":false,"router_aux_loss_coef":0.02,"router_jitter_noise":0.0)",
         sparse},
        {"minimax",
         R"("hidden_act":"silu","intermediate_size":32,"num_local_experts":4,)"
         R"("output_router_logits":false,"router_aux_loss_coef":0.001,"router_jitter_noise":0.0,)"
         R"("shared_intermediate_size":0,"shared_moe_mode":"sigmoid","postnorm":true)",
         sparse},
        {"arctic",
         R"("intermediate_size":32,"num_local_experts":4,"moe_layer_frequency":2,)"
         R"("moe_min_capacity":0,"moe_token_dropping":true,"moe_train_capacity_factor":1,)"
         R"("moe_eval_capacity_factor":1,"enable_expert_tensor_parallelism":false,)"
         R"("parallel_attn_mlp_res":true,"router_aux_loss_coef":0.001)",
         sparse},
        {"qwen3_moe",
         R"("hidden_act":"silu","moe_intermediate_size":32,"num_experts":4,"norm_topk_prob":true,)"
         R"("decoder_sparse_step":1,"mlp_only_layers":[],"output_router_logits":false,)"
         R"("router_aux_loss_coef":0.001,"max_window_layers":48,"top_k":50)",
         plain},
        {"olmoe",
         R"("hidden_act":"silu","intermediate_size":32,"num_experts":4,"norm_topk_prob":false,)"
         R"("clip_qkv":null,"output_router_logits":false,"router_aux_loss_coef":0.01)",
         plain},
        {"deepseek_v2",
         R"("hidden_act":"silu","moe_intermediate_size":32,"n_routed_experts":4,)"
         R"("n_shared_experts":2,"aux_loss_alpha":0.001,"ep_size":1,"first_k_dense_replace":1,)"
         R"("moe_layer_freq":1,"n_group":1,"norm_topk_prob":false,"routed_scaling_factor":1.0,)"
         R"("scoring_func":"softmax","seq_aux":true,"topk_group":1,"topk_method":"greedy")",
         Spelling{.bias = ""}},
        {"deepseek_v3",
         R"("hidden_act":"silu","moe_intermediate_size":32,"n_routed_experts":4,)"
         R"("n_shared_experts":1,"ep_size":1,"first_k_dense_replace":3,"moe_layer_freq":1,)"
         R"("n_group":2,"norm_topk_prob":true,"num_nextn_predict_layers":1,)"
         R"("routed_scaling_factor":2.5,"scoring_func":"sigmoid","topk_group":1,)"
         R"("topk_method":"noaux_tc","index_topk":2048,"index_n_heads":64)",
         scored},
        {"kimi_k2",
         R"("hidden_act":"silu","moe_intermediate_size":32,"n_routed_experts":4,)"
         R"("n_shared_experts":1,"aux_loss_alpha":0.001,"ep_size":1,"moe_layer_freq":1,)"
         R"("n_group":1,"norm_topk_prob":true,"routed_scaling_factor":2.827,)"
         R"("scoring_func":"sigmoid","seq_aux":true,"topk_group":1,"topk_method":"noaux_tc")",
         scored},
        {"deepseek_v4",
         R"("hidden_act":"silu","moe_intermediate_size":32,"n_routed_experts":4,)"
         R"("n_shared_experts":1,"expert_dtype":"fp4","index_topk":512,"norm_topk_prob":true,)"
         R"("num_hash_layers":0,"routed_scaling_factor":1.5,"scoring_func":"sqrtsoftplus",)"
         R"("swiglu_limit":10.0,"topk_method":"noaux_tc","router_jitter_noise":0.0)",
         Spelling{.block = "ffn.", .bias = "gate.bias", .gate = "w1", .up = "w3", .down = "w2"}},
        {"glm4_moe",
         R"("hidden_act":"silu","moe_intermediate_size":32,"n_routed_experts":4,)"
         R"("n_shared_experts":1,"first_k_dense_replace":1,"n_group":1,"norm_topk_prob":true,)"
         R"("routed_scaling_factor":1.0,"topk_group":1,"use_qk_norm":false)",
         scored},
        {"glm_moe_dsa",
         R"("hidden_act":"silu","moe_intermediate_size":32,"n_routed_experts":4,)"
         R"("n_shared_experts":1,"ep_size":1,"index_topk":2048,"index_topk_freq":4,)"
         R"("moe_layer_freq":1,"n_group":1,"norm_topk_prob":true,"routed_scaling_factor":2.5,)"
         R"("scoring_func":"sigmoid","topk_group":1,"topk_method":"noaux_tc")",
         scored},
        {"minimax_m2",
         R"("hidden_act":"silu","intermediate_size":32,"num_local_experts":4,)"
         R"("mtp_transformer_layers":1,"num_mtp_modules":3,"output_router_logits":false,)"
         R"("router_aux_loss_coef":0.001,"router_jitter_noise":0.0,"scoring_func":"sigmoid",)"
         R"("shared_intermediate_size":0,"shared_moe_mode":"sigmoid","use_routing_bias":true)",
         Spelling{"block_sparse_moe.", "e_score_correction_bias", "", "gate.weight", "w1", "w3",
                  "w2"}},
        {"mimo_v2_flash",
         R"("hidden_act":"silu","moe_intermediate_size":32,"n_routed_experts":4,)"
         R"("n_shared_experts":null,"moe_layer_freq":[0,1],"moe_router_dtype":"bfloat16",)"
         R"("n_group":1,"norm_topk_prob":true,"routed_scaling_factor":null,)"
         R"("scoring_func":"sigmoid","topk_group":1,"topk_method":"noaux_tc")",
         Spelling{.shared = ""}},
        {"kimi_linear",
         R"("hidden_act":"silu","moe_intermediate_size":32,"num_experts":4,)"
         R"("num_experts_per_token":2,"num_shared_experts":1,"moe_layer_freq":1,)"
         R"("moe_renormalize":true,"moe_router_activation_func":"sigmoid","num_expert_group":1,)"
         R"("routed_scaling_factor":2.446,"topk_group":1,"use_grouped_topk":true)",
         Spelling{"block_sparse_moe.", "gate.e_score_correction_bias", "shared_experts.",
                  "gate.weight", "w1", "w3", "w2"}},
        {"bailing_moe_v2",
         R"("hidden_act":"silu","moe_intermediate_size":32,"num_experts":4,)"
         R"("moe_shared_expert_intermediate_size":32,"num_shared_experts":1,"n_group":2,)"
         R"("topk_group":1,"norm_topk_prob":true,"routed_scaling_factor":2.5,)"
         R"("score_function":"sigmoid","moe_router_enable_expert_bias":true,"router_dtype":"fp32",)"
         R"("norm_softmax":false,"norm_head":false,"output_router_logits":false)",
         Spelling{.bias = "gate.expert_bias"}},
        {"bailing_hybrid",
         R"("moe_intermediate_size":32,"num_experts":4,"num_shared_experts":1,"n_group":1,)"
         R"("topk_group":1,"norm_topk_prob":true,"routed_scaling_factor":1.0,)"
         R"("score_function":"sigmoid","moe_router_enable_expert_bias":true,)"
         R"("moe_router_enable_routed_scaling":true,"moe_router_enable_shared_expert":true)",
         Spelling{.bias = "gate.expert_bias"}},
        {"hy_v3",
         R"("hidden_act":"silu","moe_intermediate_size":32,"expert_hidden_dim":32,)"
         R"("num_experts":4,"num_shared_experts":1,"enable_moe_fp32_combine":false,)"
         R"("moe_router_enable_expert_bias":true,"moe_router_use_sigmoid":true,)"
         R"("route_norm":true,"router_scaling_factor":2.826,"first_k_dense_replace":1)",
         Spelling{"mlp.", "expert_bias", "shared_mlp.", "router.gate.weight"}},
        {"hunyuan_v1_moe",
         R"("hidden_act":"silu","moe_intermediate_size":[32,32],"num_experts":4,)"
         R"("moe_topk":[2,2],"num_shared_expert":[1,1],"capacity_factor":1.0,)"
         R"("moe_drop_tokens":false,"moe_layer_num_skipped":0,"use_mixed_mlp_moe":true,)"
         R"("moe_random_routing_dropped_token":false,"norm_topk_prob":true,)"
         R"("group_limited_greedy":false,"n_group":false,"routed_scaling_factor":false)",
         Spelling{"mlp.", "", "shared_mlp.", "gate.wg.weight"}},
        {"ernie4_5_moe",
         R"("hidden_act":"silu","moe_intermediate_size":32,"moe_num_experts":4,"moe_k":2,)"
         R"("moe_num_shared_experts":1,"moe_capacity":[64,64,64],"moe_gate":"topk",)"
         R"("moe_layer_interval":1,"moe_layer_start_index":1,"moe_use_aux_free":true)",
         Spelling{.bias = "moe_statics.e_score_correction_bias"}},
        {"afmoe",
         R"("hidden_act":"silu","moe_intermediate_size":32,"num_experts":4,)"
         R"("num_shared_experts":1,"n_group":1,"topk_group":1,"num_expert_groups":1,)"
         R"("num_limited_groups":1,"load_balance_coeff":0.001,"route_norm":true,)"
         R"("route_scale":2.826,"score_func":"sigmoid","use_grouped_mm":true)",
         Spelling{"mlp.", "expert_bias", "shared_experts.", "router.gate.weight"}},
        {"lfm2_moe",
         R"("moe_intermediate_size":32,"num_experts":4,"norm_topk_prob":true,)"
         R"("num_dense_layers":2,"routed_scaling_factor":1.0,"use_expert_bias":true)",
         Spelling{"feed_forward.", "expert_bias", "", "gate.weight", "w1", "w3", "w2"}},
        {"dots1",
         R"("hidden_act":"silu","moe_intermediate_size":32,"n_routed_experts":4,)"
         R"("n_shared_experts":2,"first_k_dense_replace":1,"moe_layer_freq":1,"n_group":1,)"
         R"("topk_group":1,"norm_topk_prob":true,"routed_scaling_factor":2.5,)"
         R"("scoring_func":"noaux_tc","topk_method":"noaux_tc")",
         scored},
        {"jamba",
         R"("hidden_act":"silu","intermediate_size":32,"num_experts":4,"attn_layer_period":8,)"
         R"("expert_layer_offset":1,"expert_layer_period":2,"output_router_logits":false,)"
         R"("router_aux_loss_coef":0.001,"use_mamba_kernels":true)",
         Spelling{"feed_forward.", "", "", "router.weight"}},
        {"phimoe",
         R"("hidden_act":"silu","intermediate_size":32,"num_local_experts":4,)"
         R"("input_jitter_noise":0.01,"router_jitter_noise":0.01,"lm_head_bias":true,)"
         R"("output_router_logits":false,"router_aux_loss_coef":0.0)",
         sparse},
        {"laguna",
         R"("moe_intermediate_size":32,"num_experts":4,"shared_expert_intermediate_size":48,)"
         R"("gating":"per-head","moe_apply_router_weight_on_input":false,)"
         R"("moe_routed_scaling_factor":2.5,"moe_router_logit_softcapping":0.0,)"
         R"("moe_router_use_sigmoid":true,"moe_quant_type":"block_wise_fp8")",
         Spelling{.bias = "experts.e_score_correction_bias", .shared = "shared_expert."}},
        {"exaone_moe",
         R"("hidden_act":"silu","moe_intermediate_size":32,"num_experts":4,)"
         R"("num_shared_experts":1,"is_moe_layer":[false,true],"first_last_k_dense_replace":1,)"
         R"("n_group":1,"topk_group":1,"norm_topk_prob":true,"routed_scaling_factor":2.5,)"
         R"("scoring_func":"sigmoid","topk_method":"noaux_tc")",
         Spelling{.bias = "e_score_correction_bias"}},
    };
    for (const auto& c : cases) {
        const Model model = block_of(c.type, c.keys, c.names);
        EXPECT_EQ(layer_failure(model).text, "") << c.type;
    }
}

Failure failure_with_key(const std::string& type, const std::string& keys, const Spelling& names,
                         const std::string& family = "") {
    moe_checkpoint_options options{};
    if (!family.empty()) options.family = family.c_str();
    return layer_failure(block_of(type, keys, names), 0, options);
}

void expect_refused(const Failure& failure, const std::string& key, const std::string& value,
                    const std::string& family) {
    EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED) << failure.text;
    EXPECT_EQ(failure.text, "config.json: '" + key + "' is " + value + ", which family '" + family +
                                "' neither reads nor has in layer 0; a key that changes nothing "
                                "may be removed");
}

const std::string few = R"("moe_intermediate_size":32,"num_experts":4,)";

TEST(UnreadKeys, ThoseThatChangeTheResultAreRefused) {
    const std::tuple<std::string, std::string, std::string> cases[] = {
        {"swiglu_limit", "10.0", "10"},
        {"swiglu_limits", "[7.0,0]", "7"},
        {"expert_swiglu_limit_list", "[7]", "7"},
        {"swiglu_limits_shared", "[16]", "16"},
        {"swiglu_alpha", "1.702", "1.702"},
        {"routed_scaling_factor", "2.5", "2.5"},
        {"route_scale", "2", "2"},
        {"moe_router_topk_scaling_factor", "1.8", "1.8"},
        {"moe_router_logit_softcapping", "30.0", "30"},
        {"router_logit_softcap", "5", "5"},
        {"scoring_func", "\"sigmoid\"", "'sigmoid'"},
        {"moe_router_score_function", "\"sqrtsoftplus\"", "'sqrtsoftplus'"},
        {"moe_router_use_sigmoid", "true", "true"},
        {"moe_renormalize", "true", "true"},
        {"topk_method", "\"noaux_tc\"", "'noaux_tc'"},
        {"topk_method", "\"group_limited_greedy\"", "'group_limited_greedy'"},
        {"n_group", "2", "2"},
        {"num_expert_group", "4", "4"},
        {"use_routing_bias", "true", "true"},
        {"moe_router_enable_expert_bias", "true", "true"},
        {"moe_topk", "3", "3"},
        {"moe_apply_router_weight_on_input", "true", "true"},
        {"zero_expert_num", "8", "8"},
        {"mlp_hidden_act", "\"relu2\"", "'relu2'"},
        {"moe_norm_min", "1e-12", "1e-12"},
        {"moe_router_some_new_rule", "true", "true"},
        {"moe_router_type", "\"hash\"", "'hash'"},
        {"expert_output_multiplier", "0.5", "0.5"},
        {"routing_temperatures", "[0.5,0.5]", "0.5"},
    };
    for (const auto& [key, value, shown] : cases) {
        const std::string keys = few + "\"" + key + "\":" + value;
        const bool is_list = value.front() == '[';
        expect_refused(failure_with_key("qwen3_moe", keys, plain), is_list ? key + ".0" : key,
                       shown, "qwen3_moe");
    }
}

TEST(UnreadKeys, ValuesThatChangeNothingAreLeftAlone) {
    for (const char* pair : {R"("swiglu_limit":null)",
                             R"("swiglu_limit":0)",
                             R"("swiglu_limits":[0,7.0])",
                             R"("swiglu_limits":[])",
                             R"("swiglu_alpha":1.0)",
                             R"("routed_scaling_factor":1.0)",
                             R"("moe_router_logit_softcapping":0.0)",
                             R"("scoring_func":"softmax")",
                             R"("moe_renormalize":false)",
                             R"("topk_method":"greedy")",
                             R"("n_group":1)",
                             R"("topk_group":1)",
                             R"("use_routing_bias":false)",
                             R"("moe_topk":2)",
                             R"("zero_expert_num":0)",
                             R"("hidden_activation":"silu")",
                             R"("moe_bias":"")",
                             R"("moe_router_topk_scaling_factor":null)",
                             R"("expert_output_multiplier":1)",
                             R"("vision_config":{"moe_router_type":"hash"})",
                             R"("router_type":"topN")"})
        EXPECT_EQ(failure_with_key("qwen3_moe", few + pair, plain).text, "") << pair;
}

// The family that one would name by hand for a model that is not known.
TEST(UnreadKeys, AFamilyNamedByHandIsHeldToThem) {
    const std::string keys = routed + R"(,"n_shared_experts":1,"scoring_func":"sigmoid")";
    EXPECT_EQ(failure_with_key("new_model", keys, scored, "glm_moe_dsa").text, "");
    expect_refused(
        failure_with_key("new_model", keys + R"(,"swiglu_limit":10.0)", scored, "glm_moe_dsa"),
        "swiglu_limit", "10", "glm_moe_dsa");
    // A family that reads it.
    EXPECT_EQ(failure_with_key("new_model", keys + R"(,"swiglu_limit":6.0)",
                               Spelling{.bias = "gate.bias"}, "minimax_m3")
                  .status,
              MOE_ERROR_NOT_FOUND);  // of its own names
    const Failure scaled = failure_with_key(
        "new_model", local + R"(,"router_scaling_factor":2.826)", sparse, "mixtral");
    expect_refused(scaled, "router_scaling_factor", "2.826", "mixtral");
}

// What the language model's part says hides the same key outside.
TEST(UnreadKeys, ThePartOfTheLanguageModelCounts) {
    const auto with = [](const std::string& outside, const std::string& inside) {
        Model model = block_of("qwen3_moe", "", plain);
        model.config = R"({"model_type":"a_vl_model",)" + outside +
                       R"("text_config":{"model_type":"qwen3_moe","hidden_size":64,)" + few +
                       inside + R"("num_experts_per_tok":2}})";
        return layer_failure(model);
    };
    EXPECT_EQ(with(R"("scoring_func":"sigmoid",)", R"("scoring_func":"softmax",)").text, "");
    expect_refused(with("", R"("scoring_func":"sigmoid",)"), "text_config.scoring_func",
                   "'sigmoid'", "qwen3_moe");
    expect_refused(with(R"("scoring_func":"sigmoid",)", ""), "scoring_func", "'sigmoid'",
                   "qwen3_moe");
}

TEST(UnreadKeys, LimitsAndScoresThatAreRead) {
    const auto layer_of = [](const Model& model) { return desc_of(model, 17); };
    const std::string more =
        R"("moe_intermediate_size":32,"num_experts":4,"swiglu_limits":[7.5,0])";
    const moe_layer_desc exaone =
        layer_of(block_of("exaone_moe", more, Spelling{.bias = "e_score_correction_bias"}));
    EXPECT_EQ(exaone.gate_limit, 7.5f);
    EXPECT_EQ(exaone.up_limit, 7.5f);
    EXPECT_EQ(exaone.shared_gate_limit, 7.5f);
    const moe_layer_desc laguna = layer_of(
        block_of("laguna", few + R"("moe_router_score_func":"sqrtsoftplus")",
                 Spelling{.bias = "experts.e_score_correction_bias", .shared = "shared_expert."}));
    EXPECT_EQ(laguna.score, MOE_SCORE_SQRT_SOFTPLUS);
    Model oss = gpt_oss(true);
    oss.config.insert(oss.config.size() - 1, R"(,"swiglu_alpha":1.5)");
    EXPECT_EQ(desc_of(oss, 6).activation_alpha, 1.5f);
}

// As JSON readers have it, the last of two equal keys counts.
TEST(UnreadKeys, OfEqualKeysTheLastCounts) {
    EXPECT_EQ(failure_with_key("qwen3_moe", few + R"("n_group":8,"n_group":1)", plain).text, "");
    expect_refused(failure_with_key("qwen3_moe", few + R"("n_group":1,"n_group":8)", plain),
                   "n_group", "8", "qwen3_moe");
}

}  // namespace
}  // namespace moe::test
