// The portable grouped GEMM (sm80_grouped_gemm.cuh) for ggml's types with blocks of 32.
#include "libmoe/cuda/dequant/iq4_nl.cuh"
#include "libmoe/cuda/dequant/q4_0.cuh"
#include "libmoe/cuda/dequant/q4_1.cuh"
#include "libmoe/cuda/dequant/q5_0.cuh"
#include "libmoe/cuda/dequant/q5_1.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_grouped_gemm.cuh"

namespace moe::cuda {

Sm80Kernels sm80_grouped_ggml_32(PackedType type, Operand operand) {
    return sm80_kernels_among<PackedType::q4_0, PackedType::q4_1, PackedType::q5_0,
                              PackedType::q5_1, PackedType::iq4_nl>(type, operand);
}

}  // namespace moe::cuda
