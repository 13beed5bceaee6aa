// q5_k of ggml: 5-bit codes; 16 bytes of scales per row and 256 k behind the codes of four blocks,
// as those of q4_k: a 6-bit scale and minimum per 32 k, float16 factors of both. Used by the
// generic and exact kernels.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::q5_k> : AffineValueDequant<PackedType::q5_k> {};

}  // namespace moe::cuda
