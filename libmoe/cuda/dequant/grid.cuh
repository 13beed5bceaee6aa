// The grids: codes of 1 to 8 bits, e4m3 bytes or codebook indices under a scale, and perhaps a zero
// point, for a row and a group of any multiple of 16 columns. A tile begins with a record of scales
// and zero points per group (packed/layout.hpp). Used by the generic and exact kernels; types with
// a table of columns are read value by value (packed_value.hpp).
#pragma once

#include "libmoe/cuda/dequant/value_blocks.hpp"
#include "libmoe/packed/grid.hpp"

namespace moe::cuda {

template <PackedType kind>
requires(is_grid(kind)) struct ValueDequant<kind> {
    static constexpr int bits = code_bits(kind);
    struct Words {
        uint32_t code[bits];
        GridFactor factor[2];  // of rows g and g + 8
    };

    // The scales are those of the tile.
    template <int steps = 4>
    static MOE_HOST_DEVICE Words load(PackedType type, const std::byte* codes,
                                      const std::byte* tile, int32_t lane, int64_t k0) {
        Words words;
        load_code_words<steps>(codes, lane, words.code);
        const int64_t column = k0 + 4 * steps * (lane % 4);
        MOE_UNROLL
        for (int half = 0; half < 2; ++half)
            words.factor[half] = grid_factor(type, tile, lane / 4 + 8 * half, column, nullptr);
        return words;
    }
    static MOE_HOST_DEVICE FloatPair pair(const Words& words, const float* codebook, int step,
                                          int reg) {
        const GridFactor& factor = words.factor[reg & 1];
        const float* values = codebook + 32 * (reg & 1);
        const uint32_t two = bits == 8 ? words.code[2 * step + reg / 2] >> 16 * (reg & 1)
                                       : code_pair<bits>(words.code, step, reg);
        const uint32_t high = bits == 8 ? two >> 8 & 0xFFu : two >> 16;
        return {grid_value(kind, factor, two & 0xFFu, values),
                grid_value(kind, factor, high, values)};
    }
};

}  // namespace moe::cuda
