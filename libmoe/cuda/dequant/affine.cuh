// Building block of ggml's types with codes of 2 to 6 bits: weight = scale * level - minimum, the
// level a function of the code, one scale and one minimum for a lane's 16 columns of a row. The
// formulas are in libmoe/weights/ggml_scales.hpp. Host and device.
#pragma once

#include "libmoe/cuda/dequant/value_blocks.hpp"
#include "libmoe/packed/ggml_scales.hpp"

namespace moe::cuda {

template <PackedType type>
struct AffineValueDequant {
    static constexpr int bits = code_bits(type);
    struct Words {
        uint32_t code[bits];
        moe::Affine affine[2];  // of rows g and g + 8
    };

    static MOE_HOST_DEVICE Words load(PackedType, const std::byte* codes, const std::byte* scales,
                                      int32_t lane, int64_t k0) {
        Words words;
        load_code_words(codes, lane, words.code);
        const int32_t t = static_cast<int32_t>(k0 / 16 & 12) + lane % 4;
        MOE_UNROLL
        for (int half = 0; half < 2; ++half) {
            const int32_t offset = ggml_scale_offset(type, 4, lane / 4 + 8 * half, 16 * (lane % 4));
            words.affine[half] = affine_of(type, scales + offset, t);
        }
        return words;
    }
    static MOE_HOST_DEVICE FloatPair pair(const Words& words, const float*, int step, int reg) {
        uint32_t two;
        if constexpr (is_row_ordered(type))
            two = code_pair_of_row<bits>(words.code, step, reg);
        else
            two = code_pair<bits>(words.code, step, reg);
        const moe::Affine& affine = words.affine[reg & 1];
        return {value_of_level(affine, level_in_half<0>(two)),
                value_of_level(affine, level_in_half<1>(two))};
    }

  private:
    // `two`: codes in bits 0 and 16.
    template <int half>
    static MOE_HOST_DEVICE float level_in_half(uint32_t two) {
        const uint32_t code = half == 0 ? two & 0xFFu : two >> 16;
        if constexpr (type == PackedType::iq4_xs || type == PackedType::iq4_nl)
            return byte_level(static_cast<uint32_t>(iq4_level(code) + 128), 128.0f);
        else
            return byte_level(code, static_cast<float>(-level_of(type, 0)));
    }
    static MOE_HOST_DEVICE float value_of_level(const moe::Affine& affine, float level) {
        return affine.scale * level - affine.minimum;
    }
};

}  // namespace moe::cuda
