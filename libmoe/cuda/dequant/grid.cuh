// The grids: codes of 1 to 8 bits, e4m3 bytes or codebook indices under a scale, and perhaps a zero
// point, for a row and a group of any multiple of 16 columns. Records of scales and zero points
// stand before the blocks that they serve (packed/layout.hpp). Used by the exact kernels, and by
// the portable grouped GEMM for codes of 1, 5, 6 and 7 bits and codebooks; grid_gemv.cuh and
// grid_grouped.cuh have what the others take.
#pragma once

#include "libmoe/cuda/dequant/e4m3.cuh"
#include "libmoe/packed/grid.hpp"

namespace moe::cuda {

// The scales of rows g and g + 8 for some columns of one group, and the codes that are zero.
struct GridRows {
    float scale[2];
    float zero[2];
};

MOE_HOST_DEVICE inline FloatPair grid_scales(PackedType type, const std::byte* record, int32_t g) {
    uint32_t bits[2];
    switch (grid_scale_of(type)) {
        case GridScale::f16:
            load_words<1>(record + 4 * g, bits);
            return pair_of_f16(bits[0]);
        case GridScale::bf16:
            load_words<1>(record + 4 * g, bits);
            return pair_of_bf16(bits[0]);
        case GridScale::e8m0:
            return {e8m0_to_f32(load<uint8_t>(record + 2 * g)),
                    e8m0_to_f32(load<uint8_t>(record + 2 * g + 1))};
        case GridScale::e4m3:
            return {e4m3_to_f32(load<uint8_t>(record + 2 * g)),
                    e4m3_to_f32(load<uint8_t>(record + 2 * g + 1))};
        default:
            load_words<2>(record + 8 * g, bits);
            return {std::bit_cast<float>(bits[0]), std::bit_cast<float>(bits[1])};
    }
}

MOE_HOST_DEVICE inline FloatPair grid_zeros(PackedType type, const std::byte* record, int32_t g) {
    const GridZero rule = grid_zero_of(type);
    const auto middle = static_cast<float>(1 << (code_bits(type) - 1));
    if (rule == GridZero::middle) return {middle, middle};
    const std::byte* zeros = record + 16 * grid_scale_bytes(type);
    const uint32_t more = rule == GridZero::packed_minus_one ? 1 : 0;
    if (code_bits(type) <= 4) {
        const uint32_t both = load<uint8_t>(zeros + g);
        return {static_cast<float>((both & 15) + more), static_cast<float>((both >> 4) + more)};
    }
    const uint32_t both = load<uint16_t>(zeros + 2 * g);
    return {static_cast<float>((both & 255) + more), static_cast<float>((both >> 8) + more)};
}

// Not inlined on a GPU: the types of scales and zero points are known at run time alone, and
// kernels load them in many places.
#if defined(__CUDACC__)
__noinline__
#endif
    MOE_HOST_DEVICE inline GridRows
    grid_rows(PackedType type, const std::byte* records, int32_t g, int32_t column) {
    const std::byte* record = records + grid_record(type, column);
    const FloatPair scales = grid_scales(type, record, g);
    const FloatPair zeros = grid_zeros(type, record, g);
    return {{scales.low, scales.high}, {zeros.low, zeros.high}};
}

template <PackedType kind>
requires(is_grid(kind)) struct ValueDequant<kind> {
    static constexpr int bits = code_bits(kind);
    struct Words {
        uint32_t code[bits];
        GridRows rows;
    };

    // The scales are the records of the block's unit.
    static MOE_HOST_DEVICE Words load(PackedType type, const std::byte* codes,
                                      const std::byte* records, int32_t lane, int64_t) {
        Words words;
        load_code_words(codes, lane, words.code);
        words.rows = grid_rows(type, records, lane / 4, 16 * (lane % 4));
        return words;
    }
    static MOE_HOST_DEVICE FloatPair pair(const Words& words, const float* codebook, int step,
                                          int reg) {
        const int half = reg & 1;
        const float scale = words.rows.scale[half];
        const uint32_t two = bits == 8 ? words.code[2 * step + reg / 2] >> 16 * half
                                       : code_pair<bits>(words.code, step, reg);
        const FloatPair pair = unscaled(two, words.rows.zero[half], codebook + 32 * half);
        return {pair.low * scale, pair.high * scale};
    }

  private:
    // Codes of 8 bits follow each other; others are in the halves of the word.
    static MOE_HOST_DEVICE FloatPair unscaled(uint32_t two, float zero, const float* values) {
        const uint32_t low = two & 0xFFu, high = bits == 8 ? two >> 8 & 0xFFu : two >> 16;
        if constexpr (kind == PackedType::grid_e4m3)
            return e4m3_pair(two);
        else if constexpr (kind == PackedType::grid_codebook)
            return {values[low], values[high]};
        else
            return {byte_level(low, zero), byte_level(high, zero)};
    }
};

}  // namespace moe::cuda
