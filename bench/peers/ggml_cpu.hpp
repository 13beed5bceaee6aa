// ggml's CPU backend as a peer: the experts of one layer in the graph that llama.cpp builds for
// them, on the same weights as libmoe, with ggml's own threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/cpu/weights.hpp"
#include "bench/peers/ggml_experts.hpp"

namespace moe::bench {

// Where a weight lies in ggml's buffer types, as llama.cpp chooses: the first extra type, such as
// CPU_REPACK, that runs MUL_MAT_ID on it; else ggml reads the blocks where they lie.
class GgmlWeights {
  public:
    // Throws where this ggml lacks the type. The weights are in formats of ggml and must outlive
    // it, as the library must.
    GgmlWeights(const ggml::Library& library, const ExpertWeights& weights);

    const GgmlSet& set(size_t i) const { return sets_[i]; }
    size_t n_sets() const { return sets_.size(); }
    // Of gate, and of down where it differs: "CPU", "CPU_REPACK", "CPU_REPACK+CPU".
    const std::string& buffer() const { return buffer_; }

  private:
    template <class T>
    using Owned = std::shared_ptr<T>;
    ggml::BufferType* buffer_type(const ExpertMatrix& matrix) const;
    ggml::Tensor* place(const ExpertMatrix& matrix);
    ggml::Tensor* filled(int64_t columns, int64_t rows, float value);
    void own(ggml::Buffer* buffer);

    const ggml::Library& library_;
    int64_t n_experts_;
    // Contexts end after the buffers of their tensors.
    std::vector<Owned<ggml::Context>> contexts_;
    std::vector<Owned<ggml::Buffer>> buffers_;
    std::vector<GgmlSet> sets_;
    std::string buffer_;
};

class GgmlLayer {
  public:
    // x: [n_tokens, hidden]. The weights must outlive it.
    GgmlLayer(const ggml::Library& library, const GgmlWeights& weights, const Model& model,
              std::vector<float> x, int64_t n_tokens, int32_t n_threads);

    // Seconds of a graph of set `set` with these ids, every slot weighted by slot_weight. Its
    // threads are awake when the time begins, and sleep afterwards.
    double forward(size_t set, const std::vector<int32_t>& ids);
    // Of the last forward, [n_tokens, hidden].
    std::vector<float> out() const;

  private:
    struct One {
        ggml::Graph* graph;
        GgmlNodes nodes;
    };
    const ggml::Library& library_;
    Model model_;
    int64_t n_tokens_;
    int32_t n_threads_;
    std::vector<float> x_;
    std::vector<float> weights_;
    std::shared_ptr<ggml::Context> context_;
    std::shared_ptr<ggml::Allocator> allocator_;
    std::shared_ptr<ggml::Threadpool> threads_;
    std::vector<One> sets_;
    size_t last_ = 0;
};

}  // namespace moe::bench
