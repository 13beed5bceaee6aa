// Instances of gemv_gate_up and gemv_down for nvfp4 and mxfp4 weights:
// sm_90, bulk copy pipeline. Contracts: gemv_gate_up.cuh, gemv_down.cuh.
#include "libmoe/cuda/gemv/gemv_instances.cuh"

namespace moe::cuda {

GemvKernels sm90_gemv_fp4(PackedType type, CodebookMode codebook_mode) {
    return fp4_kernels<BulkPipeline>(type, codebook_mode);
}

}  // namespace moe::cuda
