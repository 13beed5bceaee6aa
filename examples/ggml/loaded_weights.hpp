// Weights handles of libmoe over tensors that ggml owns: matrices are borrowed where they lie.
#pragma once

#include <cstddef>
#include <memory>

#include "chain.hpp"
#include "moe/moe.h"
#include "problem.hpp"

namespace moe::ggml {

using Weights = std::shared_ptr<const moe_weights>;

// Kept for the next call as long as the tensors are weights of a model. Null when libmoe refuses
// them, with the reason on standard error. Any thread.
Weights weights_of(const moe_plan* plan, const Chain& chain);
Weights weights_of_matrix(const moe_plan* plan, const Problem& problem, const Tensor* product);

// Drops what was read from these bytes, which change or go away.
void forget_weights(const void* memory, size_t bytes);

}  // namespace moe::ggml
