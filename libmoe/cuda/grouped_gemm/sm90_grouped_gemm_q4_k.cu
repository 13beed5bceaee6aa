// The grouped kernel (sm90_grouped_gemm.cuh) for q4_k weights.
#include "libmoe/cuda/dequant/q4_k.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_grouped_gemm.cuh"

namespace moe::cuda {

GroupedKernels grouped_q4_k(PackedType type) {
    switch (type) {
        case PackedType::q4_k:
            return grouped_kernels_of<GroupedDequant<PackedType::q4_k>>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
