// The grouped kernel (sm90_grouped_gemm.cuh) for 16-bit weights.
#include "libmoe/cuda/dequant/bf16.cuh"
#include "libmoe/cuda/dequant/f16.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_grouped_gemm.cuh"

namespace moe::cuda {

GroupedKernels grouped_16bit(PackedType type) {
    switch (type) {
        case PackedType::bf16:
            return grouped_kernels_of<GroupedDequant<PackedType::bf16>>();
        case PackedType::f16:
            return grouped_kernels_of<GroupedDequant<PackedType::f16>>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
