// The grids: codes of 1 to 8 bits, e4m3 bytes or codebook indices under a scale, and perhaps a zero
// point, for a row and a group of any multiple of 16 columns. A tile begins with a record of scales
// and zero points per group (packed/layout.hpp). Used by the portable and exact kernels; types with
// a table of columns are read value by value (packed_value.hpp).
#pragma once

#include "libmoe/cuda/dequant/value_blocks.hpp"
#include "libmoe/packed/grid.hpp"

namespace moe::cuda {

// The scale of a row's columns, and the code that is zero, as floats.
struct GridRow {
    float scale;
    float zero;
};

// Not inlined on a GPU: the types of scales and zero points are known at run time alone, and
// kernels load them in many places.
#if defined(__CUDACC__)
__noinline__
#endif
    MOE_HOST_DEVICE inline GridRow
    grid_row(PackedType type, const std::byte* tile, int32_t row, int64_t column) {
    const GridFactor factor = grid_factor(type, tile, row, column, nullptr);
    return {factor.scale, static_cast<float>(factor.zero)};
}

template <PackedType kind>
requires(is_grid(kind)) struct ValueDequant<kind> {
    static constexpr int bits = code_bits(kind);
    struct Words {
        uint32_t code[bits];
        GridRow row[2];  // rows g and g + 8
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
            words.row[half] = grid_row(type, tile, lane / 4 + 8 * half, column);
        return words;
    }
    static MOE_HOST_DEVICE FloatPair pair(const Words& words, const float* codebook, int step,
                                          int reg) {
        const GridRow& row = words.row[reg & 1];
        const float* values = codebook + 32 * (reg & 1);
        const uint32_t two = bits == 8 ? words.code[2 * step + reg / 2] >> 16 * (reg & 1)
                                       : code_pair<bits>(words.code, step, reg);
        const uint32_t high = bits == 8 ? two >> 8 & 0xFFu : two >> 16;
        return {value(row, two & 0xFFu, values), value(row, high, values)};
    }

  private:
    static MOE_HOST_DEVICE float value(const GridRow& row, uint32_t code, const float* values) {
        if constexpr (kind == PackedType::grid_e4m3)
            return e4m3_to_f32(static_cast<uint8_t>(code)) * row.scale;
        else if constexpr (kind == PackedType::grid_codebook)
            return values[code] * row.scale;
        else
            return byte_level(code, row.zero) * row.scale;
    }
};

}  // namespace moe::cuda
