// Instances of gemv_gate_up and gemv_down for weights of ggml's blocks of 32:
// sm_90, bulk copy pipeline. Contracts: gemv_gate_up.cuh, gemv_down.cuh.
#include "libmoe/cuda/gemv/gemv_instances.cuh"

namespace moe::cuda {

GemvKernels sm90_gemv_gguf(PackedType type, CodebookMode codebook_mode) {
    return gguf_kernels<BulkPipeline>(type, codebook_mode);
}

}  // namespace moe::cuda
