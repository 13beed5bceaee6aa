// The portable grouped GEMM (sm80_grouped_gemm.cuh) for ggml's K-quants and iq4_xs.
#include "libmoe/cuda/dequant/iq4_xs.cuh"
#include "libmoe/cuda/dequant/q2_k.cuh"
#include "libmoe/cuda/dequant/q3_k.cuh"
#include "libmoe/cuda/dequant/q4_k.cuh"
#include "libmoe/cuda/dequant/q5_k.cuh"
#include "libmoe/cuda/dequant/q6_k.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_grouped_gemm.cuh"

namespace moe::cuda {

Sm80Kernels sm80_grouped_k_quants(PackedType type, Operand operand) {
    return sm80_kernels_among<PackedType::q2_k, PackedType::q3_k, PackedType::q4_k,
                              PackedType::q5_k, PackedType::q6_k, PackedType::iq4_xs>(type,
                                                                                      operand);
}

}  // namespace moe::cuda
