// The one-token kernels of ggml's blocks. Contracts: one_token_gate_up.cuh, one_token_down.cuh.
#include "libmoe/cuda/device/raw_fragment_gguf.cuh"
#include "libmoe/cuda/experts/one_token_kernels.cuh"

namespace moe::cuda {

OneTokenKernels one_token_gguf(PackedType type) {
    if (type == PackedType::q8_0) return one_token_kernels<RawQ8_0>();
    if (type == PackedType::q4_k) return one_token_kernels<RawQ4K>();
    return {};
}

}  // namespace moe::cuda
