// The grouped kernel (grouped.cuh) for codebook weights with scales in E4M4.
#include "libmoe/cuda/experts/grouped.cuh"

namespace moe::cuda {

GroupedKernels grouped_kbit(PackedType type) {
    switch (type) {
        case PackedType::kbit2:
            return grouped_kernels_of<FragmentKbit<PackedType::kbit2, 2>>();
        case PackedType::kbit3:
            return grouped_kernels_of<FragmentKbit<PackedType::kbit3, 3>>();
        case PackedType::kbit4:
            return grouped_kernels_of<FragmentKbit<PackedType::kbit4, 4>>();
        case PackedType::kbit5:
            return grouped_kernels_of<FragmentKbit<PackedType::kbit5, 5>>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
