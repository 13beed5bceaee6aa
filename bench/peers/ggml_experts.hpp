// The experts of one layer in the graph that llama.cpp builds for them, of any backend of ggml.
#pragma once

#include <memory>
#include <string>

#include "bench/cases.hpp"
#include "bench/peers/ggml_api.hpp"

namespace moe::bench {

// The format in which ggml has the values of one of libmoe's, by libmoe's name: itself, or for
// mxfp4 and nvfp4 the blocks of GGUF. Empty where ggml has none. Of "a+b" both parts.
std::string ggml_format(const std::string& format);
// The same of this ggml, which may lack a type of it: empty then, too.
std::string ggml_format_of(const ggml::SharedApi& api, const std::string& format);
// ggml's number of a type. Throws where this ggml lacks it.
int ggml_type(const ggml::SharedApi& api, const std::string& format);

// Memory for n tensors without data, and `more` bytes.
std::shared_ptr<ggml::Context> ggml_context(const ggml::SharedApi& api, size_t n_tensors,
                                            size_t more = 0);

struct GgmlSet {
    ggml::Tensor* matrices[3];  // gate, up, down: [columns, rows, n_experts]
    ggml::Tensor* scales[3];    // [1, n_experts] of matrices with a global scale, else null
    ggml::Tensor* biases[3];    // [rows, n_experts], of gpt-oss, else null
};

struct GgmlNodes {
    ggml::Tensor *x, *ids, *weights, *out;
};

// The inputs of a layer; out is null.
GgmlNodes layer_inputs(const ggml::SharedApi& api, ggml::Context* context, const Model& model,
                       int64_t n_tokens);
// Adds a layer to the graph, with inputs of its own. It has at most ggml_layer_nodes tensors.
constexpr size_t ggml_layer_nodes = 256;
GgmlNodes add_experts(const ggml::Api& api, ggml::Context* context, ggml::Graph* graph,
                      const GgmlSet& set, const Model& model, int64_t n_tokens);

}  // namespace moe::bench
