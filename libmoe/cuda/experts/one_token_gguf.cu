// The one-token kernels of Q8_0 and Q4_K, sm_90. Contracts: one_token_gate_up.cuh,
// one_token_down.cuh.
#include "libmoe/cuda/experts/one_token_kernels.cuh"

namespace moe::cuda {

OneTokenKernels one_token_gguf(PackedType type, Book book) {
    return gguf_kernels<BulkRing>(type, book);
}

}  // namespace moe::cuda
