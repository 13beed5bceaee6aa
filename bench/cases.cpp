// The models, and the name of a case.
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
    {"mixtral-8x22b", 6144, 16384, 8, 2, 0, false, false},
    {"qwen2-57b", 3584, 2560, 64, 8, 20480, false, false},
    // Nothing is tuned for these.
    {"granite-3b-a800m", 1536, 512, 40, 8, 0, false, false},
    {"lfm2-8b", 2048, 1792, 32, 4, 0, false, false},
    {"olmoe", 2048, 1024, 64, 8, 0, false, false},
    {"deepseek-v2-lite", 2048, 1408, 64, 6, 2816, false, false},
    {"ernie-4.5-21b", 2560, 1536, 64, 6, 3072, false, false},
    {"phi-3.5-moe", 4096, 6400, 16, 2, 0, false, false},
    {"glm-4.5-air", 4096, 1408, 128, 8, 1408, false, false},
    {"llama-4-scout", 5120, 8192, 16, 1, 8192, false, false},
    {"dbrx", 6144, 10752, 16, 4, 0, false, false},
    {"arctic", 7168, 4864, 128, 2, 0, false, false},
    {"kimi-k2", 7168, 2048, 384, 8, 2048, false, false},
    // Slices of an intermediate that ranks share, and the next size on the grid of 64.
    {"qwen3-30b-i96", 2048, 96, 128, 8, 0, false, false},
    {"qwen3-30b-i128", 2048, 128, 128, 8, 0, false, false},
    {"qwen3-30b-i176", 2048, 176, 128, 8, 0, false, false},
    {"qwen3-30b-i192", 2048, 192, 128, 8, 0, false, false},
    {"qwen3-30b-i352", 2048, 352, 128, 8, 0, false, false},
    {"qwen3-30b-i384", 2048, 384, 128, 8, 0, false, false},
    {"qwen3-30b-i720", 2048, 720, 128, 8, 0, false, false},
    // The same of the hidden size, and of a shared expert.
    {"qwen3-30b-h2016", 2016, 768, 128, 8, 0, false, false},
    {"qwen3next-s480", 2048, 512, 512, 10, 480, false, false},
    // One of eight, or of four, ranks.
    {"qwen2moe-tp8", 2048, 176, 60, 4, 0, false, false},
    {"glm-tp4", 4096, 352, 128, 8, 0, false, false},
    {"gpt-oss-120b-tp8", 2880, 352, 128, 4, 0, true, false},
};

constexpr int32_t block = 16;  // of blocked rows
constexpr Layout all_layouts[] = {
    {"tokens_reduced", MOE_IN_TOKENS, MOE_OUT_REDUCED},
    {"tokens_per_slot", MOE_IN_TOKENS, MOE_OUT_PER_SLOT},
    {"tokens_rows", MOE_IN_TOKENS, MOE_OUT_ROWS},
    {"sorted_reduced", MOE_IN_SORTED, MOE_OUT_REDUCED},
    {"sorted_per_slot", MOE_IN_SORTED, MOE_OUT_PER_SLOT},
    {"sorted_rows", MOE_IN_SORTED, MOE_OUT_ROWS},
    {"blocked_reduced", MOE_IN_SORTED, MOE_OUT_REDUCED, block},
    {"blocked_rows", MOE_IN_SORTED, MOE_OUT_ROWS, block},
    {"batched_rows", MOE_IN_BATCHED, MOE_OUT_ROWS},
    {"tokens_per_slot_gate_up", MOE_IN_TOKENS, MOE_OUT_PER_SLOT, 1, true},
    {"sorted_rows_gate_up", MOE_IN_SORTED, MOE_OUT_ROWS, 1, true},
    {"batched_rows_gate_up", MOE_IN_BATCHED, MOE_OUT_ROWS, 1, true},
};

}  // namespace

// Rows are whole blocks: 2880 columns are no multiple of 256, nor are the slices of eight GPUs.
bool fits(const Model& model, const std::string& format) {
    const ExpertFormats of = expert_formats(format);
    return model.hidden % block_columns(of.gate) == 0 && model.hidden % block_columns(of.up) == 0 &&
           model.intermediate % block_columns(of.down) == 0;
}

const char* Case::mode_name() const {
    if (layout) return layout->name;
    return mode == Mode::ids ? "ids" : "layer";
}

std::string Case::name() const {
    char skew[16] = "uniform";
    if (zipf > 0) std::snprintf(skew, sizeof skew, "zipf%.1f", zipf);
    std::string name = model->name + "/" + format + "/" + mode_name() + "/T" +
                       std::to_string(n_tokens) + "/" + skew;
    if (unfused) name += "/unfused";
    if (x_type != MOE_TYPE_BF16) name += std::string("/x_") + name_of_type(x_type);
    if (intermediate_type != MOE_TYPE_BF16)
        name += std::string("/intermediate_") + name_of_type(intermediate_type);
    if (fp8_activations) name += "/activations_fp8";
    return kernels.empty() ? name : name + "/" + kernels;
}

const char* name_of_type(moe_type type) {
    return type == MOE_TYPE_F16 ? "f16" : "bf16";
}

const Model* find_model(const std::string& name) {
    for (const Model& model : models)
        if (name == model.name) return &model;
    return nullptr;
}

const Layout* find_layout(const std::string& name) {
    for (const Layout& layout : all_layouts)
        if (name == layout.name) return &layout;
    return nullptr;
}

std::vector<std::string> layout_names() {
    std::vector<std::string> names;
    for (const Layout& layout : all_layouts) names.emplace_back(layout.name);
    return names;
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

}  // namespace moe::bench
