// ggml's CUDA backend as a peer: the experts of a layer in the graph that llama.cpp builds for
// them.
#pragma once

#include "bench/cpu/weights.hpp"
#include "bench/peers/ggml_experts.hpp"

namespace moe::bench {

class GgmlCudaLayer {
  public:
    // Copies the weights, which are of formats of GGUF, to the device. The library must outlive it.
    GgmlCudaLayer(const ggml::Library& library, const ExpertWeights& weights);

    // Microseconds of one of n_calls calls that follow each other in one graph, as the layers of a
    // model do; the median of several graphs. ids: [n_calls][n_tokens][top_k]. Other experts in
    // every call keep the weights out of the L2. Throws where the results are zero or not finite.
    double us(int64_t n_tokens, const std::vector<int32_t>& ids, int n_calls) const;

  private:
    ggml::Tensor* upload(int type, int64_t columns, int64_t rows, int64_t n, const void* data,
                         size_t bytes);

    const ggml::Library& library_;
    Model model_;
    // A context ends after the buffer of its tensor.
    std::vector<std::shared_ptr<ggml::Context>> contexts_;
    std::vector<std::shared_ptr<ggml::Buffer>> buffers_;
    GgmlSet set_{};
};

}  // namespace moe::bench
