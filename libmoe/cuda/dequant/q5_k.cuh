// q5_k of ggml: 5-bit codes; 16 bytes of scales per row and 256 k behind the codes of four blocks,
// as those of q4_k: a 6-bit scale and minimum per 32 k, float16 factors of both. Used by all
// kernels; gemv multiplies codes as bytes.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"
#if defined(__CUDACC__)
#include "libmoe/cuda/dequant/code_bytes.cuh"
#include "libmoe/cuda/dequant/grouped_codes.cuh"
#include "libmoe/cuda/dequant/q4_k_scales.cuh"
#endif

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::q5_k> : AffineValueDequant<PackedType::q5_k> {};

#if defined(__CUDACC__)

template <>
struct GemvDequant<PackedType::q5_k> : GemvSuperblockBytes<PackedType::q5_k, Q4kRowScales> {};

template <>
struct GroupedDequant<PackedType::q5_k> : GroupedSuperblockCodes<PackedType::q5_k, Q4kKeptScales> {
};

#endif

}  // namespace moe::cuda
