// Instances of gemv_gate_up and gemv_down for the grids, nvfp4 and mxfp4: any architecture from
// sm_80, cp.async pipeline. Contracts: gemv_gate_up.cuh, gemv_down.cuh. They share a file because a
// file is compressed as one, and they are much alike.
#include "libmoe/cuda/gemv/gemv_instances.cuh"

namespace moe::cuda {

GemvKernels sm80_gemv_fp4(PackedType type, CodebookMode codebook_mode) {
    return fp4_kernels<AsyncPipeline>(type, codebook_mode);
}

GemvKernels sm80_gemv_grid(PackedType type, CodebookMode codebook_mode) {
    return grid_kernels<AsyncPipeline>(type, codebook_mode);
}

}  // namespace moe::cuda
