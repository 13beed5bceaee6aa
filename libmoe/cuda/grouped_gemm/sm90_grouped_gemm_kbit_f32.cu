// The grouped kernel (sm90_grouped_gemm.cuh) for codebook weights with scales in float32.
#include "libmoe/cuda/dequant/kbit.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_grouped_gemm.cuh"

namespace moe::cuda {

GroupedKernels grouped_kbit_f32(PackedType type) {
    switch (type) {
        case PackedType::kbit2_f32:
            return grouped_kernels_of<GroupedDequant<PackedType::kbit2_f32>>();
        case PackedType::kbit3_f32:
            return grouped_kernels_of<GroupedDequant<PackedType::kbit3_f32>>();
        case PackedType::kbit4_f32:
            return grouped_kernels_of<GroupedDequant<PackedType::kbit4_f32>>();
        case PackedType::kbit5_f32:
            return grouped_kernels_of<GroupedDequant<PackedType::kbit5_f32>>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
