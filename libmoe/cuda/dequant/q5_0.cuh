// q5_0 of ggml: 5-bit codes minus 16; a float16 scale per row and 32 k behind the codes of a block.
// Used by all kernels; gemv multiplies codes as bytes.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"
#if defined(__CUDACC__)
#include "libmoe/cuda/dequant/code_bytes.cuh"
#include "libmoe/cuda/dequant/grouped_codes.cuh"
#endif

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::q5_0> : AffineValueDequant<PackedType::q5_0> {};

#if defined(__CUDACC__)

template <>
struct GemvDequant<PackedType::q5_0> : GemvBlockBytes<PackedType::q5_0> {};

template <>
struct GroupedDequant<PackedType::q5_0> : GroupedBlockCodes<PackedType::q5_0> {};

#endif

}  // namespace moe::cuda
