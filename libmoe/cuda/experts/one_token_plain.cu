// The one-token kernels of bfloat16, float16 and FP8, sm_90. Contracts: one_token_gate_up.cuh,
// one_token_down.cuh.
#include "libmoe/cuda/experts/one_token_kernels.cuh"

namespace moe::cuda {

OneTokenKernels one_token_plain(PackedType type, Book book) {
    return plain_kernels<BulkRing>(type, book);
}

}  // namespace moe::cuda
