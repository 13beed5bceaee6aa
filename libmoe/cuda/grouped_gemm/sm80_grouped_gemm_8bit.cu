// The portable grouped GEMM (sm80_grouped_gemm.cuh) for weights of 8 bits with one scale for 32
// columns.
#include "libmoe/cuda/dequant/e4m3.cuh"
#include "libmoe/cuda/dequant/q8_0.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_grouped_gemm.cuh"

namespace moe::cuda {

Sm80Kernels sm80_grouped_8bit(PackedType type, Operand operand) {
    return sm80_kernels_among<PackedType::e4m3, PackedType::q8_0>(type, operand);
}

}  // namespace moe::cuda
