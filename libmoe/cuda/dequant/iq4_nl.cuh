// iq4_nl of ggml: 4-bit indices of 16 fixed levels; a float16 scale per row and 32 k behind the
// codes of a block. Used by all kernels; gemv multiplies levels as bytes.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"
#if defined(__CUDACC__)
#include "libmoe/cuda/dequant/iq4_levels.cuh"
#endif

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::iq4_nl> : AffineValueDequant<PackedType::iq4_nl> {};

#if defined(__CUDACC__)

template <>
struct GemvDequant<PackedType::iq4_nl> : GemvIq4Levels<GemvBlockBytes<PackedType::iq4_nl>> {};

template <>
struct GroupedDequant<PackedType::iq4_nl> : GroupedBlockCodes<PackedType::iq4_nl, Iq4Codes> {};

#endif

}  // namespace moe::cuda
