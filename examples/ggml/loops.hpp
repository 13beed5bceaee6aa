// Plain loops for operations that were claimed and are in no chain. They are right, not fast.
#pragma once

#include "interface.hpp"

namespace moe::ggml {

// False for an operation that is not one of claims.hpp.
bool run_by_loops(Tensor* node);

}  // namespace moe::ggml
