// The grouped kernel (sm90_grouped_gemm.cuh) with float16 operands, for tokens in float16: codes of
// a codebook with scale bytes, and ggml's types.
#include "libmoe/cuda/dequant/kbit.cuh"
#include "libmoe/cuda/dequant/q4_k.cuh"
#include "libmoe/cuda/dequant/q6_k.cuh"
#include "libmoe/cuda/dequant/q8_0.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_grouped_gemm.cuh"

namespace moe::cuda {

GroupedKernels grouped_in_f16_codes(PackedType type) {
    switch (type) {
        case PackedType::kbit2:
            return grouped_kernels_of<InF16<GroupedDequant<PackedType::kbit2>>>();
        case PackedType::kbit3:
            return grouped_kernels_of<InF16<GroupedDequant<PackedType::kbit3>>>();
        case PackedType::kbit4:
            return grouped_kernels_of<InF16<GroupedDequant<PackedType::kbit4>>>();
        case PackedType::kbit5:
            return grouped_kernels_of<InF16<GroupedDequant<PackedType::kbit5>>>();
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
