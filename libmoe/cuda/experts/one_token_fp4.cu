// The one-token kernels of the four-bit float types. Contracts: one_token_gate_up.cuh,
// one_token_down.cuh.
#include "libmoe/cuda/experts/one_token_kernels.cuh"

namespace moe::cuda {

OneTokenKernels one_token_fp4(PackedType type) {
    if (type == PackedType::nvfp4) return one_token_kernels<RawNvfp4>();
    if (type == PackedType::mxfp4) return one_token_kernels<RawMxfp4>();
    return {};
}

}  // namespace moe::cuda
