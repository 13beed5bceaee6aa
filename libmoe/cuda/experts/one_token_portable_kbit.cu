// The one-token kernels of codebook types with scales of one byte, any architecture. Contracts:
// one_token_gate_up.cuh, one_token_down.cuh.
#include "libmoe/cuda/experts/one_token_kernels.cuh"

namespace moe::cuda {

OneTokenKernels one_token_portable_kbit(PackedType type, Book book) {
    return kbit_kernels<AsyncRing>(type, book);
}

}  // namespace moe::cuda
