// Weights handles of libmoe over tensors that ggml owns: matrices are borrowed where they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "chain.hpp"
#include "moe/moe.h"
#include "problem.hpp"

namespace moe::ggml {

using Weights = std::shared_ptr<const moe_weights>;

// Without weights when libmoe refuses them; standard error has the reason. is_kept: they stay what
// they are while weights_generation() does, because the tensors are weights of a model. Any thread.
struct Loaded {
    Weights weights;
    bool is_kept = false;
};

Loaded weights_of(const moe_plan* plan, const Chain& chain);
Loaded weights_of_matrix(const moe_plan* plan, const Problem& problem, const Tensor* product);

// Drops what was read from these bytes, which change or go away.
void forget_weights(const void* memory, size_t bytes);
// Another number after weights were dropped.
uint64_t weights_generation();

}  // namespace moe::ggml
