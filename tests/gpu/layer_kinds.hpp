// Layers that differ from a plain one in one thing each: every rule of routing, every activation
// and every part of section 4 of moe.h.
#pragma once

#include <vector>

#include "moe/moe.h"

namespace moe_gpu {

// Of layers that differ in these alone.
struct ExpertsAndK {
    int32_t n, k;
};

struct NamedLayer {
    const char* name;
    moe_layer_desc desc;
};

std::vector<NamedLayer> routing_layers();
std::vector<NamedLayer> expert_layers();
std::vector<NamedLayer> activation_layers();  // among them

// Biases, shared expert with its gate, mean: what a stage may forget.
moe_layer_desc rich_layer(int32_t hidden, int32_t intermediate, int32_t n_experts, int32_t top_k);
// The same with a shared expert of 64 features. Of sizes in multiples of 64 it is what the kernels
// that read packed tiles want; that of rich_layer keeps them away.
moe_layer_desc rich_layer_on_grid(int32_t hidden, int32_t intermediate, int32_t n_experts,
                                  int32_t top_k);

}  // namespace moe_gpu
