// q4_0 of ggml: 4-bit codes minus 8; a float16 scale per row and 32 k behind the codes of a block.
// Used by the generic and exact kernels.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::q4_0> : AffineValueDequant<PackedType::q4_0> {};

}  // namespace moe::cuda
