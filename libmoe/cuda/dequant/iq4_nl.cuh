// iq4_nl of ggml: 4-bit indices of 16 fixed levels; a float16 scale per row and 32 k behind the
// codes of a block. Used by the generic and exact kernels.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::iq4_nl> : AffineValueDequant<PackedType::iq4_nl> {};

}  // namespace moe::cuda
