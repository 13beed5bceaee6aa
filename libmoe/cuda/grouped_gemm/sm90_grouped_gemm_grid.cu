// The grouped kernel (sm90_grouped_gemm.cuh) for integers, e4m3 and codebook indices under the
// scales of their source.
#include "libmoe/cuda/dequant/grid_grouped.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_grouped_gemm.cuh"

namespace moe::cuda {

GroupedKernels grouped_grid(PackedType type) {
    switch (kind_of(type)) {
        case PackedType::grid_2:
            return grouped_kernels_of<GroupedDequant<PackedType::grid_2>>();
        case PackedType::grid_3:
            return grouped_kernels_of<GroupedDequant<PackedType::grid_3>>();
        case PackedType::grid_4:
            return grouped_kernels_of<GroupedDequant<PackedType::grid_4>>();
        case PackedType::grid_8:
            return grouped_kernels_of<GroupedDequant<PackedType::grid_8>>();
        case PackedType::grid_e4m3:
            return grouped_kernels_of<GroupedDequant<PackedType::grid_e4m3>>();
        case PackedType::grid_codebook:
            return grouped_kernels_of<GroupedDequant<PackedType::grid_codebook>>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
