// The grouped kernel (sm90_grouped_gemm.cuh) for weights of 16 bits, of 8 bits in small blocks, and
// for four-bit floating-point weights. They share a file because a file is compressed as one, and
// they are much alike.
#include "libmoe/cuda/dequant/bf16.cuh"
#include "libmoe/cuda/dequant/e4m3.cuh"
#include "libmoe/cuda/dequant/f16.cuh"
#include "libmoe/cuda/dequant/mxfp4.cuh"
#include "libmoe/cuda/dequant/nvfp4.cuh"
#include "libmoe/cuda/dequant/q8_0.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_grouped_gemm.cuh"

namespace moe::cuda {

GroupedKernels grouped_16bit(PackedType type) {
    switch (type) {
        case PackedType::bf16:
            return grouped_kernels_of<GroupedDequant<PackedType::bf16>>();
        case PackedType::f16:
            return grouped_kernels_of<GroupedDequant<PackedType::f16>>();
        default:
            return {};
    }
}

GroupedKernels grouped_8bit(PackedType type) {
    switch (type) {
        case PackedType::e4m3:
            return grouped_kernels_of<GroupedDequant<PackedType::e4m3>>();
        case PackedType::q8_0:
            return grouped_kernels_of<GroupedDequant<PackedType::q8_0>>();
        default:
            return {};
    }
}

GroupedKernels grouped_fp4(PackedType type) {
    switch (type) {
        case PackedType::nvfp4:
            return grouped_kernels_of<GroupedDequant<PackedType::nvfp4>>();
        case PackedType::mxfp4:
            return grouped_kernels_of<GroupedDequant<PackedType::mxfp4>>();
        default:
            return {};
    }
}

}  // namespace moe::cuda
