// The portable grouped GEMM (sm80_grouped_gemm.cuh) for kbit weights.
#include "libmoe/cuda/dequant/kbit.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_grouped_gemm.cuh"

namespace moe::cuda {

Sm80Kernels sm80_grouped_kbit(PackedType type, Operand operand) {
    return sm80_kernels_among<PackedType::kbit2, PackedType::kbit3, PackedType::kbit4,
                              PackedType::kbit5, PackedType::kbit2_f32, PackedType::kbit3_f32,
                              PackedType::kbit4_f32, PackedType::kbit5_f32>(type, operand);
}

}  // namespace moe::cuda
