// A GGUF file of a model's experts, written without libmoe: qwen3moe metadata, Q8_0 gate and up,
// Q4_K down with every third layer's down in Q8_0, as the mixed quantisations of real files have
// it. All blocks are random bytes with scales of a sane size, so that every page of the file is a
// real one.
#pragma once

#include <string>

#include "support/layer_weights.hpp"

namespace clients {

struct ModelShape {
    int32_t n_layers, hidden, intermediate, n_experts, top_k;

    bool down_is_q8(int32_t layer) const { return layer % 3 == 2; }
    int64_t expert_bytes(int32_t layer) const;  // gate, up and down of one expert
    int64_t router_bytes() const { return int64_t(n_experts) * hidden * 4; }
};

class ModelFile {
  public:
    // Writes the file, flushes it to the disk; the destructor deletes it.
    ModelFile(const ModelShape& shape, const std::string& path);
    ~ModelFile();
    ModelFile(const ModelFile&) = delete;

    const std::string& path() const { return path_; }
    int64_t bytes() const { return bytes_; }
    // One layer decoded here, by the formats' definitions.
    LayerWeights decode_layer(int32_t layer) const;
    // Asks the kernel to forget the file's pages.
    void drop_pages() const;

  private:
    struct TensorPlace {
        std::string name;
        int32_t type;
        std::vector<int64_t> ne;  // fastest first
        int64_t offset, bytes;
    };

    std::vector<char> header() const;
    void place_tensors();
    void write_tensors(std::FILE* file) const;
    const TensorPlace& tensor(int32_t layer, const char* suffix) const;
    std::vector<float> decode(const TensorPlace& place) const;

    ModelShape shape_;
    std::string path_;
    std::vector<TensorPlace> tensors_;
    int64_t data_begin_ = 0;
    int64_t bytes_ = 0;
};

}  // namespace clients
