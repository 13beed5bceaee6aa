// Finds expert chains in the nodes of a graph, whatever their order: from the products with gate
// and up over the activation and down to the weighted sum of a token's slots.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "interface.hpp"
#include "moe/moe.h"

namespace moe::ggml {

// MUL_MAT_ID with the scale per expert and the bias that may follow. Absent parts are null.
struct Projection {
    const Tensor* product = nullptr;  // the MUL_MAT_ID itself
    const Tensor* scales = nullptr;   // [E]
    const Tensor* bias = nullptr;     // [n, E]

    const Tensor* weights() const { return product->src[0]; }
    const Tensor* x() const { return product->src[1]; }
    const Tensor* ids() const { return product->src[2]; }
};

// Fields of moe_layer_desc. Limits and factors that are absent are zero.
struct Activation {
    moe_activation kind = MOE_ACTIVATION_NONE;
    bool is_gated = false;
    float alpha = 0, up_offset = 0, gate_limit = 0, up_limit = 0, post_limit = 0;
    float situ_beta = 0, situ_beta_up = 0;

    bool operator==(const Activation&) const = default;
};

struct Chain {
    Projection gate;  // without a product when the layer has no gate or a merged one
    Projection up;    // gate and up in one matrix when order is not NONE
    Projection down;
    moe_gate_up_order order = MOE_GATE_UP_NONE;
    Activation activation;
    const Tensor* routing_weights = nullptr;  // [1, k, T]; null: the result is a row per slot
    Tensor* result = nullptr;
};

// One entry per thing to do, in an order that the graph allows.
struct Step {
    Tensor* node;        // to be computed by itself; null with a chain
    const Chain* chain;  // writes its result
    size_t index;        // of the chain
};

// The chains live as long as this.
class Steps {
  public:
    // Chains that cannot run are taken apart into their nodes.
    Steps(const std::vector<Tensor*>& nodes, const std::function<bool(const Chain&)>& can_run);

    const std::vector<Step>& list() const { return list_; }
    size_t n_chains() const { return chains_.size(); }

  private:
    std::vector<Chain> chains_;
    std::vector<Step> list_;
};

}  // namespace moe::ggml
