// The one-token kernels of Q8_0, Q4_K and Q6_K, sm_90. Contracts: gemv_gate_up.cuh,
// gemv_down.cuh.
#include "libmoe/cuda/gemv/gemv_instances.cuh"

namespace moe::cuda {

GemvKernels sm90_gemv_gguf(PackedType type, CodebookMode codebook_mode) {
    return gguf_kernels<BulkPipeline>(type, codebook_mode);
}

}  // namespace moe::cuda
