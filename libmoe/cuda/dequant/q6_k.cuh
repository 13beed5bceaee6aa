// q6_k of ggml: 6-bit codes minus 32; 18 bytes of scales per row and 256 k behind the codes of four
// blocks: a signed byte per 16 k, their float16 factor. Used by the generic and exact kernels.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::q6_k> : AffineValueDequant<PackedType::q6_k> {};

}  // namespace moe::cuda
