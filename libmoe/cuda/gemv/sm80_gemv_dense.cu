// The one-token kernels of bfloat16, float16 and FP8, any architecture. Contracts:
// gemv_gate_up.cuh, gemv_down.cuh.
#include "libmoe/cuda/gemv/gemv_instances.cuh"

namespace moe::cuda {

GemvKernels sm80_gemv_dense(PackedType type, CodebookMode codebook_mode) {
    return plain_kernels<AsyncPipeline>(type, codebook_mode);
}

}  // namespace moe::cuda
