// Writes the seed corpus: small valid files of every kind, from which the fuzzers start.
//     moe-fuzz-seeds FOLDER
// makes FOLDER/<target>/seed-*.
#include "tests/fuzz/seeds.hpp"

#include <cstdio>

#include "tests/checkpoint/quantised_models.hpp"
#include "tests/fuzz/chunks.hpp"
#include "tests/fuzz/every_family.hpp"
#include "tests/fuzz/plan_chunks.hpp"

namespace {

using namespace moe_fuzz;
using moe::test::bnb_state;
using moe::test::raw;
using moe::test::SpelledMatrix;

// Small sizes: what is read of a file does not depend on them.
constexpr int64_t h = 32, w = 16, n_experts = 2;

// ---- safetensors and models

struct SmallModel {
    Model model;

    SmallModel(const std::string& type, const std::string& more) {
        model.config =
            "{\"model_type\":\"" + type + "\",\"hidden_size\":32,\"num_experts_per_tok\":1," +
            "\"num_experts\":2,\"moe_intermediate_size\":16,\"intermediate_size\":16" + more + "}";
    }
    void separate(const std::string& block, const char* gate, const char* up, const char* down) {
        model.add(block + "gate.weight", "BF16", {n_experts, h});
        for (int e = 0; e < n_experts; ++e) {
            const std::string stem = block + "experts." + std::to_string(e) + ".";
            model.add(stem + gate + ".weight", "BF16", {w, h});
            model.add(stem + up + ".weight", "BF16", {w, h});
            model.add(stem + down + ".weight", "BF16", {h, w});
        }
    }
    void shared(const std::string& stem) {
        model.add(stem + "gate_proj.weight", "BF16", {w, h});
        model.add(stem + "up_proj.weight", "BF16", {w, h});
        model.add(stem + "down_proj.weight", "BF16", {h, w});
    }
};

const std::string mlp = "model.layers.0.mlp.";

SmallModel small_mixtral() {
    SmallModel m("mixtral", ",\"num_local_experts\":2,\"hidden_act\":\"silu\"");
    m.separate("model.layers.0.block_sparse_moe.", "w1", "w3", "w2");
    return m;
}

SmallModel small_qwen(const std::string& type, const std::string& more = "") {
    SmallModel m(type, more);
    m.separate(mlp, "gate_proj", "up_proj", "down_proj");
    return m;
}

SmallModel small_qwen2() {
    SmallModel m = small_qwen("qwen2_moe", ",\"shared_expert_intermediate_size\":16");
    m.shared(mlp + "shared_expert.");
    m.model.add(mlp + "shared_expert_gate.weight", "BF16", {1, h});
    return m;
}

SmallModel small_deepseek() {
    SmallModel m = small_qwen("deepseek_v3",
                              ",\"n_routed_experts\":2,\"n_shared_experts\":1,\"n_group\":1,"
                              "\"routed_scaling_factor\":2.5,\"norm_topk_prob\":true");
    m.model.add(mlp + "gate.e_score_correction_bias", "F32", {n_experts});
    m.shared(mlp + "shared_experts.");
    return m;
}

SmallModel small_dbrx() {
    SmallModel m("dbrx", ",\"ffn_config\":{\"ffn_hidden_size\":16}");
    const std::string block = "transformer.blocks.0.ffn.";
    m.model.add(block + "router.layer.weight", "BF16", {n_experts, h});
    for (const char* name : {"w1", "v1", "w2"})
        m.model.add(block + "experts.mlp." + name, "BF16", {n_experts * w, h});
    return m;
}

SmallModel small_hash() {
    SmallModel m("deepseek_v4", "");
    m.separate("layers.0.ffn.", "w1", "w3", "w2");
    m.model.tensors["layers.0.ffn.gate.tid2eid"] = {"I64", {8, 1}, std::string(64, '\0')};
    return m;
}

SmallModel small_fp8() {
    SmallModel m =
        small_qwen("qwen3_moe", ",\"quantization_config\":{\"weight_block_size\":[16,16]}");
    for (int e = 0; e < n_experts; ++e) {
        for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
            const std::string stem = mlp + "experts." + std::to_string(e) + "." + name;
            const bool is_down = name[0] == 'd';
            m.model.add(stem + ".weight", "F8_E4M3",
                        is_down ? moe::test::Shape{h, w} : moe::test::Shape{w, h});
            m.model.add(stem + ".weight_scale_inv", "F32",
                        is_down ? moe::test::Shape{2, 1} : moe::test::Shape{1, 2});
            m.model.add_scalar(stem + ".input_scale", 1.0f);
        }
    }
    return m;
}

SmallModel small_nvfp4() {
    SmallModel m = small_qwen("qwen3_moe");
    for (int e = 0; e < n_experts; ++e) {
        const std::string stem = mlp + "experts." + std::to_string(e) + ".";
        moe::test::make_nvfp4(m.model, stem + "gate_proj", w, h);
        moe::test::make_nvfp4(m.model, stem + "up_proj", w, h);
        moe::test::make_nvfp4(m.model, stem + "down_proj", h, w);
    }
    return m;
}

// Gate and up have one group of 32 columns; down is too narrow for one.
SmallModel small_kbit() {
    SmallModel m("qwen3_moe", "");
    m.model.add(mlp + "gate.weight", "BF16", {n_experts, h});
    for (int e = 0; e < n_experts; ++e) {
        const std::string stem = mlp + "experts." + std::to_string(e) + ".";
        m.model.add(stem + "gate_proj.weight_planes", "I32", {w, 3});
        m.model.add(stem + "gate_proj.weight_absmax", "U8", {w, 1});
        m.model.add(stem + "up_proj.weight_planes", "I32", {w, 5});
        m.model.add(stem + "up_proj.weight_absmax", "F32", {w, 1});
        m.model.add(stem + "down_proj.weight", "BF16", {h, w});
    }
    return m;
}

SmallModel small_gpt_oss(bool mxfp4) {
    SmallModel m("gpt_oss", ",\"num_local_experts\":2,\"swiglu_limit\":7.0");
    const int64_t width = 32;  // MXFP4 has groups of 32
    m.model.config.replace(m.model.config.find("\"intermediate_size\":16"), 22,
                           "\"intermediate_size\":32");
    m.model.add(mlp + "router.weight", "BF16", {n_experts, h});
    m.model.add(mlp + "router.bias", "BF16", {n_experts});
    m.model.add(mlp + "experts.gate_up_proj_bias", "BF16", {n_experts, 2 * width});
    m.model.add(mlp + "experts.down_proj_bias", "BF16", {n_experts, h});
    if (mxfp4) {
        m.model.add(mlp + "experts.gate_up_proj_blocks", "U8", {n_experts, 2 * width, 1, 16});
        m.model.add(mlp + "experts.gate_up_proj_scales", "U8", {n_experts, 2 * width, 1});
        m.model.add(mlp + "experts.down_proj_blocks", "U8", {n_experts, h, 1, 16});
        m.model.add(mlp + "experts.down_proj_scales", "U8", {n_experts, h, 1});
    } else {
        m.model.add(mlp + "experts.gate_up_proj", "BF16", {n_experts, h, 2 * width});
        m.model.add(mlp + "experts.down_proj", "BF16", {n_experts, width, h});
    }
    return m;
}

// Experts by `make`, which is given each of their matrices.
template <class Make>
SmallModel small_quantised(const std::string& config, Make make) {
    SmallModel m = small_qwen("qwen3_moe", ",\"quantization_config\":{" + config + "}");
    for (int e = 0; e < n_experts; ++e) {
        const std::string stem = mlp + "experts." + std::to_string(e) + ".";
        make(SpelledMatrix{m.model, stem + "gate_proj", w, h});
        make(SpelledMatrix{m.model, stem + "up_proj", w, h});
        make(SpelledMatrix{m.model, stem + "down_proj", h, w});
    }
    return m;
}

// FP8 of all experts in one tensor.
SmallModel small_fp8_stack() {
    SmallModel m("mixtral", ",\"num_local_experts\":2");
    m.model.add(mlp + "gate.weight", "F32", {n_experts, h});
    m.model.add(mlp + "experts.gate_up_proj", "F8_E4M3", {n_experts, 2 * w, h});
    m.model.add(mlp + "experts.gate_up_proj_scale", "F32", {n_experts, 2 * w, 1});
    m.model.add(mlp + "experts.down_proj", "F8_E4M3", {n_experts, h, w});
    m.model.add(mlp + "experts.down_proj_scale", "F32", {n_experts, h, 1});
    return m;
}

std::string model_input(const SmallModel& small) {
    const std::string& config = small.model.config;
    return raw(static_cast<uint32_t>(config.size())) + config + small.model.file();
}

void add_integer_models(const Seeds& seeds) {
    const std::string gptq = "\"quant_method\":\"gptq\",\"group_size\":16,\"bits\":";
    const auto groups = [](int bits) {
        return "\"config_groups\":{\"group_0\":{\"weights\":{\"group_size\":16,\"num_bits\":" +
               std::to_string(bits) + "}}}";
    };
    const std::pair<const char*, SmallModel> models[] = {
        {"gptq", small_quantised(gptq + "4", [](const SpelledMatrix& m) { m.gptq(4, false); })},
        {"gptq_act_order",
         small_quantised(gptq + "8,\"desc_act\":true,\"checkpoint_format\":\"gptq_v2\"",
                         [](const SpelledMatrix& m) { m.gptq(8, true); })},
        {"awq", small_quantised("\"quant_method\":\"awq\",\"version\":\"gemm\"",
                                [](const SpelledMatrix& m) { m.awq(); })},
        {"packed", small_quantised(groups(4), [](const SpelledMatrix& m) { m.packed(4, false); })},
        {"packed_zeros",
         small_quantised(groups(4), [](const SpelledMatrix& m) { m.packed(4, true); })},
        {"packed_one_scale",
         small_quantised(groups(8), [](const SpelledMatrix& m) { m.packed_of_one_scale(); })},
        {"bnb_int8", small_quantised("", [](const SpelledMatrix& m) { m.int8(); })},
        {"bnb_fp4", small_quantised("",
                                    [](const SpelledMatrix& m) {
                                        m.four_bits(false, false,
                                                    bnb_state(m.rows, m.columns, false, false));
                                    })},
        {"bnb_nf4", small_quantised("", [](const SpelledMatrix& m) {
             if (m.rows == w) return;
             m.four_bits(true, true, bnb_state(m.rows, m.columns, true, true));
         })}};
    for (const auto& [name, small] : models) seeds.add("model", name, model_input(small));
}

void add_float_models(const Seeds& seeds) {
    const auto of_whole_groups = [](const char* type, const char* scale) {
        return small_quantised("", [=](const SpelledMatrix& m) {
            if (m.columns == h) m.mxfp4(type, scale);
        });
    };
    const std::pair<const char*, SmallModel> models[] = {
        {"fp8_rows", small_quantised("",
                                     [](const SpelledMatrix& m) {
                                         m.fp8("BF16", {m.rows, 1});
                                     })},
        {"fp8_one", small_quantised("\"weight_block_size\":[8,8]",
                                    [](const SpelledMatrix& m) { m.fp8("F32", {}); })},
        {"fp8_e8m0", small_quantised("",
                                     [](const SpelledMatrix& m) {
                                         if (m.columns == h) m.fp8("U8", {m.rows, 1});
                                     })},
        {"fp8_stack", small_fp8_stack()},
        {"packed_nvfp4", small_quantised("", [](const SpelledMatrix& m) { m.packed_nvfp4(); })},
        {"modelopt_mxfp4", of_whole_groups("U8", ".weight_scale")},
        {"deepseek_mxfp4", of_whole_groups("I8", ".scale")}};
    for (const auto& [name, small] : models) seeds.add("model", name, model_input(small));
}

void add_quant_states(const Seeds& seeds) {
    seeds.add("quant_state", "nested", bnb_state(w, h, true, true));
    seeds.add("quant_state", "plain", bnb_state(w, h, false, false));
    seeds.add("quant_state", "narrow", bnb_state(w / 2, h, true, true));
    seeds.add("quant_state", "shared_taller", bnb_state(2 * w, h, true, true));
}

void add_models(const Seeds& seeds) {
    const std::pair<const char*, SmallModel> models[] = {
        {"mixtral", small_mixtral()},
        {"qwen2", small_qwen2()},
        {"qwen3", small_qwen("qwen3_moe", ",\"norm_topk_prob\":true")},
        {"deepseek_v2", small_qwen("deepseek_v2", ",\"topk_method\":\"greedy\"")},
        {"deepseek_v3", small_deepseek()},
        {"deepseek_v4_hash", small_hash()},
        {"dbrx", small_dbrx()},
        {"fp8", small_fp8()},
        {"nvfp4", small_nvfp4()},
        {"mxfp4", small_gpt_oss(true)},
        {"kbit", small_kbit()},
        {"gpt_oss_bf16", small_gpt_oss(false)}};
    for (const auto& [name, small] : models) seeds.add("model", name, model_input(small));
}

void add_safetensors(const Seeds& seeds) {
    moe::test::SafetensorsWriter writer;
    writer.add("b.weight", "BF16", {2, 3}, std::string(12, 'b'));
    writer.add("scalar", "F32", {}, "1234");
    writer.add("empty", "U8", {0, 7}, "");
    writer.add("a.weight", "F8_E4M3", {5}, "12345");
    seeds.add("safetensors", "four", writer.file());
    seeds.add("safetensors", "none", moe::test::safetensors_file("{}", ""));
    seeds.add(
        "safetensors", "metadata",
        moe::test::safetensors_file(
            R"({"__metadata__":{"format":"pt"},"x":{"dtype":"F4","shape":[2],"data_offsets":[0,1],"extra":[1,{}]}})",
            "x"));
    seeds.add("safetensors", "mixtral", small_mixtral().model.file());
}

// What a configuration has beside the sizes.
constexpr std::pair<const char*, const char*> family_configs[] = {
    {"mixtral", R"("hidden_act":"silu")"},
    {"qwen2_moe", R"("norm_topk_prob":false,"shared_expert_intermediate_size":48)"},
    {"qwen3_moe", R"("hidden_act":"gelu","quantization_config":{"weight_block_size":[128,128]})"},
    {"qwen3_next", R"("hidden_act":"gelu_new","architectures":["X",null,1.5,-1,true])"},
    {"deepseek_v2",
     R"("scoring_func":"softmax","topk_method":"group_limited_greedy","n_group":2,"topk_group":1)"},
    {"deepseek_v3", R"("n_shared_experts":2,"n_group":2,"topk_group":1,"scoring_func":"sigmoid")"},
    {"kimi_k2", R"("n_routed_experts":4,"routed_scaling_factor":2.827,"n_group":1)"},
    {"gpt_oss", R"("num_local_experts":4,"experts_per_token":2,"swiglu_limit":7)"},
    {"deepseek_v4", R"("scoring_func":"sqrtsoftplus","n_shared_experts":1,"swiglu_limit":10)"},
    {"longcat_flash",
     R"("n_routed_experts":4,"zero_expert_num":2,"expert_ffn_hidden_size":32,"moe_topk":2)"},
    {"dbrx",
     R"("ffn_config":{"ffn_hidden_size":32,"moe_normalize_expert_weights":1,"ffn_act_fn":{"name":"silu"}})"},
    {"granitemoe", R"("shared_intermediate_size":48)"},
    {"step3p5",
     R"("swiglu_limits":[0,0,0,0,0,0,0,0,0,0,0,7],"swiglu_limits_shared":[0,0,0,0,0,0,0,0,0,0,0,16])"},
    {"gemma4", R"("hidden_activation":"gelu_pytorch_tanh","rms_norm_eps":1e-6)"},
    {"llama4", R"("num_local_experts":4)"},
    {"nemotron_h", R"("moe_latent_size":32,"mlp_hidden_act":"relu2","norm_topk_prob":true)"},
    {"hunyuan_v1_moe", R"("moe_topk":[2,2],"num_shared_expert":1)"},
    {"kimi_linear",
     R"("routed_expert_hidden_size":32,"latent_moe_use_norm":true,"rms_norm_eps":1e-5,"hidden_act":"situ","activation_situ_beta":4,"activation_situ_linear_beta":25,"moe_router_activation_func":"sigmoid")"},
    {"ernie4_5_moe", R"("moe_norm_min":1e-12,"moe_num_shared_experts":1)"},
    {"phimoe", R"("router_jitter_noise":0.01)"},
    {"cohere2_moe",
     R"("expert_selection_fn":"sigmoid","norm_topk_prob":true,"shared_expert_combination_strategy":"average")"},
    {"laguna", R"("moe_router_logit_softcapping":30.0,"moe_apply_router_weight_on_input":true)"},
    {"lfm2_moe", R"("use_expert_bias":true)"},
    {"minimax_m3", R"("swiglu_alpha":1.702,"swiglu_limit":7)"},
    {"bailing_moe_v2", R"("score_function":"sigmoid","num_shared_experts":1)"},
    {"bailing_hybrid",
     R"("num_expert_group":2,"topk_group":1,"moe_renormalize":true,"expert_swiglu_limit_list":[7,0],"share_expert_swiglu_limit_list":[9,0])"},
    {"glm5_next", R"("swiglu_limit":10,"n_shared_experts":1)"},
    {"hy_v4", R"("swiglu_limit":10,"n_group":1,"topk_group":1)"},
    {"flint", R"("shared_expert_intermediate_size":48,"top_k":50)"},
    {"lara_mini", R"("norm_topk_prob":true,"moe_router_dtype":"fp32")"},
    {"mistral_large4", R"("n_group":2,"topk_group":1)"},
    {"beam", R"("n_group":2,"topk_group":1,"router_aux_loss_coef":0.001)"},
    {"axk2", R"("n_group":2,"topk_group":1,"norm_topk_prob":true)"},
    {"deepseek_v41", R"("swiglu_limit":10,"gate_temp":2.0,"scoring_func":"sqrtsoftplus")"},
    {"kolibri1", R"("shared_expert_intermediate_size":48,"norm_topk_prob":false)"},
    {"inkling2", R"("mlp_gate_softcap":3,"mlp_up_softcap":20,"scoring_func":"sigmoid")"},
    {"inkling_mm_model", R"("n_shared_experts":2,"route_scale":3,"gate_activation":"sigmoid")"},
    {"muse_spark",
     R"("moe_hidden_size":32,"num_shared_experts":0,"rms_norm_eps":1e-6,"post_norm_eps":1e-5,"output_multiplier":0.1768,"routed_scaling_factor":2.5)"},
    {"sarvam_moe", R"("score_function":"sigmoid","moe_router_enable_expert_bias":true)"},
    {"exaone_moe", R"("swiglu_limits":[7,0],"is_moe_layer":[true,false])"},
    {"step5", R"("moe_top_k":2,"norm_expert_weight":true)"}};
// Families without settings of their own.
constexpr const char* plain_families[] = {
    "glm4_moe",   "glm4_moe_lite", "glm_moe_dsa", "dots1", "mimo_v2_flash", "mistral4",
    "minimax_m2", "hy_v3",         "afmoe",       "jamba", "olmoe",         "qwen3_vl_moe"};

void add_json(const Seeds& seeds) {
    seeds.add(
        "index", "two",
        R"({"metadata":{"total_size":123},"weight_map":{"a":"model-00001-of-00002.safetensors",)"
        R"("b":"model-00002-of-00002.safetensors","c":"model-00001-of-00002.safetensors"}})");
    seeds.add("index", "one", R"({"weight_map":{"a.weight":"a.safetensors"}})");
    const std::string sizes =
        R"("hidden_size":64,"num_experts_per_tok":2,"num_experts":4,"moe_intermediate_size":32,"intermediate_size":32)";
    const auto config = [&](const std::string& type, const std::string& more) {
        return "{\"model_type\":\"" + type + "\"," + sizes + more + "}";
    };
    for (const auto& [type, more] : family_configs)
        seeds.add("config", type, config(type, std::string(",") + more));
    for (const char* type : plain_families) seeds.add("config", type, config(type, ""));
    seeds.add(
        "config", "text_config",
        "{\"model_type\":\"x\",\"text_config\":{\"model_type\":\"qwen3_moe\"," + sizes + "}}");
}

// ---- plan

template <class T>
std::string bytes_of(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
}

moe_layer_desc small_layer() {
    moe_layer_desc d{};
    d.struct_size = sizeof d;
    d.hidden = 64;
    d.intermediate = 32;
    d.n_experts = 4;
    d.top_k = 2;
    d.has_router = 1;
    d.score = MOE_SCORE_SOFTMAX;
    d.renormalize = MOE_RENORMALIZE_SUM_ADD;
    d.activation = MOE_ACTIVATION_SILU;
    d.is_gated = 1;
    return d;
}

struct SmallPlan {
    moe_layer_desc layer = small_layer();
    moe_plan_desc plan{};
    moe_slice slice{};
    std::string flags{"\0", 1};
    std::string filter;
    std::string format = "bf16";
    std::string down_format;  // empty: the same

    SmallPlan() {
        plan.struct_size = sizeof plan;
        plan.x_type = MOE_TYPE_BF16;
        plan.max_tokens = 8;
        slice.struct_size = sizeof slice;
    }
    std::string bytes() const {
        moe_format given{};
        given.struct_size = sizeof given;
        moe_format_by_name(format.c_str(), &given);
        std::vector<std::string> chunks = {flags, bytes_of(plan), bytes_of(layer), bytes_of(slice),
                                           filter};
        for (int role = 0; role < MOE_ROLE_COUNT; ++role) chunks.push_back(bytes_of(given));
        if (!down_format.empty()) {
            moe_format_by_name(down_format.c_str(), &given);
            chunks[plan_formats + int{MOE_ROLE_DOWN}] = bytes_of(given);
        }
        return join_chunks(chunks);
    }
};

void add_routings(const Seeds& seeds) {
    SmallPlan groups;
    groups.layer.score = MOE_SCORE_SIGMOID;
    groups.layer.has_selection_bias = 1;
    groups.layer.n_group = 2;
    groups.layer.topk_group = 1;
    groups.layer.group_score = MOE_GROUP_SCORE_TOP2_SUM;
    groups.layer.has_routed_scale = 1;
    groups.layer.routed_scale = 2.5f;
    seeds.add("plan", "groups", groups.bytes());
    groups.layer.group_mask = MOE_GROUP_MASK_ZERO;
    groups.layer.has_second_selection_bias = 1;
    seeds.add("plan", "masked_groups", groups.bytes());
    SmallPlan hash;
    hash.layer.selection = MOE_SELECT_HASH;
    hash.layer.hash_vocabulary = 10;
    seeds.add("plan", "hash", hash.bytes());
    SmallPlan mixer;
    mixer.layer.selection = MOE_SELECT_SPARSEMIXER;
    mixer.layer.sparsemixer_jitter = 0.01f;
    mixer.layer.renormalize = MOE_RENORMALIZE_NONE;
    mixer.layer.score = MOE_SCORE_NONE;
    seeds.add("plan", "sparsemixer", mixer.bytes());
}

void add_parts(const Seeds& seeds) {
    SmallPlan shared;
    shared.layer.shared_intermediate = 32;
    shared.layer.shared_activation = MOE_ACTIVATION_SILU;
    shared.layer.shared_is_gated = 1;
    shared.layer.has_shared_expert_gate = 1;
    shared.format = "q8_0";
    seeds.add("plan", "shared", shared.bytes());
    SmallPlan latent;
    latent.layer.latent = 32;
    latent.layer.has_latent_norm = 1;
    latent.layer.latent_norm_eps = 1e-5f;
    latent.layer.activation = MOE_ACTIVATION_RELU2;
    latent.layer.is_gated = 0;
    seeds.add("plan", "latent", latent.bytes());
    SmallPlan norms;
    norms.layer.latent = 32;
    norms.layer.has_latent_in_norm = norms.layer.has_expert_norm = 1;
    norms.layer.latent_in_norm_eps = norms.layer.expert_norm_eps = 1e-5f;
    norms.layer.expert_norm_weight_first = 1;
    seeds.add("plan", "norms", norms.bytes());
    SmallPlan range;
    range.flags[0] = with_slice;
    range.plan.partial = 1;
    range.slice.has_expert_range = 1;
    range.slice.expert_count = 2;
    range.slice.has_intermediate_range = 1;
    range.slice.intermediate_count = 16;
    range.format = "mxfp4";
    seeds.add("plan", "range", range.bytes());
    SmallPlan map;
    map.flags = std::string(1, with_slice | with_map) + std::string("\1\xff\0\xff", 4);
    map.plan.partial = 1;
    map.slice.n_expert_to_local = 4;
    map.format = "nvfp4";
    seeds.add("plan", "map", map.bytes());
    SmallPlan shared_range = shared;
    shared_range.flags[0] = with_slice;
    shared_range.plan.partial = 1;
    shared_range.slice.has_shared_range = 1;
    shared_range.slice.shared_begin = 16;
    shared_range.slice.shared_count = 16;
    shared_range.format = "bf16";
    seeds.add("plan", "shared_range", shared_range.bytes());
    SmallPlan filter;
    filter.flags[0] = with_filter;
    filter.filter = "-experts:avx*, +cpu_*_f64_experts_ref";
    filter.plan.intermediate_type = MOE_TYPE_F64;
    filter.format = "kbit4";
    seeds.add("plan", "filter", filter.bytes());
    SmallPlan mixed;
    mixed.flags[0] = static_cast<char>(with_expert_formats);
    mixed.format = "q8_0";
    mixed.down_format = "q4_0";
    seeds.add("plan", "expert_formats", mixed.bytes());
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "moe-fuzz-seeds FOLDER\n");
        return 2;
    }
    const Seeds seeds(argv[1]);
    add_safetensors(seeds);
    add_json(seeds);
    add_gguf(seeds);
    add_models(seeds);
    add_integer_models(seeds);
    add_float_models(seeds);
    add_mlx_and_torchao(seeds);
    add_spellings(seeds);
    add_quant_states(seeds);
    seeds.add("plan", "plain", SmallPlan().bytes());
    add_routings(seeds);
    add_parts(seeds);
    add_packed(seeds);
    return 0;
}
