// The portable grouped GEMM (sm80_grouped_gemm.cuh) for integers of 5 to 8 bits and e4m3 under the
// scales of their source.
#include "libmoe/cuda/dequant/grid.cuh"
#include "libmoe/cuda/dequant/grid_grouped.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_grouped_gemm.cuh"

namespace moe::cuda {

Sm80Kernels sm80_grouped_int_high(PackedType type, Operand operand) {
    return sm80_kernels_among<PackedType::grid_5, PackedType::grid_6, PackedType::grid_7,
                              PackedType::grid_8, PackedType::grid_e4m3>(type, operand);
}

}  // namespace moe::cuda
