// The grouped kernel (sm90_grouped_gemm.cuh) for codebook weights with scales in E4M4.
#include "libmoe/cuda/grouped_gemm/sm90_grouped_gemm.cuh"

namespace moe::cuda {

GroupedKernels grouped_kbit(PackedType type) {
    switch (type) {
        case PackedType::kbit2:
            return grouped_kernels_of<GroupedKbit<PackedType::kbit2, 2>>();
        case PackedType::kbit3:
            return grouped_kernels_of<GroupedKbit<PackedType::kbit3, 3>>();
        case PackedType::kbit4:
            return grouped_kernels_of<GroupedKbit<PackedType::kbit4, 4>>();
        case PackedType::kbit5:
            return grouped_kernels_of<GroupedKbit<PackedType::kbit5, 5>>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
