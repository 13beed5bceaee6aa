// The grouped kernel (sm90_grouped_gemm.cuh) for ggml's iq2 and iq3.
#include "libmoe/cuda/dequant/iq_grouped.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_grouped_gemm.cuh"

namespace moe::cuda {

GroupedKernels grouped_iq(PackedType type) {
    switch (type) {
        case PackedType::iq2_xxs:
            return grouped_kernels_of<GroupedDequant<PackedType::iq2_xxs>>();
        case PackedType::iq2_xs:
            return grouped_kernels_of<GroupedDequant<PackedType::iq2_xs>>();
        case PackedType::iq3_xxs:
            return grouped_kernels_of<GroupedDequant<PackedType::iq3_xxs>>();
        case PackedType::iq3_s:
            return grouped_kernels_of<GroupedDequant<PackedType::iq3_s>>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
