// The grouped kernel (sm90_grouped_gemm.cuh) for codebook weights.
#include "libmoe/cuda/dequant/kbit.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_grouped_gemm.cuh"

namespace moe::cuda {

GroupedKernels grouped_kbit(PackedType type) {
    switch (type) {
        case PackedType::kbit2:
            return grouped_kernels_of<GroupedDequant<PackedType::kbit2>>();
        case PackedType::kbit3:
            return grouped_kernels_of<GroupedDequant<PackedType::kbit3>>();
        case PackedType::kbit4:
            return grouped_kernels_of<GroupedDequant<PackedType::kbit4>>();
        case PackedType::kbit5:
            return grouped_kernels_of<GroupedDequant<PackedType::kbit5>>();
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
