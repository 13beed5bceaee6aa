// Tables of models, formats and numbers of tokens, and the cases made of them.
#include "bench/cases.hpp"

#include "bench/formats.hpp"

namespace moe::bench {
namespace {

const Model models[] = {
    {"qwen3next", 2048, 512, 512, 10, 512, false, false},
    {"qwen3-30b", 2048, 768, 128, 8, 0, false, false},
    {"mixtral", 4096, 14336, 8, 2, 0, false, false},
    {"dsv3", 7168, 2048, 256, 8, 2048, false, true},
    {"gpt-oss-120b", 2880, 2880, 128, 4, 0, true, false},
};
// For lists of cases (case_list.hpp).
const Model more_models[] = {
    {"mixtral-8x22b", 6144, 16384, 8, 2, 0, false, false},
    {"qwen2-57b", 3584, 2560, 64, 8, 20480, false, false},
    // One of eight, or of four, ranks of a layer whose intermediate is split.
    {"qwen3-30b-tp8", 2048, 96, 128, 8, 0, false, false},
    {"qwen2moe-tp8", 2048, 176, 60, 4, 0, false, false},
    {"glm-tp4", 4096, 352, 128, 8, 0, false, false},
    {"gpt-oss-120b-tp8", 2880, 352, 128, 4, 0, true, false},
    {"qwen3-30b-i720", 2048, 720, 128, 8, 0, false, false},
};
constexpr const char* formats[] = {"bf16",  "fp8_128x128", "nvfp4", "mxfp4", "kbit2",
                                   "kbit3", "kbit4",       "kbit5", "q8_0",  "q4_k"};
constexpr int64_t token_counts[] = {1, 2, 4, 8, 16, 32, 512, 8192};
constexpr int64_t least_skewed = 8;  // with fewer tokens, popular experts seldom coincide

}  // namespace

// Rows are whole blocks: 2880 columns are no multiple of 256, nor are the slices of eight GPUs.
bool fits(const Model& model, const std::string& format) {
    const ExpertFormats of = expert_formats(format);
    return model.hidden % block_columns(of.gate_up) == 0 &&
           model.intermediate % block_columns(of.down) == 0;
}

std::string Case::name() const {
    char skew[16];
    std::snprintf(skew, sizeof skew, "%.1f", zipf);
    return model->name + "/" + format + "/" + (mode == Mode::ids ? "ids" : "layer") + "/T" +
           std::to_string(n_tokens) + "/" + (zipf > 0 ? std::string("zipf") + skew : "uniform") +
           (unfused ? "/unfused" : "") + (kernels.empty() ? "" : "/" + kernels);
}

const Model* find_model(const std::string& name) {
    for (const Model& model : models)
        if (name == model.name) return &model;
    for (const Model& model : more_models)
        if (name == model.name) return &model;
    return nullptr;
}

moe_layer_desc layer_of(const Model& model, Mode mode) {
    moe_layer_desc layer{};
    layer.struct_size = sizeof layer;
    layer.hidden = model.hidden;
    layer.intermediate = model.intermediate;
    layer.n_experts = model.n_experts;
    layer.top_k = model.top_k;
    layer.has_router = 1;
    layer.score = MOE_SCORE_SOFTMAX;
    layer.renormalize = MOE_RENORMALIZE_SUM_ADD;
    layer.activation = MOE_ACTIVATION_SILU;
    layer.is_gated = 1;
    if (model.is_sigmoid) {
        layer.score = MOE_SCORE_SIGMOID;
        layer.has_selection_bias = 1;
        layer.n_group = 8;
        layer.topk_group = 4;
        layer.group_score = MOE_GROUP_SCORE_TOP2_SUM;
        layer.has_routed_scale = 1;
        layer.routed_scale = 2.5f;
    }
    if (model.has_biases) {
        layer.has_router_bias = 1;
        layer.has_gate_bias = layer.has_up_bias = layer.has_down_bias = 1;
        layer.has_activation_alpha = 1;
        layer.activation_alpha = 1.702f;
        layer.activation_up_offset = 1.0f;
        layer.has_gate_limit = layer.has_up_limit = 1;
        layer.gate_limit = layer.up_limit = 7.0f;
    }
    if (mode == Mode::layer && model.shared_intermediate) {
        layer.shared_intermediate = model.shared_intermediate;
        layer.shared_activation = MOE_ACTIVATION_SILU;
        layer.shared_is_gated = 1;
        layer.has_shared_expert_gate = !model.is_sigmoid;
    }
    return layer;
}

std::vector<Case> all_cases() {
    std::vector<Case> cases;
    for (const Model& model : models)
        for (const char* format : formats)
            for (const int64_t n : token_counts)
                if (fits(model, format)) {
                    cases.push_back({&model, format, Mode::ids, n, 0.0});
                    cases.push_back({&model, format, Mode::layer, n, 0.0});
                    // A skewed case starts at ids: a layer with a router would not choose the
                    // skewed experts, but it does choose even ones.
                    if (n >= least_skewed) cases.push_back({&model, format, Mode::ids, n, 1.2});
                }
    return cases;
}

std::vector<Case> quick_cases() {
    std::vector<Case> cases;
    auto add = [&](const char* model, const char* format, Mode mode, double zipf,
                   std::initializer_list<int64_t> counts) {
        for (const int64_t n : counts) cases.push_back({find_model(model), format, mode, n, zipf});
    };
    add("qwen3next", "nvfp4", Mode::ids, 0, {1, 2, 8, 32, 512, 8192});
    add("qwen3next", "nvfp4", Mode::ids, 1.2, {8, 512});
    add("qwen3next", "nvfp4", Mode::layer, 0, {1, 8});
    add("qwen3next", "bf16", Mode::ids, 0, {1, 8, 8192});
    add("qwen3next", "kbit2", Mode::ids, 0, {1, 32});
    add("qwen3-30b", "bf16", Mode::layer, 0, {1, 32, 512, 8192});
    add("qwen3-30b", "nvfp4", Mode::layer, 0, {1, 8192});
    add("qwen3-30b", "q4_k", Mode::ids, 0, {1, 32, 8192});
    add("mixtral", "bf16", Mode::layer, 0, {1, 8, 512, 8192});
    add("mixtral", "nvfp4", Mode::layer, 0, {1, 8, 512, 8192});
    add("mixtral", "kbit3", Mode::ids, 0, {1, 8192});
    add("mixtral", "fp8_128x128", Mode::ids, 0, {1, 8192});
    add("dsv3", "nvfp4", Mode::ids, 0, {1, 8, 512});
    add("dsv3", "fp8_128x128", Mode::layer, 0, {1, 32});
    add("gpt-oss-120b", "mxfp4", Mode::layer, 0, {1, 8, 8192});
    return cases;
}

}  // namespace moe::bench
