// models.cpp - the table, and what follows from a row of it.
#include "models.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace moe::cli {
namespace {

using enum Family;

// In the order of the struct's fields.
// clang-format off
const std::vector<Model> models = {
    {"mixtral-8x7b", Mixtral, "bf16", 4096, 14336, 8, 2, 0, 0, 0, 0, 0, 32, 14336, 32, 1.0F},
    {"qwen2-57b-a14b", Qwen2Moe, "bf16", 3584, 2560, 64, 8, 20480, 1, 0, 0, 0, 28, 18944, 28, 1.0F},
    {"qwen3-30b-a3b", Qwen3Moe, "bf16", 2048, 768, 128, 8, 0, 0, 0, 0, 0, 48, 6144, 32, 1.0F},
    {"qwen3-235b-a22b", Qwen3Moe, "bf16", 4096, 1536, 128, 8, 0, 0, 0, 0, 0, 94, 12288, 64, 1.0F},
    {"qwen3-next-80b-a3b", Qwen3Next, "bf16", 2048, 512, 512, 10, 512, 1, 0, 0, 0, 48, 5120, 16, 1.0F},
    {"deepseek-v2-lite", DeepseekV2, "bf16", 2048, 1408, 64, 6, 2816, 2, 0, 0, 1, 27, 10944, 16, 1.0F},
    {"deepseek-v3", DeepseekV3, "fp8_128x128", 7168, 2048, 256, 8, 2048, 1, 8, 4, 3, 61, 18432, 128, 2.5F},
    {"gpt-oss-20b", GptOss, "mxfp4", 2880, 2880, 32, 4, 0, 0, 0, 0, 0, 24, 2880, 64, 1.0F},
    {"gpt-oss-120b", GptOss, "mxfp4", 2880, 2880, 128, 4, 0, 0, 0, 0, 0, 36, 2880, 64, 1.0F},
};
// clang-format on

int32_t round_up(int32_t value, int32_t unit) {
    return (value + unit - 1) / unit * unit;
}

// An eighth, on the grid that the released size is on.
int32_t reduced_size(int32_t size, const std::string& format) {
    const int32_t block = block_columns(format);
    return round_up(size / 8, block > 64 && size % block == 0 ? block : 64);
}

void set_silu(moe_layer_desc& layer) {
    layer.activation = MOE_ACTIVATION_SILU;
    layer.is_gated = 1;
}

void set_shared(moe_layer_desc& layer, const Model& model) {
    if (model.shared_intermediate == 0) return;
    layer.shared_intermediate = model.shared_intermediate;
    layer.shared_activation = MOE_ACTIVATION_SILU;
    layer.shared_is_gated = 1;
    const bool gated = model.family == Family::Qwen2Moe || model.family == Family::Qwen3Next;
    layer.has_shared_expert_gate = gated ? 1 : 0;
}

void set_gpt_oss(moe_layer_desc& layer) {
    layer.has_router_bias = 1;
    layer.post_score = MOE_SCORE_SOFTMAX;
    layer.has_gate_bias = layer.has_up_bias = layer.has_down_bias = 1;
    layer.has_activation_alpha = 1;
    layer.activation_alpha = 1.702F;
    layer.activation_up_offset = 1.0F;
    layer.has_gate_limit = layer.has_up_limit = 1;
    layer.gate_limit = layer.up_limit = 7.0F;
}

void set_deepseek_v3(moe_layer_desc& layer, const Model& model) {
    layer.score = MOE_SCORE_SIGMOID;
    layer.has_selection_bias = 1;
    layer.n_group = model.n_group;
    layer.topk_group = model.topk_group;
    layer.group_score = MOE_GROUP_SCORE_TOP2_SUM;
    layer.renormalize = MOE_RENORMALIZE_SUM_ADD;
    layer.renormalize_eps = 1e-20F;
    layer.has_routed_scale = 1;
    layer.routed_scale = model.routed_scale;
}

void set_routing(moe_layer_desc& layer, const Model& model) {
    if (model.family == Family::GptOss) return set_gpt_oss(layer);
    if (model.family == Family::DeepseekV3) return set_deepseek_v3(layer, model);
    layer.score = MOE_SCORE_SOFTMAX;
    const bool normalised = model.family != Family::Qwen2Moe && model.family != Family::DeepseekV2;
    if (normalised) layer.renormalize = MOE_RENORMALIZE_SUM_ADD;
}

std::string format_for(const std::string& format, int64_t columns) {
    return is_gguf_format(format) ? gguf_format_for(format, columns) : format;
}

// Expert and shared matrices of the layer with their columns.
std::vector<std::pair<moe_role, int32_t>> matrices_of(const Model& model) {
    std::vector<std::pair<moe_role, int32_t>> matrices = {{MOE_ROLE_GATE, model.hidden},
                                                          {MOE_ROLE_UP, model.hidden},
                                                          {MOE_ROLE_DOWN, model.intermediate}};
    if (model.shared_intermediate > 0) {
        matrices.push_back({MOE_ROLE_SHARED_GATE, model.hidden});
        matrices.push_back({MOE_ROLE_SHARED_UP, model.hidden});
        matrices.push_back({MOE_ROLE_SHARED_DOWN, model.shared_intermediate});
    }
    return matrices;
}

}  // namespace

const std::vector<Model>& all_models() {
    return models;
}

const Model& model_by_name(const std::string& name) {
    std::string known;
    for (const Model& model : models) {
        if (model.name == name) return model;
        known += (known.empty() ? "" : ", ") + model.name;
    }
    throw Failure("no model is called " + name + "; there are " + known, MOE_ERROR_NOT_FOUND);
}

Model reduced(const Model& model, const std::string& format) {
    Model small = model;
    small.name += "-reduced";
    small.hidden = reduced_size(model.hidden, format);
    small.intermediate = reduced_size(model.intermediate, format);
    if (model.shared_intermediate > 0) {
        small.shared_intermediate = model.n_shared > 1
                                        ? model.n_shared * small.intermediate
                                        : reduced_size(model.shared_intermediate, format);
    }
    small.n_experts = std::max(model.n_experts / 8, 2 * model.top_k);
    if (model.n_group > 1) small.n_experts = round_up(small.n_experts, model.n_group);
    return small;
}

moe_layer_desc layer_of(const Model& model) {
    auto layer = sized<moe_layer_desc>();
    layer.hidden = model.hidden;
    layer.intermediate = model.intermediate;
    layer.n_experts = model.n_experts;
    layer.top_k = model.top_k;
    layer.has_router = 1;
    set_silu(layer);
    set_shared(layer, model);
    set_routing(layer, model);
    return layer;
}

LayerSource source_of(const Model& model, const std::string& format) {
    LayerSource source;
    source.desc = layer_of(model);
    for (const auto& [role, columns] : matrices_of(model)) {
        source.formats[role] = format_by_name(format_for(format, columns));
    }
    const bool dense = format == "f32" || format == "f16";
    source.formats[MOE_ROLE_ROUTER] =
        format_by_name(is_gguf_format(format) ? "f32" : (dense ? format : "bf16"));
    if (source.desc.has_shared_expert_gate) {
        source.formats[MOE_ROLE_SHARED_EXPERT_GATE] = source.formats[MOE_ROLE_ROUTER];
    }
    return source;
}

int32_t block_columns(const std::string& format) {
    const moe_format named = format_by_name(format);
    auto info = sized<moe_format_info>();
    check(moe_format_get_info(&named, &info));
    return info.block_columns;
}

bool is_gguf_format(const std::string& format) {
    return format_by_name(format).type == MOE_TYPE_GGUF;
}

std::string gguf_format_for(const std::string& format, int64_t columns) {
    return is_gguf_format(format) && columns % block_columns(format) != 0 ? "q8_0" : format;
}

}  // namespace moe::cli
