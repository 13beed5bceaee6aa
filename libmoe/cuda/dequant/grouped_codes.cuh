// Building blocks of ggml's types with codes of 2 to 6 bits in the grouped GEMM: a code becomes a
// float32 by a byte permutation, is scaled there, and rounded to an operand once. Device only.
#pragma once

#include <type_traits>

#include "libmoe/cuda/dequant/grouped_blocks.cuh"
#include "libmoe/cuda/dequant/row_scales.cuh"
#include "libmoe/cuda/dequant/shared_codes.cuh"

namespace moe::cuda {

// 128 + byte i of `bytes`, which is below 128.
__device__ __forceinline__ float byte_over_128(uint32_t bytes, int i) {
    return __uint_as_float(permute_bytes(bytes, __float_as_uint(128.0f), 0x7044 + 0x100 * i));
}

// Four levels of a row as float32 numbers more than they are: levels(codes, step, row) has them as
// bytes, value(bytes, i) makes number i.
template <PackedType packed>
struct CodeLevels {
    static constexpr float excess = 128.0f - level_of(packed, 0);
    template <int bits>
    static __device__ __forceinline__ uint32_t levels(const uint32_t (&codes)[bits], int step,
                                                      int row) {
        return codes_of_row<bits>(codes, step, row, 0);
    }
    static __device__ __forceinline__ float value(uint32_t bytes, int i) {
        return byte_over_128(bytes, i);
    }
};

template <PackedType packed, class Levels = CodeLevels<packed>>
struct GroupedCodes : GroupedDequantBase<packed> {
    static constexpr int bits = code_bits(packed);
    struct Words {
        uint32_t codes[bits];
        std::conditional_t<has_signed_levels(packed), RowScales, RowAffine> factors;
    };
    template <Operand operand = Operand::bf16>
    static __device__ __forceinline__ void dequantize(const Words& words, const NoTable&,
                                                      uint32_t (&a)[16]) {
        const RowAffine rows = affine(words.factors);
        const float scale[2] = {rows.scale.x, rows.scale.y};
        const float minimum[2] = {rows.minimum.x, rows.minimum.y};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = i & 1;
            const uint32_t bytes = Levels::levels(words.codes, i / 2, row);
            float value[4];
#pragma unroll
            for (int e = 0; e < 4; ++e)
                value[e] = scaled(Levels::value(bytes, e), scale[row], minimum[row]);
            a[4 * (i / 2) + row] = operand_pair<operand>({value[0], value[2]});
            a[4 * (i / 2) + row + 2] = operand_pair<operand>({value[1], value[3]});
        }
    }

  private:
    static __device__ __forceinline__ RowAffine affine(const RowAffine& rows) {
        return rows;
    }
    static __device__ __forceinline__ RowAffine affine(const RowScales& rows) {
        return {{rows.first, rows.second}, {0.0f, 0.0f}};
    }
    // The difference is exact, which that of the products would not be.
    static __device__ __forceinline__ float scaled(float value, float scale, float minimum) {
        const float level = value - Levels::excess;
        return has_signed_levels(packed) ? level * scale : fmaf(level, scale, -minimum);
    }
};

template <PackedType packed, class Levels = CodeLevels<packed>>
struct GroupedBlockCodes : GroupedCodes<packed, Levels> {
    using typename GroupedCodes<packed, Levels>::Words;
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        BlockScales<packed> of_32;
        of_32.load(scales + (lane >> 1) * 2 * ggml_scale_bytes(packed));
        Words words;
        load_shared_codes(codes, lane, words.codes);
        words.factors = of_32.of_rows();
        return words;
    }
};

// Scales: as GemvSuperblockBytes takes them (code_bytes.cuh).
template <PackedType packed, class Scales, class Levels = CodeLevels<packed>>
struct GroupedSuperblockCodes : GroupedCodes<packed, Levels> {
    using typename GroupedCodes<packed, Levels>::Words;
    // headers: those of the superblock, of which `block` is one of four.
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t headers, uint32_t lane,
                                                 uint32_t block) {
        const uint32_t row = headers + ggml_scale_bytes(packed) * (lane >> 2);
        const uint32_t t = lane & 3;
        Words words;
        load_shared_codes(codes, lane, words.codes);
        words.factors = Scales(row, Scales::group == 16 ? t : 2 * (block & 1) + (t >> 1))
                            .of_block(static_cast<int>(block));
        return words;
    }
};

}  // namespace moe::cuda
