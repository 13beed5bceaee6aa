#include "bench/peers/ggml_experts.hpp"

#include <cstring>
#include <stdexcept>
#include <vector>

#include "bench/formats.hpp"

namespace moe::bench {
namespace {

using ggml::Api;
using ggml::Tensor;

// libmoe's name, that of the format in which ggml has these values, and ggml's name of it.
struct Name {
    const char *ours, *of_gguf, *theirs;
};
constexpr Name names[] = {
    {"f32", "f32", "f32"},          {"f16", "f16", "f16"},
    {"bf16", "bf16", "bf16"},       {"q4_0", "q4_0", "q4_0"},
    {"q4_1", "q4_1", "q4_1"},       {"q5_0", "q5_0", "q5_0"},
    {"q5_1", "q5_1", "q5_1"},       {"q8_0", "q8_0", "q8_0"},
    {"q2_k", "q2_k", "q2_K"},       {"q3_k", "q3_k", "q3_K"},
    {"q4_k", "q4_k", "q4_K"},       {"q5_k", "q5_k", "q5_K"},
    {"q6_k", "q6_k", "q6_K"},       {"iq4_nl", "iq4_nl", "iq4_nl"},
    {"iq4_xs", "iq4_xs", "iq4_xs"}, {"iq2_xxs", "iq2_xxs", "iq2_xxs"},
    {"iq2_xs", "iq2_xs", "iq2_xs"}, {"iq3_xxs", "iq3_xxs", "iq3_xxs"},
    {"iq3_s", "iq3_s", "iq3_s"},    {"mxfp4_gguf", "mxfp4_gguf", "mxfp4"},
    {"mxfp4", "mxfp4_gguf", ""},    {"nvfp4_gguf", "nvfp4_gguf", "nvfp4"},
    {"nvfp4", "nvfp4_gguf", ""},
};

const Name* find_name(const std::string& ours) {
    for (const Name& name : names)
        if (ours == name.ours) return &name;
    return nullptr;
}

// -1 where this ggml has no such type.
int find_type(const ggml::SharedApi& api, const std::string& format) {
    const Name* name = find_name(format);
    if (!name || !*name->theirs) return -1;
    constexpr int more_than_any = 64;  // of the types of files
    for (int type = 0; type < more_than_any; ++type) {
        // Numbers that stand for nothing have no name, those behind the last one the name NONE.
        const char* one = api.type_name(type);
        if (one && std::strcmp(one, "NONE") == 0) break;
        if (one && std::strcmp(one, name->theirs) == 0) return type;
    }
    return -1;
}

// The nodes of one layer.
struct Layer {
    const Api& api;
    ggml::Context* context;
    ggml::Graph* graph;
    const GgmlSet& set;
    const Model& model;
    int64_t n_tokens;

    Tensor* gemm(int matrix, Tensor* x, Tensor* ids) const {
        Tensor* out = api.mul_mat_id(context, set.matrices[matrix], x, ids);
        if (Tensor* scales = set.scales[matrix]) {
            Tensor* of_all = api.reshape_3d(context, scales, 1, model.n_experts, 1);
            Tensor* of_tokens = api.repeat_4d(context, of_all, 1, model.n_experts, n_tokens, 1);
            out = api.mul(context, out, api.get_rows(context, of_tokens, ids));
        }
        if (Tensor* biases = set.biases[matrix]) out = api.add_id(context, out, biases, ids);
        return out;
    }

    // Slot by slot, as llama.cpp adds them.
    Tensor* weighted_sum(Tensor* rows, Tensor* weights) const {
        rows = api.mul(context, rows, weights);
        api.build_forward_expand(graph, rows);
        const size_t row_bytes = static_cast<size_t>(model.hidden) * sizeof(float);
        const auto k = static_cast<size_t>(model.top_k);
        std::vector<Tensor*> slots;
        for (size_t i = 0; i < k; ++i) {
            slots.push_back(
                api.view_2d(context, rows, model.hidden, n_tokens, k * row_bytes, i * row_bytes));
            api.build_forward_expand(graph, slots.back());
        }
        Tensor* sum = slots[0];
        for (size_t i = 1; i < k; ++i) {
            sum = api.add(context, sum, slots[i]);
            api.build_forward_expand(graph, sum);
        }
        return sum;
    }
};

}  // namespace

std::string ggml_format(const std::string& format) {
    const ExpertFormats of = expert_formats(format);
    const Name *gate = find_name(of.gate), *up = find_name(of.up), *down = find_name(of.down);
    if (!gate || !up || !down) return "";
    std::string name = gate->of_gguf;
    if (of.up != of.gate) name += std::string("+") + up->of_gguf;
    if (of.up != of.gate || of.down != of.gate) name += std::string("+") + down->of_gguf;
    return name;
}

std::string ggml_format_of(const ggml::SharedApi& api, const std::string& format) {
    const std::string theirs = ggml_format(format);
    if (theirs.empty()) return "";
    const ExpertFormats of = expert_formats(theirs);
    for (const std::string& one : {of.gate, of.up, of.down})
        if (find_type(api, one) < 0) return "";
    return theirs;
}

int ggml_type(const ggml::SharedApi& api, const std::string& format) {
    const int type = find_type(api, format);
    if (type < 0) throw std::runtime_error("this ggml has no " + format);
    return type;
}

std::shared_ptr<ggml::Context> ggml_context(const ggml::SharedApi& api, size_t n_tensors,
                                            size_t more) {
    ggml::Context* context = api.init({n_tensors * api.tensor_overhead() + more, nullptr, true});
    if (!context) throw std::runtime_error("ggml has no memory for a context");
    return {context, api.free};
}

GgmlNodes layer_inputs(const ggml::SharedApi& api, ggml::Context* context, const Model& model,
                       int64_t n_tokens) {
    GgmlNodes nodes{};
    nodes.x = api.new_tensor_3d(context, ggml::type_f32, model.hidden, 1, n_tokens);
    nodes.ids = api.new_tensor_2d(context, ggml::type_i32, model.top_k, n_tokens);
    nodes.weights = api.new_tensor_3d(context, ggml::type_f32, 1, model.top_k, n_tokens);
    for (Tensor* input : {nodes.x, nodes.ids, nodes.weights}) api.set_input(input);
    return nodes;
}

GgmlNodes add_experts(const Api& api, ggml::Context* context, ggml::Graph* graph,
                      const GgmlSet& set, const Model& model, int64_t n_tokens) {
    const Layer layer{api, context, graph, set, model, n_tokens};
    GgmlNodes nodes = layer_inputs(api, context, model, n_tokens);
    Tensor* up = layer.gemm(1, nodes.x, nodes.ids);
    Tensor* gate = layer.gemm(0, nodes.x, nodes.ids);
    // The constants of gpt-oss, as layer_of has them.
    Tensor* activated = model.has_biases ? api.swiglu_oai(context, gate, up, 1.702f, 7.0f)
                                         : api.swiglu_split(context, gate, up);
    nodes.out = layer.weighted_sum(layer.gemm(2, activated, nodes.ids), nodes.weights);
    api.set_output(nodes.out);
    api.build_forward_expand(graph, nodes.out);
    return nodes;
}

}  // namespace moe::bench
