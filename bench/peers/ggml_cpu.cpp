#include "bench/peers/ggml_cpu.hpp"

#include <sys/mman.h>

#include <chrono>
#include <stdexcept>

#include "bench/cpu/layer.hpp"
#include "bench/formats.hpp"

namespace moe::bench {

using ggml::Api;
using ggml::Tensor;

GgmlWeights::GgmlWeights(const ggml::Library& library, const ExpertWeights& weights)
    : library_(library), n_experts_(weights.model().n_experts) {
    const Api& api = library.api();
    for (size_t i = 0; i < weights.n_sets(); ++i) {
        GgmlSet set{};
        for (size_t j = 0; j < 3; ++j) {
            const ExpertMatrix& matrix = weights.matrices(i)[j];
            set.matrices[j] = place(matrix);
            if (matrix.format.global_scale != MOE_GLOBAL_SCALE_NONE)
                set.scales[j] = filled(1, n_experts_, matrix.global_scale);
            if (weights.model().has_biases) set.biases[j] = filled(matrix.rows, n_experts_, 0.0f);
        }
        sets_.push_back(set);
    }
    const auto name = [&](size_t j) {
        return std::string(api.buft_name(buffer_type(weights.matrices(0)[j])));
    };
    buffer_ = name(0) == name(2) ? name(0) : name(0) + "+" + name(2);
}

// Asks with a weight of two experts that lies in a buffer of the type.
ggml::BufferType* GgmlWeights::buffer_type(const ExpertMatrix& matrix) const {
    const Api& api = library_.api();
    const int type = ggml_type(library_, matrix.format_name);
    ggml::BufferType** list = api.dev_get_extra_bufts(library_.device());
    for (; list && *list; ++list) {
        const auto weight_context = ggml_context(api, 1), context = ggml_context(api, 8);
        Tensor* weight =
            api.new_tensor_3d(weight_context.get(), type, matrix.columns, matrix.rows, 2);
        const std::shared_ptr<ggml::Buffer> buffer(
            api.alloc_ctx_tensors_from_buft(weight_context.get(), *list), api.buffer_free);
        if (!buffer) continue;
        Tensor* x = api.new_tensor_3d(context.get(), ggml::type_f32, matrix.columns, 1, 4);
        Tensor* ids = api.new_tensor_2d(context.get(), library_.type_of("i32"), 2, 4);
        if (api.dev_supports_op(library_.device(), api.mul_mat_id(context.get(), weight, x, ids)))
            return *list;
    }
    return api.dev_buffer_type(library_.device());
}

void GgmlWeights::own(ggml::Buffer* buffer) {
    if (!buffer) throw std::runtime_error("ggml has no memory for weights");
    buffers_.emplace_back(buffer, library_.api().buffer_free);
}

Tensor* GgmlWeights::place(const ExpertMatrix& matrix) {
    const Api& api = library_.api();
    contexts_.push_back(ggml_context(api, 1));
    ggml::Context* context = contexts_.back().get();
    Tensor* tensor = api.new_tensor_3d(context, ggml_type(library_, matrix.format_name),
                                       matrix.columns, matrix.rows, n_experts_);
    if (api.nbytes(tensor) != matrix.data.size())
        throw std::runtime_error("ggml's " + matrix.format_name + " has another size");
    ggml::BufferType* type = buffer_type(matrix);
    if (type == api.dev_buffer_type(library_.device())) {
        own(api.dev_buffer_from_host_ptr(library_.device(), matrix.data.data(), matrix.data.size(),
                                         matrix.data.size()));
        if (api.tensor_alloc(buffers_.back().get(), tensor, matrix.data.data()) !=
            ggml::status_success)
            throw std::runtime_error("ggml does not take the weights");
        return tensor;
    }
    own(api.alloc_ctx_tensors_from_buft(context, type));
    ggml::Buffer* buffer = buffers_.back().get();
    // ggml does not request huge pages; with them it is faster, and libmoe's weights have them.
    constexpr uintptr_t page = 4096;
    const uintptr_t base = reinterpret_cast<uintptr_t>(api.buffer_get_base(buffer));
    const uintptr_t first = (base + page - 1) / page * page;
    const uintptr_t last = (base + api.buffer_get_size(buffer)) / page * page;
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
    api.tensor_set(tensor, matrix.data.data(), 0, matrix.data.size());
    return tensor;
}

Tensor* GgmlWeights::filled(int64_t columns, int64_t rows, float value) {
    const Api& api = library_.api();
    contexts_.push_back(ggml_context(api, 1));
    Tensor* tensor = api.new_tensor_2d(contexts_.back().get(), ggml::type_f32, columns, rows);
    own(api.alloc_ctx_tensors_from_buft(contexts_.back().get(),
                                        api.dev_buffer_type(library_.device())));
    const std::vector<float> values(static_cast<size_t>(columns * rows), value);
    api.tensor_set(tensor, values.data(), 0, values.size() * sizeof(float));
    return tensor;
}

GgmlLayer::GgmlLayer(const ggml::Library& library, const GgmlWeights& weights, const Model& model,
                     std::vector<float> x, int64_t n_tokens, int32_t n_threads)
    : library_(library),
      model_(model),
      n_tokens_(n_tokens),
      n_threads_(n_threads),
      x_(std::move(x)),
      weights_(static_cast<size_t>(n_tokens * model.top_k), slot_weight) {
    const Api& api = library.api();
    const size_t n = weights.n_sets();
    context_ = ggml_context(api, n * ggml_layer_nodes,
                            n * api.graph_overhead_custom(ggml_layer_nodes, false));
    allocator_ = {api.gallocr_new(api.dev_buffer_type(library.device())), api.gallocr_free};
    // One allocator gives the graphs, which are alike, the same memory for activations.
    for (size_t i = 0; i < n; ++i) {
        ggml::Graph* graph = api.new_graph_custom(context_.get(), ggml_layer_nodes, false);
        sets_.push_back(
            {graph, add_experts(library, context_.get(), graph, weights.set(i), model, n_tokens)});
        if (!api.gallocr_alloc_graph(allocator_.get(), graph))
            throw std::runtime_error("ggml has no memory for activations");
    }
    // ggml_threadpool_params, which has 528 bytes today: filled and read by ggml alone.
    alignas(16) unsigned char params[4096] = {};
    api.threadpool_params_init(params, n_threads);
    ggml::Threadpool* threads = api.threadpool_new(params);
    if (!threads) throw std::runtime_error("ggml starts no threads");
    // The backend must not keep a pool that has ended.
    threads_ = {threads, [&library](ggml::Threadpool* pool) {
                    library.api().set_threadpool(library.backend(), nullptr);
                    library.api().threadpool_free(pool);
                }};
    api.threadpool_pause(threads);
}

double GgmlLayer::forward(size_t set, const std::vector<int32_t>& ids) {
    const Api& api = library_.api();
    const One& one = sets_[set];
    api.tensor_set(one.nodes.x, x_.data(), 0, x_.size() * sizeof(float));
    api.tensor_set(one.nodes.ids, ids.data(), 0, ids.size() * sizeof(int32_t));
    api.tensor_set(one.nodes.weights, weights_.data(), 0, weights_.size() * sizeof(float));
    api.set_n_threads(library_.backend(), n_threads_);
    api.set_threadpool(library_.backend(), threads_.get());
    api.threadpool_resume(threads_.get());
    const auto begin = std::chrono::steady_clock::now();
    constexpr auto waking = std::chrono::microseconds(200);
    while (std::chrono::steady_clock::now() - begin < waking) {
    }
    const auto start = std::chrono::steady_clock::now();
    const int status = api.backend_graph_compute(library_.backend(), one.graph);
    const auto end = std::chrono::steady_clock::now();
    api.threadpool_pause(threads_.get());
    if (status != ggml::status_success) throw std::runtime_error("ggml's graph failed");
    last_ = set;
    return std::chrono::duration<double>(end - start).count();
}

std::vector<float> GgmlLayer::out() const {
    std::vector<float> rows(x_.size());
    library_.api().tensor_get(sets_[last_].nodes.out, rows.data(), 0, rows.size() * sizeof(float));
    return rows;
}

}  // namespace moe::bench
