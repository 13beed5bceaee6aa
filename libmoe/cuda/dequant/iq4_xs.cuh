// iq4_xs of ggml: 4-bit indices of 16 fixed levels; 8 bytes of scales per row and 256 k behind the
// codes of four blocks: a float16 factor, a 6-bit scale per 32 k. Used by all kernels; gemv
// multiplies levels as bytes.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"
#if defined(__CUDACC__)
#include "libmoe/cuda/dequant/iq4_levels.cuh"
#include "libmoe/cuda/dequant/six_bit_scales.cuh"
#endif

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::iq4_xs> : AffineValueDequant<PackedType::iq4_xs> {};

#if defined(__CUDACC__)

struct Iq4XsRowScales {
    static constexpr int group = 32;
    static constexpr uint32_t second_row = 8 * ggml_scale_bytes(PackedType::iq4_xs);
    uint32_t codes[2];  // of the first two blocks, of the last two; rows g and g + 8 in half-words
    float factor[2];

    Iq4XsRowScales() = default;
    // Bytes 2 and 3 of a row have the upper bits of its scales, bytes 4 to 7 the lower ones.
    __device__ __forceinline__ Iq4XsRowScales(uint32_t row, uint32_t t) {
        const uint2 first = load_shared_8(row), second = load_shared_8(row + second_row);
        factor[0] = f16_value(first.x);
        factor[1] = f16_value(second.x);
        const uint32_t high[2] = {first.x >> 2 * t, second.x >> 2 * t};
        const uint32_t low[2] = {first.y >> 4 * t, second.y >> 4 * t};
        codes[0] = join_six_bits(permute_bytes(low[0], low[1], 0x5410),
                                 permute_bytes(high[0], high[1], 0x7632));
        codes[1] = join_six_bits(permute_bytes(low[0], low[1], 0x7632),
                                 permute_bytes(high[0], high[1], 0x0703));
    }
    __device__ __forceinline__ RowScales of_block(int block) const {
        const float2 scale = six_bits(block & 2 ? codes[1] : codes[0], 32);
        return {factor[0] * scale.x, factor[1] * scale.y};
    }
};

template <>
struct GemvDequant<PackedType::iq4_xs>
    : GemvIq4Levels<GemvSuperblockBytes<PackedType::iq4_xs, Iq4XsRowScales>> {};

template <>
struct GroupedDequant<PackedType::iq4_xs>
    : GroupedSuperblockCodes<PackedType::iq4_xs,
                             SuperblockKeptScales<PackedType::iq4_xs, Iq4XsRowScales>, Iq4Codes> {};

#endif

}  // namespace moe::cuda
