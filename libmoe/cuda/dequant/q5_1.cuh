// q5_1 of ggml: 5-bit codes; a float16 scale and a float16 offset, which is added, per row and 32 k
// behind the codes of a block. Used by the generic and exact kernels.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::q5_1> : AffineValueDequant<PackedType::q5_1> {};

}  // namespace moe::cuda
