// The one-token kernels of NVFP4 and MXFP4, any architecture. Contracts: one_token_gate_up.cuh,
// one_token_down.cuh.
#include "libmoe/cuda/experts/one_token_kernels.cuh"

namespace moe::cuda {

OneTokenKernels one_token_portable_fp4(PackedType type, Book book) {
    return fp4_kernels<AsyncRing>(type, book);
}

}  // namespace moe::cuda
