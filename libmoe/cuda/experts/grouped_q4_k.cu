// The grouped kernel (grouped.cuh) for q4_k weights.
#include "libmoe/cuda/experts/grouped.cuh"

namespace moe::cuda {

GroupedKernels grouped_q4_k(PackedType type) {
    switch (type) {
        case PackedType::q4_k:
            return grouped_kernels_of<FragmentQ4k>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
