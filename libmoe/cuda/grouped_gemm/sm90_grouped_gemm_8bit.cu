// The grouped kernel (sm90_grouped_gemm.cuh) for eight-bit weights.
#include "libmoe/cuda/grouped_gemm/sm90_grouped_gemm.cuh"

namespace moe::cuda {

GroupedKernels grouped_8bit(PackedType type) {
    switch (type) {
        case PackedType::e4m3:
            return grouped_kernels_of<GroupedE4m3>();
        case PackedType::q8_0:
            return grouped_kernels_of<GroupedQ8_0>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
