// Instances of gemv_gate_up and gemv_down for codebook types:
// any architecture from sm_80, cp.async pipeline. Contracts: gemv_gate_up.cuh, gemv_down.cuh.
#include "libmoe/cuda/gemv/gemv_instances.cuh"

namespace moe::cuda {

GemvKernels sm80_gemv_kbit(PackedType type, CodebookMode codebook_mode) {
    return kbit_kernels<AsyncPipeline>(type, codebook_mode);
}

}  // namespace moe::cuda
