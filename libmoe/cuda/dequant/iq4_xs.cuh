// iq4_xs of ggml: 4-bit indices of 16 fixed levels; 8 bytes of scales per row and 256 k behind the
// codes of four blocks: a float16 factor, a 6-bit scale per 32 k. Used by the generic and exact
// kernels.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::iq4_xs> : AffineValueDequant<PackedType::iq4_xs> {};

}  // namespace moe::cuda
