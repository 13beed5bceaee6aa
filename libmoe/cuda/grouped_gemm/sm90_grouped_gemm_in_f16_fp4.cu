// The grouped kernel (sm90_grouped_gemm.cuh) with float16 operands, for tokens in float16: four-bit
// floating-point weights.
#include "libmoe/cuda/dequant/mxfp4.cuh"
#include "libmoe/cuda/dequant/nvfp4.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_grouped_gemm.cuh"

namespace moe::cuda {

GroupedKernels grouped_in_f16_fp4(PackedType type) {
    switch (type) {
        case PackedType::nvfp4:
            return grouped_kernels_of<InF16<GroupedDequant<PackedType::nvfp4>>>();
        case PackedType::mxfp4:
            return grouped_kernels_of<InF16<GroupedDequant<PackedType::mxfp4>>>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
