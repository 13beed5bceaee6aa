// Instances of gemv_gate_up and gemv_down for weights of ggml's superblocks of 256:
// any architecture from sm_80, cp.async pipeline. Contracts: gemv_gate_up.cuh, gemv_down.cuh.
#include "libmoe/cuda/gemv/gemv_instances.cuh"

namespace moe::cuda {

GemvKernels sm80_gemv_gguf_k(PackedType type, CodebookMode codebook_mode) {
    return gguf_k_kernels<AsyncPipeline>(type, codebook_mode);
}

}  // namespace moe::cuda
