// The portable grouped GEMM (sm80_grouped_gemm.cuh) for weights of 16 bits, e2m1 weights and ggml's
// types with blocks of 32. They share a file because a file is compressed as one, and they are much
// alike.
#include "libmoe/cuda/dequant/bf16.cuh"
#include "libmoe/cuda/dequant/f16.cuh"
#include "libmoe/cuda/dequant/iq4_nl.cuh"
#include "libmoe/cuda/dequant/mxfp4.cuh"
#include "libmoe/cuda/dequant/nvfp4.cuh"
#include "libmoe/cuda/dequant/q4_0.cuh"
#include "libmoe/cuda/dequant/q4_1.cuh"
#include "libmoe/cuda/dequant/q5_0.cuh"
#include "libmoe/cuda/dequant/q5_1.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_grouped_gemm.cuh"

namespace moe::cuda {

Sm80Kernels sm80_grouped_16bit(PackedType type, Operand operand) {
    return sm80_kernels_among<PackedType::bf16, PackedType::f16>(type, operand);
}

Sm80Kernels sm80_grouped_fp4(PackedType type, Operand operand) {
    return sm80_kernels_among<PackedType::nvfp4, PackedType::mxfp4>(type, operand);
}

Sm80Kernels sm80_grouped_ggml_32(PackedType type, Operand operand) {
    return sm80_kernels_among<PackedType::q4_0, PackedType::q4_1, PackedType::q5_0,
                              PackedType::q5_1, PackedType::iq4_nl>(type, operand);
}

}  // namespace moe::cuda
