// Instances of gemv_gate_up and gemv_down for codebook types:
// sm_90, bulk copy pipeline. Contracts: gemv_gate_up.cuh, gemv_down.cuh.
#include "libmoe/cuda/gemv/gemv_instances.cuh"

namespace moe::cuda {

GemvKernels sm90_gemv_kbit(PackedType type, CodebookMode codebook_mode) {
    return kbit_kernels<BulkPipeline>(type, codebook_mode);
}

}  // namespace moe::cuda
