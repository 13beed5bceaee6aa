// Instances of gemv_gate_up and gemv_down for weights of ggml: blocks of 32, superblocks of 256, iq2
// and iq3; any architecture from sm_80, cp.async pipeline. Contracts: gemv_gate_up.cuh, gemv_down.cuh.
// They share a file because a file is compressed as one, and they are much alike.
#include "libmoe/cuda/gemv/gemv_instances.cuh"

namespace moe::cuda {

GemvKernels sm80_gemv_gguf(PackedType type, CodebookMode codebook_mode) {
    return gguf_kernels<AsyncPipeline>(type, codebook_mode);
}

GemvKernels sm80_gemv_gguf_k(PackedType type, CodebookMode codebook_mode) {
    return gguf_k_kernels<AsyncPipeline>(type, codebook_mode);
}

GemvKernels sm80_gemv_iq(PackedType type, CodebookMode codebook_mode) {
    return iq_kernels<AsyncPipeline>(type, codebook_mode);
}

}  // namespace moe::cuda
