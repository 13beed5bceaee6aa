// Instances of gemv_gate_up and gemv_down for the grids, and for those of most files by the type of
// their scales: sm_90, bulk copy pipeline. Contracts: gemv_gate_up.cuh, gemv_down.cuh. They share a
// file because a file is compressed as one, and they are much alike.
#include "libmoe/cuda/gemv/gemv_instances.cuh"

namespace moe::cuda {

GemvKernels sm90_gemv_grid(PackedType type, CodebookMode codebook_mode) {
    return grid_kernels<BulkPipeline>(type, codebook_mode);
}

GemvKernels sm90_gemv_grid_form(PackedType type, CodebookMode codebook_mode) {
    return grid_form_kernels<BulkPipeline>(type, codebook_mode);
}

}  // namespace moe::cuda
