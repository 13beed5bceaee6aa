// The grouped kernel (sm90_grouped_gemm.cuh) for four-bit floating-point weights.
#include "libmoe/cuda/grouped_gemm/sm90_grouped_gemm.cuh"

namespace moe::cuda {

GroupedKernels grouped_fp4(PackedType type) {
    switch (type) {
        case PackedType::nvfp4:
            return grouped_kernels_of<GroupedNvfp4>();
        case PackedType::mxfp4:
            return grouped_kernels_of<GroupedMxfp4>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
