// The grouped kernel (sm90_grouped_gemm.cuh) for four-bit floating-point weights.
#include "libmoe/cuda/dequant/mxfp4.cuh"
#include "libmoe/cuda/dequant/nvfp4.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_grouped_gemm.cuh"

namespace moe::cuda {

GroupedKernels grouped_fp4(PackedType type) {
    switch (type) {
        case PackedType::nvfp4:
            return grouped_kernels_of<GroupedDequant<PackedType::nvfp4>>();
        case PackedType::mxfp4:
            return grouped_kernels_of<GroupedDequant<PackedType::mxfp4>>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
