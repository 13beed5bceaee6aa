// The portable grouped GEMM (sm80_grouped_gemm.cuh) for kbit weights with E4M4 scales.
#include "libmoe/cuda/dequant/kbit.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_grouped_gemm.cuh"

namespace moe::cuda {

Sm80Kernels sm80_grouped_kbit(PackedType type, Operand operand) {
    return sm80_kernels_among<PackedType::kbit2, PackedType::kbit3, PackedType::kbit4,
                              PackedType::kbit5>(type, operand);
}

}  // namespace moe::cuda
