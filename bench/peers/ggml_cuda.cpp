#include "bench/peers/ggml_cuda.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <stdexcept>

namespace moe::bench {
namespace {

using ggml::Api;
using ggml::Tensor;

constexpr int n_warm = 4, n_timed = 15;  // graphs

std::vector<float> random_rows(int64_t n) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = normal(random);
    return values;
}

void check_out(const Api& api, const Tensor* out) {
    std::vector<float> values(api.nbytes(out) / sizeof(float));
    api.tensor_get(out, values.data(), 0, values.size() * sizeof(float));
    double squares = 0;
    for (const float value : values) squares += double{value} * value;
    if (!std::isfinite(squares) || squares == 0)
        throw std::runtime_error("ggml's results are zero or not finite");
}

}  // namespace

GgmlCudaLayer::GgmlCudaLayer(const ggml::Library& library, const ExpertWeights& weights)
    : library_(library), model_(weights.model()) {
    const int64_t n = model_.n_experts;
    for (size_t j = 0; j < 3; ++j) {
        const ExpertMatrix& matrix = weights.matrices(0)[j];
        set_.matrices[j] = upload(ggml_type(library.api(), matrix.format_name), matrix.columns,
                                  matrix.rows, n, matrix.data.data(), matrix.data.size());
        if (matrix.format.global_scale == MOE_GLOBAL_SCALE_NONE) continue;
        const std::vector<float> scales(static_cast<size_t>(n), matrix.global_scale);
        set_.scales[j] = upload(ggml::type_f32, 1, n, 1, scales.data(), scales.size() * 4);
    }
}

Tensor* GgmlCudaLayer::upload(int type, int64_t columns, int64_t rows, int64_t n, const void* data,
                              size_t bytes) {
    const Api& api = library_.api();
    contexts_.push_back(ggml_context(api, 1));
    ggml::Context* context = contexts_.back().get();
    Tensor* tensor = n == 1 ? api.new_tensor_2d(context, type, columns, rows)
                            : api.new_tensor_3d(context, type, columns, rows, n);
    if (api.nbytes(tensor) != bytes) throw std::runtime_error("ggml's weights have another size");
    buffers_.emplace_back(
        api.alloc_ctx_tensors_from_buft(context, api.dev_buffer_type(library_.device())),
        api.buffer_free);
    if (!buffers_.back()) throw std::runtime_error("ggml has no memory for weights");
    api.tensor_set(tensor, data, 0, bytes);
    return tensor;
}

double GgmlCudaLayer::us(int64_t n_tokens, const std::vector<int32_t>& ids, int n_calls) const {
    const Api& api = library_.api();
    const size_t n_nodes = static_cast<size_t>(n_calls) * ggml_layer_nodes;
    const auto context = ggml_context(api, n_nodes, api.graph_overhead_custom(n_nodes, false));
    ggml::Graph* graph = api.new_graph_custom(context.get(), n_nodes, false);
    std::vector<GgmlNodes> calls;
    for (int i = 0; i < n_calls; ++i) {
        calls.push_back(add_experts(api, context.get(), graph, set_, model_, n_tokens));
        // The graph runs many times: as outputs its inputs keep their memory to its end.
        const GgmlNodes& call = calls.back();
        for (Tensor* input : {call.x, call.ids, call.weights}) api.set_output(input);
    }
    const std::shared_ptr<ggml::Allocator> allocator(
        api.gallocr_new(api.dev_buffer_type(library_.device())), api.gallocr_free);
    if (!api.gallocr_alloc_graph(allocator.get(), graph))
        throw std::runtime_error("ggml has no memory for activations");
    const int64_t n_slots = n_tokens * model_.top_k;
    const std::vector<float> x = random_rows(n_tokens * model_.hidden);
    const std::vector<float> slot_weights(static_cast<size_t>(n_slots), 0.125f);
    for (int i = 0; i < n_calls; ++i) {
        const GgmlNodes& call = calls[static_cast<size_t>(i)];
        api.tensor_set(call.x, x.data(), 0, x.size() * sizeof(float));
        api.tensor_set(call.ids, ids.data() + i * n_slots, 0,
                       static_cast<size_t>(n_slots) * sizeof(int32_t));
        api.tensor_set(call.weights, slot_weights.data(), 0, slot_weights.size() * sizeof(float));
    }
    std::vector<double> seconds;
    for (int i = 0; i < n_warm + n_timed; ++i) {
        const auto start = std::chrono::steady_clock::now();
        if (api.backend_graph_compute(library_.backend(), graph) != ggml::status_success)
            throw std::runtime_error("ggml's graph failed");
        const auto end = std::chrono::steady_clock::now();
        if (i >= n_warm) seconds.push_back(std::chrono::duration<double>(end - start).count());
    }
    check_out(api, calls.back().out);
    std::nth_element(seconds.begin(), seconds.begin() + n_timed / 2, seconds.end());
    return seconds[n_timed / 2] * 1e6 / n_calls;
}

}  // namespace moe::bench
