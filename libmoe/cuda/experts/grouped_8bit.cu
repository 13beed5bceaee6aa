// The grouped kernel (grouped.cuh) for eight-bit weights.
#include "libmoe/cuda/experts/grouped.cuh"

namespace moe::cuda {

GroupedKernels grouped_8bit(PackedType type) {
    switch (type) {
        case PackedType::e4m3:
            return grouped_kernels_of<FragmentE4m3>();
        case PackedType::q8_0:
            return grouped_kernels_of<FragmentQ8>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
