#include "bench/peers/ik_cpu.hpp"

#include <cctype>
#include <cstring>
#include <stdexcept>

#include "bench/peers/ggml_layer.hpp"

namespace moe::bench {
namespace {

using ggml::Tensor;

// Gate, up and the activation are one node, and so are the weights of the slots and their sum.
// Where gate and up have different types ik makes several nodes of the first.
GgmlNodes add_ik_experts(const ik::Api& api, ggml::Context* context, ggml::Graph* graph,
                         const GgmlSet& set, const Model& model, int64_t n_tokens) {
    GgmlNodes nodes = layer_inputs(api, context, model, n_tokens);
    const auto& [gate, up, down] = set.matrices;
    Tensor* activated =
        api.moe_up_gate_ext(context, up, gate, nodes.x, nodes.ids, set.biases[1], set.biases[0],
                            model.has_biases ? ik::unary_swiglu_oai : ik::unary_silu);
    Tensor* rows = api.mul_mat_id(context, down, activated, nodes.ids);
    if (set.biases[2]) rows = api.add_id(context, rows, set.biases[2], nodes.ids);
    nodes.out = api.mul_multi_add(context, rows, nodes.weights);
    api.set_output(nodes.out);
    api.build_forward_expand(graph, nodes.out);
    return nodes;
}

class IkLayer : public GgmlLayer {
  public:
    IkLayer(const ik::Library& library, const GgmlWeights& weights, std::vector<float> x,
            int64_t n_tokens, int32_t n_threads)
        : GgmlLayer(library.api(), library.backend(), {weights.model(), n_tokens, n_threads},
                    std::move(x)),
          library_(library) {
        const ik::Api& api = library.api();
        build(weights.sets(), api.buffer_type(),
              [&](ggml::Context* context, ggml::Graph* graph, const GgmlSet& set) {
                  return add_ik_experts(api, context, graph, set, shape_.model, n_tokens);
              });
        build_small();
    }

    // The threads of OpenMP would spin for milliseconds.
    void rest() override {
        constexpr int soft = 1;
        if (library_.api().pause_threads) library_.api().pause_threads(soft);
    }

  protected:
    // There is no function for it, so a graph that takes microseconds does it, on all threads.
    void wake() override { api_.backend_graph_compute(backend_, small_); }

  private:
    void build_small() {
        constexpr size_t n_nodes = 8;
        constexpr int64_t side = 64;
        const ik::Api& api = library_.api();
        context_ = ggml_context(api, n_nodes, api.graph_overhead_custom(n_nodes, false));
        Tensor* one = api.new_tensor_2d(context_.get(), ggml::type_f32, side, side);
        api.set_input(one);
        Tensor* sum = api.add(context_.get(), one, one);
        small_ = api.new_graph_custom(context_.get(), n_nodes, false);
        api.build_forward_expand(small_, sum);
        allocator_ = {api.gallocr_new(api.buffer_type()), api.gallocr_free};
        if (!api.gallocr_alloc_graph(allocator_.get(), small_))
            throw std::runtime_error("ik_llama.cpp has no memory for a small graph");
        const std::vector<float> zeros(side * side);
        api.tensor_set(one, zeros.data(), 0, zeros.size() * sizeof(float));
    }

    const ik::Library& library_;
    std::shared_ptr<ggml::Context> context_;
    std::shared_ptr<ggml::Allocator> allocator_;
    ggml::Graph* small_ = nullptr;
};

class IkWeights : public GgmlWeights {
  public:
    IkWeights(const ik::Library& library, const ExpertWeights& weights, bool repacks)
        : GgmlWeights(library.api(), weights), library_(library), repacks_(repacks) {
        place_all(weights);
    }

    std::unique_ptr<PeerLayer> layer(std::vector<float> x, int64_t n_tokens,
                                     int32_t n_threads) const override {
        return std::make_unique<IkLayer>(library_, *this, std::move(x), n_tokens, n_threads);
    }

  protected:
    // The type of the rows that it interleaves.
    std::string form_of(const ExpertMatrix& matrix) const override {
        const auto context = ggml_context(api_, 1);
        const Tensor* tensor = new_tensor(context.get(), matrix);
        const int type = library_.api().repacked_type(tensor);
        if (!repacks_ || type == ggml_type(api_, matrix.format_name)) return "CPU";
        std::string name = api_.type_name(type);
        for (char& letter : name) letter = static_cast<char>(std::toupper(letter));
        return name;
    }

    // It interleaves rows where they lie, so it gets a copy, with huge pages as all weights.
    Tensor* place(const ExpertMatrix& matrix) override {
        Tensor* tensor = new_tensor(contexts_.front().get(), matrix);
        if (!repacks_) {
            put(tensor, matrix.data.data(), matrix.data.size());
            return tensor;
        }
        memory_.emplace_back(matrix.data.size(), false);
        std::memcpy(memory_.back().data(), matrix.data.data(), matrix.data.size());
        put(tensor, memory_.back().data(), matrix.data.size());
        library_.api().repack_tensor(tensor);
        return tensor;
    }

    void put(Tensor* tensor, void* memory, size_t bytes) override {
        ggml::Buffer* buffer = library_.api().buffer_from_ptr(memory, bytes);
        own(buffer);
        library_.api().tensor_alloc(buffer, tensor, memory);
    }

  private:
    const ik::Library& library_;
    bool repacks_;
};

}  // namespace

std::string IkPeer::format(const std::string& ours) const {
    return ggml_format_of(library_->api(), ours);
}

std::unique_ptr<PeerWeights> IkPeer::weights(const ExpertWeights& weights) const {
    return std::make_unique<IkWeights>(*library_, weights, repacks_);
}

}  // namespace moe::bench
