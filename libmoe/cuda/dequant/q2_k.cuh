// q2_k of ggml: 2-bit codes; 20 bytes of scales per row and 256 k behind the codes of four blocks:
// a 4-bit scale and minimum per 16 k, float16 factors of both. Used by the generic and exact
// kernels.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::q2_k> : AffineValueDequant<PackedType::q2_k> {};

}  // namespace moe::cuda
