// q4_0 of ggml: 4-bit codes minus 8; a float16 scale per row and 32 k behind the codes of a block.
// Used by all kernels; gemv multiplies codes as bytes.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"
#if defined(__CUDACC__)
#include "libmoe/cuda/dequant/code_bytes.cuh"
#include "libmoe/cuda/dequant/grouped_codes.cuh"
#endif

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::q4_0> : AffineValueDequant<PackedType::q4_0> {};

#if defined(__CUDACC__)

template <>
struct GemvDequant<PackedType::q4_0> : GemvBlockBytes<PackedType::q4_0> {};

template <>
struct GroupedDequant<PackedType::q4_0> : GroupedBlockCodes<PackedType::q4_0> {};

#endif

}  // namespace moe::cuda
