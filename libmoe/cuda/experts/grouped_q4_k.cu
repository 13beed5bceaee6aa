// The grouped kernel (grouped.cuh) for q4_k weights.
#include "libmoe/cuda/experts/grouped.cuh"

namespace moe::cuda {

GroupedKernel grouped_q4_k(PackedType type) {
    switch (type) {
        case PackedType::q4_k:
            return grouped_kernel_of<FragmentQ4k>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
