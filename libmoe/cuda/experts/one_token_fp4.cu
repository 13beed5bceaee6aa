// The one-token kernels of NVFP4 and MXFP4, sm_90. Contracts: one_token_gate_up.cuh,
// one_token_down.cuh.
#include "libmoe/cuda/experts/one_token_kernels.cuh"

namespace moe::cuda {

OneTokenKernels one_token_fp4(PackedType type, Book book) {
    return fp4_kernels<BulkRing>(type, book);
}

}  // namespace moe::cuda
