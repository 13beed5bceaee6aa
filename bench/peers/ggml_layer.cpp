#include "bench/peers/ggml_layer.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "bench/cpu/layer.hpp"

namespace moe::bench {

using ggml::Tensor;

// Of a set: three matrices, their scales and their biases.
constexpr size_t tensors_of_set = 9;

GgmlWeights::GgmlWeights(const ggml::SharedApi& api, const ExpertWeights& weights)
    : api_(api),
      contexts_{ggml_context(api, weights.n_sets() * tensors_of_set)},
      model_(weights.model()) {}

void GgmlWeights::place_all(const ExpertWeights& weights) {
    for (size_t i = 0; i < weights.n_sets(); ++i) {
        GgmlSet set{};
        for (size_t j = 0; j < 3; ++j) {
            const ExpertMatrix& matrix = weights.matrices(i)[j];
            set.matrices[j] = place(matrix);
            if (matrix.format.global_scale != MOE_GLOBAL_SCALE_NONE)
                set.scales[j] = filled(1, model_.n_experts, matrix.global_scale);
            if (model_.has_biases) set.biases[j] = filled(matrix.rows, model_.n_experts, 0.0f);
        }
        sets_.push_back(set);
    }
    const std::string gate = form_of(weights.matrices(0)[0]);
    const std::string down = form_of(weights.matrices(0)[2]);
    buffer_ = gate == down ? gate : gate + "+" + down;
}

Tensor* GgmlWeights::new_tensor(ggml::Context* context, const ExpertMatrix& matrix) const {
    Tensor* tensor = api_.new_tensor_3d(context, ggml_type(api_, matrix.format_name),
                                        matrix.columns, matrix.rows, model_.n_experts);
    if (api_.nbytes(tensor) != matrix.data.size())
        throw std::runtime_error("ggml's " + matrix.format_name + " has another size");
    return tensor;
}

void GgmlWeights::own(ggml::Buffer* buffer) {
    if (!buffer) throw std::runtime_error("ggml has no memory for weights");
    buffers_.emplace_back(buffer, api_.buffer_free);
}

Tensor* GgmlWeights::filled(int64_t columns, int64_t rows, float value) {
    Tensor* tensor = api_.new_tensor_2d(contexts_.front().get(), ggml::type_f32, columns, rows);
    const auto n = static_cast<size_t>(columns * rows);
    memory_.emplace_back(n * sizeof(float), false);
    std::fill_n(reinterpret_cast<float*>(memory_.back().data()), n, value);
    put(tensor, memory_.back().data(), memory_.back().size());
    return tensor;
}

GgmlLayer::GgmlLayer(const ggml::SharedApi& api, ggml::Backend* backend, const Shape& shape,
                     std::vector<float> x)
    : api_(api),
      backend_(backend),
      shape_(shape),
      x_(std::move(x)),
      weights_(static_cast<size_t>(shape.n_tokens * shape.model.top_k), slot_weight) {}

void GgmlLayer::build(const std::vector<GgmlSet>& sets, ggml::BufferType* activations,
                      const Add& add) {
    context_ = ggml_context(api_, sets.size() * ggml_layer_nodes,
                            sets.size() * api_.graph_overhead_custom(ggml_layer_nodes, false));
    allocator_ = {api_.gallocr_new(activations), api_.gallocr_free};
    // One allocator gives the graphs, which are alike, the same memory for activations.
    for (const GgmlSet& set : sets) {
        ggml::Graph* graph = api_.new_graph_custom(context_.get(), ggml_layer_nodes, false);
        sets_.push_back({graph, add(context_.get(), graph, set)});
        if (!api_.gallocr_alloc_graph(allocator_.get(), graph))
            throw std::runtime_error("ggml has no memory for activations");
    }
}

double GgmlLayer::forward(size_t set, const std::vector<int32_t>& ids) {
    const One& one = sets_[set];
    api_.tensor_set(one.nodes.x, x_.data(), 0, x_.size() * sizeof(float));
    api_.tensor_set(one.nodes.ids, ids.data(), 0, ids.size() * sizeof(int32_t));
    api_.tensor_set(one.nodes.weights, weights_.data(), 0, weights_.size() * sizeof(float));
    api_.set_n_threads(backend_, shape_.n_threads);
    wake();
    const auto start = std::chrono::steady_clock::now();
    const int status = api_.backend_graph_compute(backend_, one.graph);
    const auto end = std::chrono::steady_clock::now();
    if (status != ggml::status_success) throw std::runtime_error("ggml's graph failed");
    last_ = set;
    return std::chrono::duration<double>(end - start).count();
}

std::vector<float> GgmlLayer::out() const {
    std::vector<float> rows(x_.size());
    api_.tensor_get(sets_[last_].nodes.out, rows.data(), 0, rows.size() * sizeof(float));
    return rows;
}

}  // namespace moe::bench
