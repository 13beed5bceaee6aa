// The portable grouped GEMM (sm80_grouped_gemm.cuh) for ggml's iq2 and iq3.
#include "libmoe/cuda/dequant/iq.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_grouped_gemm.cuh"

namespace moe::cuda {

Sm80Kernels sm80_grouped_iq(PackedType type, Operand operand) {
    return sm80_kernels_among<PackedType::iq2_xxs, PackedType::iq2_xs, PackedType::iq3_xxs,
                              PackedType::iq3_s>(type, operand);
}

}  // namespace moe::cuda
