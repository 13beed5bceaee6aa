// The grouped kernel (grouped.cuh) for four-bit floating-point weights.
#include "libmoe/cuda/experts/grouped.cuh"

namespace moe::cuda {

GroupedKernels grouped_fp4(PackedType type) {
    switch (type) {
        case PackedType::nvfp4:
            return grouped_kernels_of<FragmentNvfp4>();
        case PackedType::mxfp4:
            return grouped_kernels_of<FragmentMxfp4>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
