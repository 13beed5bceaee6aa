// models.hpp - a table of released models: the sizes and routing of their MoE layers, and how their
// files are named.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "moe_cpp.hpp"

namespace moe::cli {

// How the tensors of a layer are named, and which config keys a model has.
enum class Family { Mixtral, Qwen2Moe, Qwen3Moe, Qwen3Next, DeepseekV2, DeepseekV3, GptOss };

struct Model {
    std::string name;  // "qwen3-30b-a3b"
    Family family;
    std::string native_format;  // of the released file's experts
    int32_t hidden;
    int32_t intermediate;
    int32_t n_experts;
    int32_t top_k;
    int32_t shared_intermediate;  // 0: none
    int32_t n_shared;             // experts that the shared MLP stands for
    int32_t n_group;              // 0: none
    int32_t topk_group;
    int32_t first_moe_layer;
    int32_t n_layers;            // decoder layers of the released model
    int32_t dense_intermediate;  // of dense layers, for the config only
    int32_t n_heads;             // for the config only
    float routed_scale;
};

const std::vector<Model>& all_models();
// Failure lists the names.
const Model& model_by_name(const std::string& name);

// The same model with sizes of about an eighth; columns stay legal for the format, groups and top-k
// stay whole.
Model reduced(const Model& model, const std::string& format);

// The mathematics of one MoE layer, as moe_checkpoint_layer gives it for the model's files.
moe_layer_desc layer_of(const Model& model);

// Layer and formats of a model whose matrices are in `format` (the router stays what released files
// have).
LayerSource source_of(const Model& model, const std::string& format);

// The GGUF format of a matrix with that many columns: `format`, or q8_0 where its blocks do not
// fit.
std::string gguf_format_for(const std::string& format, int64_t columns);
bool is_gguf_format(const std::string& format);
// Of the smallest unit of the format.
int32_t block_columns(const std::string& format);

}  // namespace moe::cli
