// The portable grouped GEMM (sm80_grouped_gemm.cuh) for integers of 1 to 4 bits and codebook
// indices under the scales of their source.
#include "libmoe/cuda/dequant/grid.cuh"
#include "libmoe/cuda/dequant/grid_grouped.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_grouped_gemm.cuh"

namespace moe::cuda {

Sm80Kernels sm80_grouped_int_low(PackedType type, Operand operand) {
    return sm80_kernels_among<PackedType::grid_1, PackedType::grid_2, PackedType::grid_3,
                              PackedType::grid_4, PackedType::grid_codebook>(type, operand);
}

}  // namespace moe::cuda
