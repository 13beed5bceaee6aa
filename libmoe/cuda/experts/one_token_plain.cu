// The one-token kernels of types whose codes are floats of 8 or 16 bits. Contracts:
// one_token_gate_up.cuh, one_token_down.cuh.
#include "libmoe/cuda/experts/one_token_kernels.cuh"

namespace moe::cuda {

OneTokenKernels one_token_plain(PackedType type) {
    if (type == PackedType::bf16) return one_token_kernels<RawBf16>();
    if (type == PackedType::f16) return one_token_kernels<RawF16>();
    if (type == PackedType::e4m3) return one_token_kernels<RawE4m3>();
    return {};
}

}  // namespace moe::cuda
