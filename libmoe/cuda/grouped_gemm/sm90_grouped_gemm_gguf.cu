// The grouped kernel (sm90_grouped_gemm.cuh) for weights of ggml's blocks of 32.
#include "libmoe/cuda/dequant/iq4_nl.cuh"
#include "libmoe/cuda/dequant/q4_0.cuh"
#include "libmoe/cuda/dequant/q4_1.cuh"
#include "libmoe/cuda/dequant/q5_0.cuh"
#include "libmoe/cuda/dequant/q5_1.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_grouped_gemm.cuh"

namespace moe::cuda {

GroupedKernels grouped_gguf(PackedType type) {
    switch (type) {
        case PackedType::q4_0:
            return grouped_kernels_of<GroupedDequant<PackedType::q4_0>>();
        case PackedType::q4_1:
            return grouped_kernels_of<GroupedDequant<PackedType::q4_1>>();
        case PackedType::q5_0:
            return grouped_kernels_of<GroupedDequant<PackedType::q5_0>>();
        case PackedType::q5_1:
            return grouped_kernels_of<GroupedDequant<PackedType::q5_1>>();
        case PackedType::iq4_nl:
            return grouped_kernels_of<Iq4ByTable<GroupedDequant<PackedType::iq4_nl>>>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
