// The one-token kernels of Q8_0 and Q4_K, any architecture. Contracts: one_token_gate_up.cuh,
// one_token_down.cuh.
#include "libmoe/cuda/experts/one_token_kernels.cuh"

namespace moe::cuda {

OneTokenKernels one_token_portable_gguf(PackedType type, Book book) {
    return gguf_kernels<AsyncRing>(type, book);
}

}  // namespace moe::cuda
