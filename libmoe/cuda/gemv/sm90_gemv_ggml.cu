// Instances of gemv_gate_up and gemv_down for weights of ggml: blocks of 32, superblocks of 256, iq2
// and iq3; sm_90, bulk copy pipeline. Contracts: gemv_gate_up.cuh, gemv_down.cuh.
// They share a file because a file is compressed as one, and they are much alike.
#include "libmoe/cuda/gemv/gemv_instances.cuh"

namespace moe::cuda {

GemvKernels sm90_gemv_gguf(PackedType type, CodebookMode codebook_mode) {
    return gguf_kernels<BulkPipeline>(type, codebook_mode);
}

GemvKernels sm90_gemv_gguf_k(PackedType type, CodebookMode codebook_mode) {
    return gguf_k_kernels<BulkPipeline>(type, codebook_mode);
}

GemvKernels sm90_gemv_iq(PackedType type, CodebookMode codebook_mode) {
    return iq_kernels<BulkPipeline>(type, codebook_mode);
}

}  // namespace moe::cuda
