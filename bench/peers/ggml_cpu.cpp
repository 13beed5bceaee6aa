#include "bench/peers/ggml_cpu.hpp"

#include <sys/mman.h>

#include <chrono>
#include <stdexcept>

#include "bench/peers/ggml_layer.hpp"

namespace moe::bench {
namespace {

using ggml::Tensor;

class GgmlCpuLayer : public GgmlLayer {
  public:
    GgmlCpuLayer(const ggml::Library& library, const GgmlWeights& weights, std::vector<float> x,
                 int64_t n_tokens, int32_t n_threads)
        : GgmlLayer(library.api(), library.backend(), {weights.model(), n_tokens, n_threads},
                    std::move(x)),
          library_(library) {
        const ggml::Api& api = library.api();
        build(weights.sets(), api.dev_buffer_type(library.device()),
              [&](ggml::Context* context, ggml::Graph* graph, const GgmlSet& set) {
                  return add_experts(api, context, graph, set, shape_.model, n_tokens);
              });
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
        rest();
    }

    void rest() override { library_.api().threadpool_pause(threads_.get()); }

  protected:
    void wake() override {
        library_.api().set_threadpool(library_.backend(), threads_.get());
        library_.api().threadpool_resume(threads_.get());
        const auto begin = std::chrono::steady_clock::now();
        constexpr auto waking = std::chrono::microseconds(200);
        while (std::chrono::steady_clock::now() - begin < waking) {
        }
    }

  private:
    const ggml::Library& library_;
    std::shared_ptr<ggml::Threadpool> threads_;
};

class GgmlCpuWeights : public GgmlWeights {
  public:
    GgmlCpuWeights(const ggml::Library& library, const ExpertWeights& weights)
        : GgmlWeights(library.api(), weights), library_(library) {
        place_all(weights);
    }

    std::unique_ptr<PeerLayer> layer(std::vector<float> x, int64_t n_tokens,
                                     int32_t n_threads) const override {
        return std::make_unique<GgmlCpuLayer>(library_, *this, std::move(x), n_tokens, n_threads);
    }

  protected:
    std::string form_of(const ExpertMatrix& matrix) const override {
        return library_.api().buft_name(buffer_type(matrix));
    }
    Tensor* place(const ExpertMatrix& matrix) override;
    void put(Tensor* tensor, void* memory, size_t bytes) override;

  private:
    ggml::BufferType* buffer_type(const ExpertMatrix& matrix) const;

    const ggml::Library& library_;
};

// Asks with a weight of two experts that lies in a buffer of the type.
ggml::BufferType* GgmlCpuWeights::buffer_type(const ExpertMatrix& matrix) const {
    const ggml::Api& api = library_.api();
    const int type = ggml_type(api, matrix.format_name);
    ggml::BufferType** list = api.dev_get_extra_bufts(library_.device());
    for (; list && *list; ++list) {
        const auto weight_context = ggml_context(api, 1), context = ggml_context(api, 8);
        Tensor* weight =
            api.new_tensor_3d(weight_context.get(), type, matrix.columns, matrix.rows, 2);
        const std::shared_ptr<ggml::Buffer> buffer(
            api.alloc_ctx_tensors_from_buft(weight_context.get(), *list), api.buffer_free);
        if (!buffer) continue;
        Tensor* x = api.new_tensor_3d(context.get(), ggml::type_f32, matrix.columns, 1, 4);
        Tensor* ids = api.new_tensor_2d(context.get(), ggml::type_i32, 2, 4);
        if (api.dev_supports_op(library_.device(), api.mul_mat_id(context.get(), weight, x, ids)))
            return *list;
    }
    return api.dev_buffer_type(library_.device());
}

Tensor* GgmlCpuWeights::place(const ExpertMatrix& matrix) {
    const ggml::Api& api = library_.api();
    ggml::BufferType* type = buffer_type(matrix);
    if (type == api.dev_buffer_type(library_.device())) {
        Tensor* tensor = new_tensor(contexts_.front().get(), matrix);
        put(tensor, matrix.data.data(), matrix.data.size());
        return tensor;
    }
    // ggml makes the buffer, for all tensors of a context.
    contexts_.push_back(ggml_context(api, 1));
    Tensor* tensor = new_tensor(contexts_.back().get(), matrix);
    ggml::Buffer* buffer = api.alloc_ctx_tensors_from_buft(contexts_.back().get(), type);
    own(buffer);
    // ggml does not request huge pages; with them it is faster, and libmoe's weights have them.
    constexpr uintptr_t page = 4096;
    const uintptr_t base = reinterpret_cast<uintptr_t>(api.buffer_get_base(buffer));
    const uintptr_t first = (base + page - 1) / page * page;
    const uintptr_t last = (base + api.buffer_get_size(buffer)) / page * page;
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
    api.tensor_set(tensor, matrix.data.data(), 0, matrix.data.size());
    return tensor;
}

void GgmlCpuWeights::put(Tensor* tensor, void* memory, size_t bytes) {
    const ggml::Api& api = library_.api();
    ggml::Buffer* buffer = api.dev_buffer_from_host_ptr(library_.device(), memory, bytes, bytes);
    own(buffer);
    if (api.tensor_alloc(buffer, tensor, memory) != ggml::status_success)
        throw std::runtime_error("ggml does not take the weights");
}

}  // namespace

std::string GgmlPeer::format(const std::string& ours) const {
    return ggml_format_of(library_.api(), ours);
}

std::unique_ptr<PeerWeights> GgmlPeer::weights(const ExpertWeights& weights) const {
    return std::make_unique<GgmlCpuWeights>(library_, weights);
}

}  // namespace moe::bench
