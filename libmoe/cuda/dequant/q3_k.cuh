// q3_k of ggml: 3-bit codes minus 4; 14 bytes of scales per row and 256 k behind the codes of four
// blocks: a 6-bit scale per 16 k, their float16 factor. Used by the generic and exact kernels.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::q3_k> : AffineValueDequant<PackedType::q3_k> {};

}  // namespace moe::cuda
