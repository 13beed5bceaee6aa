// The grouped kernel (sm90_grouped_gemm.cuh) for eight-bit weights.
#include "libmoe/cuda/dequant/e4m3.cuh"
#include "libmoe/cuda/dequant/q8_0.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_grouped_gemm.cuh"

namespace moe::cuda {

GroupedKernels grouped_8bit(PackedType type) {
    switch (type) {
        case PackedType::e4m3:
            return grouped_kernels_of<GroupedDequant<PackedType::e4m3>>();
        case PackedType::q8_0:
            return grouped_kernels_of<GroupedDequant<PackedType::q8_0>>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
