// q5_1 of ggml: 5-bit codes; a float16 scale and a float16 offset, which is added, per row and 32 k
// behind the codes of a block. Used by all kernels; gemv multiplies codes as bytes.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"
#if defined(__CUDACC__)
#include "libmoe/cuda/dequant/code_bytes.cuh"
#include "libmoe/cuda/dequant/grouped_codes.cuh"
#endif

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::q5_1> : AffineValueDequant<PackedType::q5_1> {};

#if defined(__CUDACC__)

template <>
struct GemvDequant<PackedType::q5_1> : GemvBlockBytes<PackedType::q5_1> {};

template <>
struct GroupedDequant<PackedType::q5_1> : GroupedBlockCodes<PackedType::q5_1> {};

#endif

}  // namespace moe::cuda
