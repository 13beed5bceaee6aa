// One checkpoint with a layer of each kind, in small: what a configuration of any family finds
// something in.
#pragma once

#include "tests/checkpoint/inkling_models.hpp"

namespace moe_fuzz {

using moe::test::Model;

inline void add_layer(Model& to, const Model& from, const std::string& prefix,
                      const std::string& by) {
    for (const auto& [name, tensor] : from.tensors)
        if (name.starts_with(prefix)) to.tensors[by + name.substr(prefix.size())] = tensor;
}

// All that families call the router, the selection bias and the shared expert, in one layer: each
// finds its own names.
inline void add_many_names(Model& all, const std::string& block) {
    using namespace moe::test;
    for (const char* router :
         {"gate.weight", "gate.wg.weight", "router.gate.weight", "router.weight"})
        all.add(block + router, "BF16", {experts, hidden});
    for (const char* bias :
         {"gate.e_score_correction_bias", "e_score_correction_bias", "gate.expert_bias",
          "expert_bias", "gate.bias", "experts.e_score_correction_bias",
          "moe_statics.e_score_correction_bias"})
        all.add(block + bias, "F32", {experts});
    all.add(block + "router.classifier.weight", "BF16", {experts + 2, hidden});
    all.add(block + "router.classifier.bias", "F32", {experts + 2});
    all.add(block + "router.e_score_correction_bias", "F32", {experts + 2});
    add_expert_names(all, block, "gate_proj", "up_proj", "down_proj");
    for (const char* stem : {"shared_experts.", "shared_expert.", "shared_mlp."})
        add_shared(all, block + stem);
}

inline void add_stacks_of_their_own(Model& all) {
    using namespace moe::test;
    const std::string dbrx = "transformer.blocks.9.ffn.";
    all.add(dbrx + "router.layer.weight", "BF16", {experts, hidden});
    for (const char* name : {"w1", "v1", "w2"})
        all.add(dbrx + "experts.mlp." + name, "BF16", {experts * width, hidden});
    const std::string granite = "model.layers.10.";
    all.add(granite + "block_sparse_moe.router.layer.weight", "BF16", {experts, hidden});
    all.add(granite + "block_sparse_moe.input_linear.weight", "BF16", {experts, 2 * width, hidden});
    all.add(granite + "block_sparse_moe.output_linear.weight", "BF16", {experts, hidden, width});
    all.add(granite + "shared_mlp.input_linear.weight", "BF16", {2 * shared_width, hidden});
    all.add(granite + "shared_mlp.output_linear.weight", "BF16", {hidden, shared_width});
    const std::string step = "model.layers.11.";
    all.add(step + "moe.gate.weight", "BF16", {experts, hidden});
    all.add(step + "moe.router_bias", "F32", {experts});
    all.add(step + "moe.gate_proj.weight", "BF16", {experts, width, hidden});
    all.add(step + "moe.up_proj.weight", "BF16", {experts, width, hidden});
    all.add(step + "moe.down_proj.weight", "BF16", {experts, hidden, width});
    add_shared(all, step + "share_expert.");
    const std::string gemma = "model.layers.12.";
    add_merged(all, gemma, false);
    all.add(gemma + "router.proj.weight", "BF16", {experts, hidden});
    all.add(gemma + "router.scale", "BF16", {hidden});
    all.add(gemma + "router.per_expert_scale", "BF16", {experts});
    const std::string llama = "model.layers.13.feed_forward.";
    add_merged(all, llama, true);
    all.add(llama + "router.weight", "BF16", {experts, hidden});
    add_shared(all, llama + "shared_expert.");
}

// Nemotron's experts have no gate, Hunyuan's older ones gate and up in one matrix.
inline void add_other_experts(Model& all) {
    using namespace moe::test;
    const std::string nemotron = "backbone.layers.14.mixer.", hunyuan = "model.layers.15.mlp.";
    for (int e = 0; e < experts; ++e) {
        const std::string stem = "experts." + std::to_string(e) + ".";
        all.add(nemotron + stem + "up_proj.weight", "BF16", {width, width});
        all.add(nemotron + stem + "down_proj.weight", "BF16", {width, width});
        all.add(hunyuan + stem + "gate_and_up_proj.weight", "BF16", {2 * width, hidden});
        all.add(hunyuan + stem + "down_proj.weight", "BF16", {hidden, width});
    }
    for (const std::string& block : {nemotron, hunyuan})
        all.add(block + "gate.weight", "BF16", {experts, hidden});
    all.add(nemotron + "gate.e_score_correction_bias", "F32", {experts});
    all.add(nemotron + "fc1_latent_proj.weight", "BF16", {width, hidden});
    all.add(nemotron + "fc2_latent_proj.weight", "BF16", {hidden, width});
    all.add(nemotron + "shared_experts.up_proj.weight", "BF16", {shared_width, hidden});
    all.add(nemotron + "shared_experts.down_proj.weight", "BF16", {hidden, shared_width});
    all.add(hunyuan + "shared_mlp.gate_and_up_proj.weight", "BF16", {2 * shared_width, hidden});
    all.add(hunyuan + "shared_mlp.down_proj.weight", "BF16", {hidden, shared_width});
}

// Kimi-K3, and a layer of DeepSeek-V4 that takes its experts from a table.
inline void add_a_latent_and_a_table(Model& all) {
    using namespace moe::test;
    const std::string kimi = "model.layers.16.block_sparse_moe.", deepseek = "layers.17.ffn.";
    for (const std::string& block : {kimi, deepseek})
        all.add(block + "gate.weight", "BF16", {experts, hidden});
    all.add(kimi + "gate.e_score_correction_bias", "F32", {experts});
    all.add(kimi + "routed_expert_down_proj.weight", "BF16", {width, hidden});
    all.add(kimi + "routed_expert_norm.weight", "BF16", {width});
    all.add(kimi + "routed_expert_up_proj.weight", "BF16", {hidden, width});
    for (int e = 0; e < experts; ++e)
        for (const char* name : {"w1", "w3", "w2"}) {
            const std::string stem = kimi + "experts." + std::to_string(e) + "." + name;
            all.add(stem + ".weight_packed", "U8", {width, width / 2});
            all.add(stem + ".weight_scale", "U8", {width, width / 32});
        }
    add_shared(all, kimi + "shared_experts.");
    all.add(deepseek + "gate.tid2eid", "I64", {50, 2});
    add_expert_names(all, deepseek, "w1", "w3", "w2");
    add_shared(all, deepseek + "shared_experts.");
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
    add_many_names(all, "model.layers.8.mlp.");
    add_stacks_of_their_own(all);
    add_other_experts(all);
    add_a_latent_and_a_table(all);
    add_layer(all, inkling_nvfp4(), "model.llm.layers.0.", "model.llm.layers.18.");
    return all;
}

}  // namespace moe_fuzz
