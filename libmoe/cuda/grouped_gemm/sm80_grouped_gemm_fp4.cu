// The portable grouped GEMM (sm80_grouped_gemm.cuh) for e2m1 weights.
#include "libmoe/cuda/dequant/mxfp4.cuh"
#include "libmoe/cuda/dequant/nvfp4.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_grouped_gemm.cuh"

namespace moe::cuda {

Sm80Kernels sm80_grouped_fp4(PackedType type, Operand operand) {
    return sm80_kernels_among<PackedType::nvfp4, PackedType::mxfp4>(type, operand);
}

}  // namespace moe::cuda
