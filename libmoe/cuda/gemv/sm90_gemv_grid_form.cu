// Instances of gemv_gate_up and gemv_down for the grids of most files, by the type of their scales:
// sm_90, bulk copy pipeline. Contracts: gemv_gate_up.cuh, gemv_down.cuh.
#include "libmoe/cuda/gemv/gemv_instances.cuh"

namespace moe::cuda {

GemvKernels sm90_gemv_grid_form(PackedType type, CodebookMode codebook_mode) {
    return grid_form_kernels<BulkPipeline>(type, codebook_mode);
}

}  // namespace moe::cuda
