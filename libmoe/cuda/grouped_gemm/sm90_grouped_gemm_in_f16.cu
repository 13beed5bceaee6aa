// The grouped kernel (sm90_grouped_gemm.cuh) with float16 operands, for tokens in float16: weights
// of 16 and 8 bits, of four-bit floating point, integers and codebook indices under the scales of
// their source.
#include "libmoe/cuda/dequant/bf16.cuh"
#include "libmoe/cuda/dequant/e4m3.cuh"
#include "libmoe/cuda/dequant/f16.cuh"
#include "libmoe/cuda/dequant/grid_grouped.cuh"
#include "libmoe/cuda/dequant/mxfp4.cuh"
#include "libmoe/cuda/dequant/nvfp4.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_grouped_gemm.cuh"

namespace moe::cuda {

GroupedKernels grouped_in_f16(PackedType type) {
    switch (kind_of(type)) {
        case PackedType::f16:
            return grouped_kernels_of<InF16<GroupedDequant<PackedType::f16>>>();
        case PackedType::bf16:
            return grouped_kernels_of<InF16<GroupedDequant<PackedType::bf16>>>();
        case PackedType::nvfp4:
            return grouped_kernels_of<InF16<GroupedDequant<PackedType::nvfp4>>>();
        case PackedType::mxfp4:
            return grouped_kernels_of<InF16<GroupedDequant<PackedType::mxfp4>>>();
        case PackedType::e4m3:
            return grouped_kernels_of<InF16<GroupedDequant<PackedType::e4m3>>>();
        case PackedType::grid_4:
            return grouped_kernels_of<InF16<GroupedDequant<PackedType::grid_4>>>();
        case PackedType::grid_8:
            return grouped_kernels_of<InF16<GroupedDequant<PackedType::grid_8>>>();
        case PackedType::grid_codebook:
            return grouped_kernels_of<InF16<GroupedDequant<PackedType::grid_codebook>>>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
