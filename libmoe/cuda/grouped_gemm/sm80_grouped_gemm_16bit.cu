// The portable grouped GEMM (sm80_grouped_gemm.cuh) for 16-bit weights.
#include "libmoe/cuda/dequant/bf16.cuh"
#include "libmoe/cuda/dequant/f16.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_grouped_gemm.cuh"

namespace moe::cuda {

Sm80Kernels sm80_grouped_16bit(PackedType type, Operand operand) {
    return sm80_kernels_among<PackedType::bf16, PackedType::f16>(type, operand);
}

}  // namespace moe::cuda
