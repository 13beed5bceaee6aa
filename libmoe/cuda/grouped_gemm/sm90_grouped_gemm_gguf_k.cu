// The grouped kernel (sm90_grouped_gemm.cuh) for weights of ggml's superblocks of 256.
#include "libmoe/cuda/dequant/iq4_xs.cuh"
#include "libmoe/cuda/dequant/q2_k.cuh"
#include "libmoe/cuda/dequant/q3_k.cuh"
#include "libmoe/cuda/dequant/q4_k.cuh"
#include "libmoe/cuda/dequant/q5_k.cuh"
#include "libmoe/cuda/dequant/q6_k.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_grouped_gemm.cuh"

namespace moe::cuda {

GroupedKernels grouped_gguf_k(PackedType type) {
    switch (type) {
        case PackedType::q4_k:
            return grouped_kernels_of<GroupedDequant<PackedType::q4_k>>();
        case PackedType::q5_k:
            return grouped_kernels_of<GroupedDequant<PackedType::q5_k>>();
        case PackedType::q6_k:
            return grouped_kernels_of<GroupedDequant<PackedType::q6_k>>();
        case PackedType::q3_k:
            return grouped_kernels_of<GroupedDequant<PackedType::q3_k>>();
        case PackedType::q2_k:
            return grouped_kernels_of<GroupedDequant<PackedType::q2_k>>();
        case PackedType::iq4_xs:
            return grouped_kernels_of<Iq4ByTable<GroupedDequant<PackedType::iq4_xs>>>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
