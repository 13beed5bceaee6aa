// Inkling: two shared experts that have rows in the router.
#pragma once

#include "tests/checkpoint/family_models.hpp"

namespace moe::test {

// Three spellings: the model's own files, transformers and MLX.
enum class InklingNames { own, transformers, mlx };

inline Model inkling(InklingNames names, const std::string& more = "") {
    const bool is_own = names == InklingNames::own;
    Model model = model_of(is_own ? "inkling_mm_model" : "inkling_text",
                           routed + R"(,"n_shared_experts":2,"route_scale":3)" + more);
    const std::string block = is_own ? "model.llm.layers.0.mlp." : mlp0;
    model.add(block + "gate.weight", "BF16", {experts + 2, hidden});
    model.add(block + (is_own ? "gate.bias" : "gate.e_score_correction_bias"), "F32", {experts});
    model.tensors[block + "gate.global_scale"] = {"F32", {1}, raw(0.5f)};
    const auto add_apart = [&](const std::string& stem, const char* end, int64_t n) {
        model.add(stem + "gate_proj" + end, "BF16", {n, width, hidden});
        model.add(stem + "up_proj" + end, "BF16", {n, width, hidden});
        model.add(stem + "down_proj" + end, "BF16", {n, hidden, width});
    };
    if (is_own) {
        model.add(block + "experts.w13_weight", "BF16", {experts, 2 * width, hidden});
        model.add(block + "experts.w2_weight", "BF16", {experts, hidden, width});
        model.add(block + "shared_experts.shared_w13_weight", "BF16", {2, 2 * width, hidden});
        model.add(block + "shared_experts.shared_w2_weight", "BF16", {2, hidden, width});
    } else if (names == InklingNames::mlx) {
        add_apart(block + "switch_mlp.", ".weight", experts);
        add_apart(block + "shared_experts.", ".weight", 2);
    } else {
        add_merged(model, block, false);
        add_apart(block + "shared_experts.", "", 2);
    }
    return model;
}

// Its routed experts in NVFP4 as in released files, the shared ones in bf16.
inline Model inkling_nvfp4() {
    const std::string block = "model.llm.layers.0.mlp.experts.";
    Model model = inkling(InklingNames::own);
    const auto replace = [&](const std::string& stem, int64_t rows, int64_t columns) {
        model.add(stem, "U8", {experts, rows, columns / 2});
        model.add(stem + ".scale", "F8_E4M3", {experts, rows, columns / 16});
        model.add(stem + ".scale2", "F32", {experts});
        model.add(stem + ".input_amax", "BF16", {1});
        model.add(stem + ".original_shape", "I64", {3});
    };
    replace(block + "w13_weight", 2 * width, hidden);
    replace(block + "w2_weight", hidden, width);
    return model;
}

}  // namespace moe::test
