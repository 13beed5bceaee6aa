// The one-token kernels of bfloat16, float16 and FP8, sm_90. Contracts: gemv_gate_up.cuh,
// gemv_down.cuh.
#include "libmoe/cuda/gemv/gemv_instances.cuh"

namespace moe::cuda {

GemvKernels sm90_gemv_dense(PackedType type, CodebookMode codebook_mode) {
    return plain_kernels<BulkPipeline>(type, codebook_mode);
}

}  // namespace moe::cuda
