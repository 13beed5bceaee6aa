// Instances of gemv_gate_up and gemv_down for bf16, f16 and e4m3 weights:
// any architecture from sm_80, cp.async pipeline. Contracts: gemv_gate_up.cuh, gemv_down.cuh.
#include "libmoe/cuda/gemv/gemv_instances.cuh"

namespace moe::cuda {

GemvKernels sm80_gemv_dense(PackedType type, CodebookMode codebook_mode) {
    return plain_kernels<AsyncPipeline>(type, codebook_mode);
}

}  // namespace moe::cuda
