// Building blocks of ggml's types with integer codes of 2 to 6 bits in gemv: shifts and masks turn
// the code words of a step into byte operands. Device only.
//
//   signed    levels count from the middle of the codes. A code becomes the upper bits of its byte,
//             whose sign bit is flipped: 2^(8 - bits) times the level
//   unsigned  levels are the codes, and the type has minima. Codes of up to four bits stay in their
//             nibble, so that those of row g + 8 are 16 times as large
#pragma once

#include <type_traits>

#include "libmoe/cuda/dequant/gemv_blocks.cuh"
#include "libmoe/cuda/dequant/shared_codes.cuh"

namespace moe::cuda {

// group: columns of a scale, 32 or 16.
template <PackedType packed, int32_t group>
struct GemvCodeBytes : GemvDequantBase<packed> {
    using Base = GemvDequantBase<packed>;
    static constexpr int bits = code_bits(packed);
    static constexpr bool is_signed = has_signed_levels(packed);
    using Operand = std::conditional_t<group == 16, BytesOf16<is_signed>, Bytes<is_signed>>;
    static constexpr int32_t span = group == 16 ? 1 : 2;
    static constexpr uint32_t ones = is_signed ? 0 : 0x01010101u;
    static constexpr uint32_t signs = is_signed ? 0x80808080u : 0;  // bits that codes flip
    // The lowest bit of a code in its byte, of row g (0) or g + 8 (1).
    static constexpr int code_bit(int row) {
        return is_signed ? 8 - bits : bits <= 4 ? 4 * row : 0;
    }
    static constexpr float residual_scale = is_signed ? 1.0f / (1 << code_bit(0)) : 1.0f;

    template <int n>
    struct Codes {
        uint32_t codes[n][bits];
    };
    template <int n>
    static __device__ __forceinline__ void load_codes(Codes<n>& words, uint32_t k_block,
                                                      int32_t block, int32_t lane) {
        constexpr int32_t code_bytes = block_code_bytes(packed, 4);
        constexpr int32_t stride = Base::min_split > 1 ? code_bytes : Base::min_split_bytes;
        const uint32_t first =
            split_of(k_block, block) + (block & (Base::min_split - 1)) * code_bytes;
#pragma unroll
        for (int i = 0; i < n; ++i)
            load_shared_codes<bits>(first + i * stride, lane, words.codes[i]);
    }
    template <int n>
    static __device__ __forceinline__ void two_steps(const Codes<n>& words, int i, uint32_t,
                                                     uint32_t (&a)[4]) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int row = j & 1;
            a[j] = codes_of_row<bits, signs>(words.codes[i / 2], i % 2 * 2 + j / 2, row,
                                             code_bit(row));
        }
    }
    using Factors = std::conditional_t<is_signed, RowScales, RowAffine>;

  protected:
    // Factors of operands, given those of levels.
    static __device__ __forceinline__ RowScales of_operands(const RowScales& of_levels) {
        return of_levels;  // residual_scale does it
    }
    static __device__ __forceinline__ RowAffine of_operands(RowAffine of_levels) {
        of_levels.scale.y *= 1.0f / (1 << code_bit(1));
        return of_levels;
    }
    // The split that has a block of the k_block.
    static __device__ __forceinline__ uint32_t split_of(uint32_t k_block, int32_t block) {
        return k_block + (block >> (Base::min_split == 4 ? 2 : 0)) * Base::min_split_bytes;
    }
};

// Types with superblock scales. Scales is made from the shared address of row g of them and a group
// of 0 to 3, and has those of rows g and g + 8 and of a block:
//   Scales::group is 16   of that group of the block
//   Scales::group is 32   of that group of the block, which is even, and the next one
template <PackedType packed, class Scales>
struct GemvSuperblockBytes : GemvCodeBytes<packed, Scales::group> {
    using Base = GemvCodeBytes<packed, Scales::group>;
    template <int n>
    using Words = typename Base::template Codes<n>;
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, uint32_t k_block, int32_t block,
                                                int32_t lane) {
        Base::load_codes(words, k_block, block, lane);
    }
    struct GroupScales : Scales {
        __device__ __forceinline__ GroupScales(uint32_t k_block, int32_t block, int32_t lane)
            : Scales(Base::split_of(k_block, block) + 4 * block_code_bytes(packed, 4) +
                         ggml_scale_bytes(packed) * (lane >> 2),
                     lane & 3) {}
    };
    static __device__ __forceinline__ auto factors(const GroupScales& of_256, int32_t block) {
        return Base::of_operands(of_256.of_block(block & 3));
    }
};

// ggml's blocks of 32 have float16 scales behind the codes of a block; those with minima have one
// behind each scale, which is added.
template <PackedType packed>
struct GemvBlockBytes : GemvCodeBytes<packed, 32> {
    using Base = GemvCodeBytes<packed, 32>;
    using Scales = BlockScales<packed>;
    template <int n>
    struct Words : Base::template Codes<n> {
        Scales scales;
    };
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, uint32_t k_block, int32_t block,
                                                int32_t lane) {
        const uint32_t at = k_block + (block + column_block(lane, n)) * Base::min_split_bytes;
        words.scales.load(scales_of_32(at + Base::scales, lane, ggml_scale_bytes(packed)));
        Base::load_codes(words, k_block, block, lane);
    }
    template <int n>
    static __device__ __forceinline__ auto factors(const Words<n>& words) {
        return Base::of_operands(words.scales.of_rows());
    }
};

}  // namespace moe::cuda
