// Small checkpoints of every family for the tests: sizes, configurations and tensors whose bytes
// follow from their names.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <numeric>

#include "libmoe/checkpoint/checkpoint.hpp"
#include "tests/checkpoint/files.hpp"

namespace moe::test {

constexpr int64_t hidden = 64, width = 32, shared_width = 48, experts = 4;

inline const std::string mlp0 = "model.layers.0.mlp.";

inline uint32_t seed_of(const std::string& name) {
    return static_cast<uint32_t>(std::hash<std::string>{}(name));
}

struct TestTensor {
    std::string type;
    Shape shape;
    std::string bytes;
};

// Tensors by name; tests take some away or change them before writing.
struct Model {
    std::string config;
    std::map<std::string, TestTensor> tensors;

    void add(const std::string& name, const std::string& type, const Shape& shape) {
        uint64_t bits = safetensors_element(type)->block_bits;
        for (const int64_t n : shape) bits *= static_cast<uint64_t>(n);
        tensors[name] = {type, shape, noise(bits / 8, seed_of(name))};
    }
    void add_scalar(const std::string& name, float value) {
        tensors[name] = {"F32", {}, raw(value)};
    }
    std::string file() const {
        SafetensorsWriter writer;
        for (const auto& [name, t] : tensors) writer.add(name, t.type, t.shape, t.bytes);
        return writer.file();
    }
    void write(const Folder& folder) const {
        folder.write("config.json", config);
        folder.write("model.safetensors", file());
    }
};

inline std::string config_of(const std::string& type, const std::string& more) {
    return "{\"model_type\":\"" + type + "\",\"hidden_size\":64,\"num_experts_per_tok\":2," + more +
           "}";
}

struct Close {
    void operator()(moe_checkpoint* checkpoint) const { checkpoint->release(); }
};
using Handle = std::unique_ptr<moe_checkpoint, Close>;

inline Handle open_path(const std::string& path, moe_checkpoint_options options = {}) {
    return Handle(moe_checkpoint::open(nullptr, path.c_str(), options));
}

inline Handle open_model(const Folder& folder, const Model& model,
                         moe_checkpoint_options options = {}) {
    model.write(folder);
    return open_path(folder.path(), options);
}

// Opening the model and building its layer.
inline Failure layer_failure(const Model& model, int32_t layer = 0,
                             moe_checkpoint_options options = {}) {
    const Folder folder;
    return failure_of([&] { open_model(folder, model, options)->tensors(layer); });
}

inline const LayerTensor* find_tensor(const Handle& checkpoint, int32_t layer, moe_role role,
                                      int32_t expert) {
    for (const LayerTensor& tensor : checkpoint->tensors(layer)) {
        if (tensor.tensor.role == role && tensor.tensor.expert == expert) return &tensor;
    }
    return nullptr;
}

inline std::string read_range(const Handle& checkpoint, const FileRange& range) {
    std::string out(range.bytes, '\0');
    checkpoint->read(range, 0, range.bytes, out.data());
    return out;
}

inline void add_expert_names(Model& model, const std::string& block, const char* gate,
                             const char* up, const char* down) {
    for (int e = 0; e < experts; ++e) {
        const std::string stem = block + "experts." + std::to_string(e) + ".";
        model.add(stem + gate + ".weight", "BF16", {width, hidden});
        model.add(stem + up + ".weight", "BF16", {width, hidden});
        model.add(stem + down + ".weight", "BF16", {hidden, width});
    }
}

inline void add_shared(Model& model, const std::string& stem) {
    model.add(stem + "gate_proj.weight", "BF16", {shared_width, hidden});
    model.add(stem + "up_proj.weight", "BF16", {shared_width, hidden});
    model.add(stem + "down_proj.weight", "BF16", {hidden, shared_width});
}

inline void add_merged(Model& model, const std::string& block, bool transposed) {
    const Shape gate_up =
        transposed ? Shape{experts, hidden, 2 * width} : Shape{experts, 2 * width, hidden};
    const Shape down = transposed ? Shape{experts, width, hidden} : Shape{experts, hidden, width};
    model.add(block + "experts.gate_up_proj", "BF16", gate_up);
    model.add(block + "experts.down_proj", "BF16", down);
}

inline Model mixtral() {
    Model model;
    model.config =
        config_of("mixtral", R"("intermediate_size":32,"num_local_experts":4,"hidden_act":"silu")");
    const std::string block = "model.layers.0.block_sparse_moe.";
    model.add(block + "gate.weight", "BF16", {experts, hidden});
    add_expert_names(model, block, "w1", "w3", "w2");
    model.add("model.layers.0.self_attn.q_proj.weight", "F64", {3});
    model.add("lm_head.weight", "I64", {2});
    return model;
}

inline Model qwen(const std::string& type, const std::string& more, bool shared) {
    Model model;
    model.config = config_of(type, R"("moe_intermediate_size":32,"num_experts":4)" + more);
    const std::string block = "model.layers.0.mlp.";
    model.add(block + "gate.weight", "BF16", {experts, hidden});
    add_expert_names(model, block, "gate_proj", "up_proj", "down_proj");
    if (shared) {
        add_shared(model, block + "shared_expert.");
        model.add(block + "shared_expert_gate.weight", "BF16", {1, hidden});
    }
    return model;
}

inline Model deepseek(const std::string& type, std::string more, bool bias) {
    Model model;
    // Four experts are not the eight groups that DeepSeek-V3 implies.
    if (type == "deepseek_v3" && more.find("n_group") == more.npos) more += ",\"n_group\":1";
    model.config = config_of(
        type, R"("moe_intermediate_size":32,"n_routed_experts":4,"n_shared_experts":2)" + more);
    const std::string block = "model.layers.1.mlp.";
    model.add("model.layers.0.mlp.gate_proj.weight", "BF16", {8, hidden});
    model.add(block + "gate.weight", "BF16", {experts, hidden});
    if (bias) model.add(block + "gate.e_score_correction_bias", "F32", {experts});
    add_expert_names(model, block, "gate_proj", "up_proj", "down_proj");
    add_shared(model, block + "shared_experts.");
    return model;
}

inline Model gpt_oss(bool mxfp4) {
    Model model;
    model.config =
        config_of("gpt_oss", R"("intermediate_size":32,"num_local_experts":4,"swiglu_limit":7.0)");
    const std::string block = "model.layers.0.mlp.";
    model.add(block + "router.weight", "BF16", {experts, hidden});
    model.add(block + "router.bias", "BF16", {experts});
    model.add(block + "experts.gate_up_proj_bias", "BF16", {experts, 2 * width});
    model.add(block + "experts.down_proj_bias", "BF16", {experts, hidden});
    if (mxfp4) {
        model.add(block + "experts.gate_up_proj_blocks", "U8",
                  {experts, 2 * width, hidden / 32, 16});
        model.add(block + "experts.gate_up_proj_scales", "U8", {experts, 2 * width, hidden / 32});
        model.add(block + "experts.down_proj_blocks", "U8", {experts, hidden, width / 32, 16});
        model.add(block + "experts.down_proj_scales", "U8", {experts, hidden, width / 32});
    } else {
        add_merged(model, block, true);
    }
    return model;
}

// One expert's matrix in another format: the scale tensors decide.
inline void make_fp8(Model& model, const std::string& stem, int64_t rows, int64_t columns) {
    model.add(stem + ".weight", "F8_E4M3", {rows, columns});
    model.add(stem + ".weight_scale_inv", "F32", {(rows + 127) / 128, (columns + 127) / 128});
}

inline void make_nvfp4(Model& model, const std::string& stem, int64_t rows, int64_t columns) {
    model.add(stem + ".weight", "U8", {rows, columns / 2});
    model.add(stem + ".weight_scale", "F8_E4M3", {rows, columns / 16});
    model.add_scalar(stem + ".weight_scale_2", 0.25f);
    model.add_scalar(stem + ".input_scale", 3.0f);
}

inline const std::string qwen_expert = "model.layers.0.mlp.experts.1.down_proj";

}  // namespace moe::test
