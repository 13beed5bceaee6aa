// The grouped kernel (sm90_grouped_gemm.cuh) with float16 operands, for ggml's types.
#include "libmoe/cuda/dequant/q4_k.cuh"
#include "libmoe/cuda/dequant/q6_k.cuh"
#include "libmoe/cuda/dequant/q8_0.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_grouped_gemm.cuh"

namespace moe::cuda {

GroupedKernels grouped_in_f16_gguf(PackedType type) {
    switch (type) {
        case PackedType::q8_0:
            return grouped_kernels_of<InF16<GroupedDequant<PackedType::q8_0>>>();
        case PackedType::q4_k:
            return grouped_kernels_of<InF16<GroupedDequant<PackedType::q4_k>>>();
        case PackedType::q6_k:
            return grouped_kernels_of<InF16<GroupedDequant<PackedType::q6_k>>>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
