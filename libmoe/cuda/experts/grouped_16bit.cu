// The grouped kernel (grouped.cuh) for 16-bit weights.
#include "libmoe/cuda/experts/grouped.cuh"

namespace moe::cuda {

GroupedKernels grouped_16bit(PackedType type) {
    switch (type) {
        case PackedType::bf16:
            return grouped_kernels_of<FragmentBf16>();
        case PackedType::f16:
            return grouped_kernels_of<FragmentF16>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
