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
                                      int32_t lane, int64_t block) {
        Words words;
        load_code_words(codes, lane, words.code);
        const int32_t t = 4 * static_cast<int32_t>(block & 3) + lane % 4;
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
        return {affine_value(type, affine, two & 0xFFu), affine_value(type, affine, two >> 16)};
    }
};

}  // namespace moe::cuda
