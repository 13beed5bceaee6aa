// The portable grouped GEMM (sm80_grouped_gemm.cuh) for integers of 1 to 8 bits, e4m3 and codebook
// indices under the scales of their source. They share a file because a file is compressed as one,
// and they are much alike.
#include "libmoe/cuda/dequant/grid.cuh"
#include "libmoe/cuda/dequant/grid_grouped.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_grouped_gemm.cuh"

namespace moe::cuda {

Sm80Kernels sm80_grouped_int_low(PackedType type, Operand operand) {
    return sm80_kernels_among<PackedType::grid_1, PackedType::grid_2, PackedType::grid_3,
                              PackedType::grid_4, PackedType::grid_codebook>(type, operand);
}

Sm80Kernels sm80_grouped_int_high(PackedType type, Operand operand) {
    return sm80_kernels_among<PackedType::grid_5, PackedType::grid_6, PackedType::grid_7,
                              PackedType::grid_8, PackedType::grid_e4m3>(type, operand);
}

}  // namespace moe::cuda
