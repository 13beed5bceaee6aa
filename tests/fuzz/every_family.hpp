// One checkpoint with a layer of each kind, in small: what a configuration of any family finds
// something in.
#pragma once

#include "tests/checkpoint/models.hpp"

namespace moe_fuzz {

using moe::test::Model;

inline void add_layer(Model& to, const Model& from, const std::string& prefix,
                      const std::string& by) {
    for (const auto& [name, tensor] : from.tensors)
        if (name.starts_with(prefix)) to.tensors[by + name.substr(prefix.size())] = tensor;
}

// Its config.json is that of a Qwen3-MoE.
inline Model every_family() {
    using namespace moe::test;
    Model all = qwen("qwen3_moe", "", true);
    const std::string mlp = "model.layers.0.mlp.", block = "model.layers.0.block_sparse_moe.";
    add_layer(all, deepseek("deepseek_v3", "", true), "model.layers.1.mlp.", "model.layers.1.mlp.");
    add_layer(all, mixtral(), block, "model.layers.2.block_sparse_moe.");
    add_layer(all, gpt_oss(true), mlp, "model.layers.3.mlp.");
    add_layer(all, gpt_oss(false), mlp, "model.layers.4.mlp.");
    Model fp8 = qwen("qwen3_moe", "", false), nvfp4 = fp8;
    make_fp8(fp8, qwen_expert, hidden, width);
    make_nvfp4(nvfp4, qwen_expert, hidden, width);
    add_layer(all, fp8, mlp, "model.layers.5.mlp.");
    add_layer(all, nvfp4, mlp, "model.layers.6.mlp.");
    Model merged;
    add_merged(merged, mlp, false);
    merged.add(mlp + "gate.weight", "BF16", {experts, hidden});
    add_layer(all, merged, mlp, "model.layers.7.mlp.");
    return all;
}

}  // namespace moe_fuzz
