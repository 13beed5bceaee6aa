// A layer of experts on a CPU backend of ggml, of what ggml and its forks have in common: where the
// tensors of weights lie, and a graph for each set of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/cpu/peer.hpp"
#include "bench/peers/ggml_experts.hpp"

namespace moe::bench {

class GgmlWeights : public PeerWeights {
  public:
    const std::string& buffer() const override { return buffer_; }
    const std::vector<GgmlSet>& sets() const { return sets_; }
    const Model& model() const { return model_; }

  protected:
    GgmlWeights(const ggml::SharedApi& api, const ExpertWeights& weights);
    // Places every matrix of the weights, scales and biases.
    void place_all(const ExpertWeights& weights);

    // A tensor for the matrix, which has no memory yet.
    ggml::Tensor* new_tensor(ggml::Context* context, const ExpertMatrix& matrix) const;
    void own(ggml::Buffer* buffer);

    // The tensor of a matrix, in memory.
    virtual ggml::Tensor* place(const ExpertMatrix& matrix) = 0;
    // The form in which place puts it.
    virtual std::string form_of(const ExpertMatrix& matrix) const = 0;
    // Lets a tensor lie in memory that outlives it.
    virtual void put(ggml::Tensor* tensor, void* memory, size_t bytes) = 0;

    const ggml::SharedApi& api_;
    // The first is of all tensors but those whose buffer is made for a context. Contexts end after
    // the buffers of their tensors.
    std::vector<std::shared_ptr<ggml::Context>> contexts_;
    std::vector<PageBuffer> memory_;

  private:
    ggml::Tensor* filled(int64_t columns, int64_t rows, float value);

    Model model_;
    std::vector<std::shared_ptr<ggml::Buffer>> buffers_;
    std::vector<GgmlSet> sets_;
    std::string buffer_;
};

class GgmlLayer : public PeerLayer {
  public:
    double forward(size_t set, const std::vector<int32_t>& ids) override;
    std::vector<float> out() const override;

  protected:
    struct Shape {
        Model model;
        int64_t n_tokens;
        int32_t n_threads;
    };
    GgmlLayer(const ggml::SharedApi& api, ggml::Backend* backend, const Shape& shape,
              std::vector<float> x);
    // A graph of each set. add: adds the layer of a set to the graph.
    using Add = std::function<GgmlNodes(ggml::Context*, ggml::Graph*, const GgmlSet&)>;
    void build(const std::vector<GgmlSet>& sets, ggml::BufferType* activations, const Add& add);

    // Until it returns the threads are awake.
    virtual void wake() = 0;

    const ggml::SharedApi& api_;
    ggml::Backend* backend_;
    const Shape shape_;

  private:
    struct One {
        ggml::Graph* graph;
        GgmlNodes nodes;
    };
    std::vector<float> x_;
    std::vector<float> weights_;
    std::shared_ptr<ggml::Context> context_;
    std::shared_ptr<ggml::Allocator> allocator_;
    std::vector<One> sets_;
    size_t last_ = 0;
};

}  // namespace moe::bench
