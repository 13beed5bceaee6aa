// Small checkpoints of every family for the tests: sizes, configurations and tensors whose bytes follow from their names.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <numeric>

#include "libmoe/checkpoint/checkpoint.hpp"
#include "tests/checkpoint/files.hpp"

namespace moe::test {

constexpr int64_t hidden = 64, width = 32, shared_width = 48, experts = 4;

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
    void add_scalar(const std::string& name, float value) { tensors[name] = {"F32", {}, raw(value)}; }
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
    return "{\"model_type\":\"" + type + "\",\"hidden_size\":64,\"num_experts_per_tok\":2," + more + "}";
}

struct Close {
    void operator()(moe_checkpoint* checkpoint) const { checkpoint->release(); }
};
using Handle = std::unique_ptr<moe_checkpoint, Close>;

inline Handle open_path(const std::string& path, moe_checkpoint_options options = {}) {
    return Handle(moe_checkpoint::open(*std::pmr::get_default_resource(), path.c_str(), options));
}

inline Handle open_model(const Folder& folder, const Model& model, moe_checkpoint_options options = {}) {
    model.write(folder);
    return open_path(folder.path(), options);
}

// Opening the model and building its layer.
inline Failure layer_failure(const Model& model, int32_t layer = 0, moe_checkpoint_options options = {}) {
    const Folder folder;
    return failure_of([&] { open_model(folder, model, options)->tensors(layer); });
}

inline const LayerTensor* find_tensor(const Handle& checkpoint, int32_t layer, moe_role role, int32_t expert) {
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

}  // namespace moe::test
