// A limit of the gemv family that its kernels do not know.
#pragma once

#include "libmoe/cuda/gemv/gemv_tiling.hpp"

namespace moe::cuda {

// Tokens of a call. Each has thread blocks of its own, so that with twice as many as this few SMs
// would be left for one.
constexpr int32_t gemv_token_limit = 2 * max_gemv_batch;

}  // namespace moe::cuda
