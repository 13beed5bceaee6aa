// Small GGUF files of any architecture for the tests.
#pragma once

#include <string>

#include "tests/checkpoint/models.hpp"

namespace moe::test {

constexpr uint32_t f32 = 0, q8_0 = 8, mxfp4 = 39, nvfp4 = 40;

// One layer, blk.1, with experts of a type.
class GgufModel {
  public:
    explicit GgufModel(const std::string& arch) : arch_(arch) {
        writer.text("general.architecture", arch);
        writer.integer(arch + ".embedding_length", hidden);
        writer.integer(arch + ".expert_count", experts);
        writer.integer(arch + ".expert_used_count", 2);
        add("blk.0.ffn_gate.weight", {hidden, width}, f32);  // dense
        add("blk.1.ffn_gate_inp.weight", {hidden, experts}, f32);
    }
    std::string key(const std::string& name) const { return arch_ + "." + name; }
    void add(const std::string& name, const Shape& ne, uint32_t type) {
        const Element& element = *ggml_element(type);
        uint64_t bytes = element.block_bits / 8;
        for (const int64_t n : ne) bytes *= static_cast<uint64_t>(n);
        writer.tensor(name, ne, type, noise(bytes / element.block_elements, seed_of(name)));
    }
    void add_experts(uint32_t type) {
        add("blk.1.ffn_gate_exps.weight", {hidden, width, experts}, type);
        add("blk.1.ffn_up_exps.weight", {hidden, width, experts}, type);
        add("blk.1.ffn_down_exps.weight", {width, hidden, experts}, type);
    }
    void add_shared() {
        add("blk.1.ffn_gate_shexp.weight", {hidden, shared_width}, f32);
        add("blk.1.ffn_up_shexp.weight", {hidden, shared_width}, f32);
        add("blk.1.ffn_down_shexp.weight", {shared_width, hidden}, f32);
    }
    Handle open(const Folder& folder, moe_checkpoint_options options = {}) const {
        return open_path(folder.write("model.gguf", writer.file()), options);
    }
    Failure failure() const {
        const Folder folder;
        return failure_of([&] { open(folder)->tensors(1); });
    }

    GgufWriter writer;

  private:
    std::string arch_;
};

}  // namespace moe::test
