// A lane's share of a full block (four steps, 64 columns) of every packed type: vector loads, and
// the 32 values as A operands of mma.m16n8k16 or as floats, without the global scale. The bytes are
// those of libmoe/weights/packed.hpp. Host and device.
//
//   const auto words = Codes<kind_of(type)>::load(type, codes, scales, lane, k0 / 64);
//   decode<operand, type>(words, codebook, a);   a[4 step + register], times 1 / residual_scale
//
// codebook: 32 values of rows 0 to 7 of the tile, then 32 of rows 8 to 15.
#pragma once

#include "libmoe/cuda/device/e2m1.hpp"
#include "libmoe/cuda/device/packed_value.hpp"

namespace moe::cuda {

// The parts of 16, 8 and 4 bytes that make up a lane's words.
template <int n_words>
MOE_HOST_DEVICE inline void load_code_words(const std::byte* codes, int32_t lane,
                                            uint32_t (&words)[n_words]) {
    constexpr int in_16 = n_words / 4 * 4;
    MOE_UNROLL
    for (int i = 0; i < in_16; i += 4) load_words<4>(codes + 128 * i + 16 * lane, words + i);
    constexpr int in_8 = in_16 + (n_words & 2);
    if constexpr (in_8 > in_16) load_words<2>(codes + 128 * in_16 + 8 * lane, words + in_16);
    if constexpr (n_words > in_8) load_words<1>(codes + 128 * in_8 + 4 * lane, words + in_8);
}

// Codes and the two scales (rows g and g + 8) of a lane; the scales of a group of 32 columns serve
// the lanes of two t.
template <int n_words>
struct ScaledWords {
    uint32_t code[n_words];
    float scale[2];
};

MOE_HOST_DEVICE inline int32_t scale_pair_of_32(int32_t lane) {
    return lane >> 1;  // 2 g + t / 2
}

template <PackedType type>
MOE_HOST_DEVICE inline void load_scales(const std::byte* scales, int32_t lane, float (&scale)[2]) {
    if constexpr (block_scale_bytes(type, 4) == 128 || type == PackedType::e4m3) {  // float32
        const int32_t pair = type == PackedType::e4m3 ? lane >> 1 & 1 : scale_pair_of_32(lane);
        uint32_t bits[2];
        load_words<2>(scales + 8 * pair, bits);
        scale[0] = std::bit_cast<float>(bits[0]);
        scale[1] = std::bit_cast<float>(bits[1]);
    } else if constexpr (type == PackedType::q8_0) {
        uint32_t bits;
        load_words<1>(scales + 4 * scale_pair_of_32(lane), &bits);
        const FloatPair pair = pair_of_f16(bits);
        scale[0] = pair.low;
        scale[1] = pair.high;
    } else {  // E4M4 bytes
        const uint32_t pair = moe::load<uint16_t>(scales + 2 * scale_pair_of_32(lane));
        scale[0] = e4m4_scale(pair & 0xFFu);
        scale[1] = e4m4_scale(pair >> 8);
    }
}

// float32 and 16 bits: no scales.
template <int n_words>
struct PlainWords {
    uint32_t code[n_words];
};

template <PackedType type>
struct PlainCodes {
    static constexpr int n_words = code_bits(type);
    using Words = PlainWords<n_words>;

    static MOE_HOST_DEVICE Words load(PackedType, const std::byte* codes, const std::byte*,
                                      int32_t lane, int64_t) {
        Words words;
        load_code_words(codes, lane, words.code);
        return words;
    }
    static MOE_HOST_DEVICE FloatPair pair(const Words& words, const float*, int step, int reg) {
        const int i = 4 * step + reg;
        if constexpr (type == PackedType::bf16) return pair_of_bf16(words.code[i]);
        if constexpr (type == PackedType::f16) return pair_of_f16(words.code[i]);
        if constexpr (type == PackedType::f32) {
            return {std::bit_cast<float>(words.code[2 * i]),
                    std::bit_cast<float>(words.code[2 * i + 1])};
        }
    }
};

// One byte a code: e4m3 and q8_0.
template <PackedType type>
struct ByteCodes {
    using Words = ScaledWords<8>;

    static MOE_HOST_DEVICE Words load(PackedType, const std::byte* codes, const std::byte* scales,
                                      int32_t lane, int64_t) {
        Words words;
        load_code_words(codes, lane, words.code);
        load_scales<type>(scales, lane, words.scale);
        return words;
    }
    static MOE_HOST_DEVICE FloatPair pair(const Words& words, const float*, int step, int reg) {
        const uint32_t two = words.code[2 * step + reg / 2] >> 16 * (reg & 1);
        const float scale = words.scale[reg & 1];
        return {code_value(type, two & 0xFFu, 0, nullptr) * scale,
                code_value(type, two >> 8 & 0xFFu, 0, nullptr) * scale};
    }
};

// The codes of 1 to 7 bits of a register of a step, in bits 0.. and 16.. of a word.
template <int bits>
MOE_HOST_DEVICE inline uint32_t code_pair(const uint32_t* w, int step, int reg) {
    const int nibble = 4 * reg;
    if constexpr (bits == 3) {
        if (step < 3) return w[step] >> nibble & 0x00070007u;
        return (w[0] >> (nibble + 3) & 0x00010001u) | (w[1] >> (nibble + 2) & 0x00020002u) |
               (w[2] >> (nibble + 1) & 0x00040004u);
    }
    constexpr int in_4 = bits & 4, in_2 = bits & 2;
    uint32_t codes = 0;
    if constexpr (in_4 != 0) codes = w[step] >> nibble & 0x000F000Fu;
    if constexpr (in_2 != 0)
        codes |= (w[in_4 + step / 2] >> (nibble + 2 * (step & 1)) & 0x00030003u) << in_4;
    if constexpr ((bits & 1) != 0)
        codes |= (w[bits - 1] >> (nibble + step) & 0x00010001u) << (in_4 + in_2);
    return codes;
}

// The same of codes of 2 or 3 bits that lie by rows.
template <int bits>
MOE_HOST_DEVICE inline uint32_t code_pair_of_row(const uint32_t* w, int step, int reg) {
    uint32_t nibbles = 0;
    if constexpr (bits == 2) {
        nibbles = w[step / 2] >> 2 * (step & 1);
    } else if (step < 3) {
        nibbles = w[step];
    } else {
        nibbles = (w[0] >> 3 & 0x11111111u) | (w[1] >> 2 & 0x22222222u) | (w[2] >> 1 & 0x44444444u);
    }
    const uint32_t two = nibbles >> (16 * (reg & 1) + 4 * (reg >> 1));
    constexpr uint32_t code = (1u << bits) - 1;
    return (two & code) | (two >> 8 & code) << 16;
}

// Codebook indices of 2 to 5 bits.
template <PackedType type>
struct KbitCodes {
    static constexpr int bits = code_bits(type);
    using Words = ScaledWords<bits>;

    static MOE_HOST_DEVICE Words load(PackedType, const std::byte* codes, const std::byte* scales,
                                      int32_t lane, int64_t) {
        Words words;
        load_code_words(codes, lane, words.code);
        load_scales<type>(scales, lane, words.scale);
        return words;
    }
    static MOE_HOST_DEVICE FloatPair pair(const Words& words, const float* codebook, int step,
                                          int reg) {
        uint32_t two;
        if constexpr (is_row_ordered(type))
            two = code_pair_of_row<bits>(words.code, step, reg);
        else
            two = code_pair<bits>(words.code, step, reg);
        const float* values = codebook + 32 * (reg & 1);
        const float scale = words.scale[reg & 1];
        return {values[two & 31u] * scale, values[two >> 16] * scale};
    }
};

// nvfp4 and mxfp4. The scale stays a byte: it becomes a bfloat16 factor or a float.
template <PackedType type>
struct E2m1Codes {
    struct Words {
        uint32_t code[4];
        uint32_t scale;  // two bytes
    };

    static MOE_HOST_DEVICE Words load(PackedType, const std::byte* codes, const std::byte* scales,
                                      int32_t lane, int64_t) {
        Words words;
        load_code_words(codes, lane, words.code);
        const int32_t pair = type == PackedType::nvfp4 ? lane : scale_pair_of_32(lane);
        words.scale = moe::load<uint16_t>(scales + 2 * pair);
        return words;
    }
    // The scale of a row, times 2^126 / residual_scale, twice in a word. nvfp4: 2^(e+96) (1 + m/8),
    // so that products lie in 2^-31 .. 2^5. mxfp4: 2^(byte-1), bytes up to 128.
    static MOE_HOST_DEVICE uint32_t factor(const Words& words, int half) {
        const uint32_t byte = words.scale >> 8 * half & 0xFFu;
        if constexpr (type == PackedType::nvfp4) return byte * 0x00100010u + 0x6F806F80u;
        return (byte + 126u) * 0x00800080u;
    }
    static MOE_HOST_DEVICE FloatPair pair(const Words& words, const float*, int step, int reg) {
        const uint32_t byte = words.scale >> 8 * (reg & 1) & 0xFFu;
        const float scale = type == PackedType::nvfp4 ? nvfp4_scale(byte) : mxfp4_scale(byte);
        const FloatPair tiny = pair_of_bf16(spread_e2m1(words.code[step], reg));
        return {tiny.low * 0x1p126f * scale, tiny.high * 0x1p126f * scale};
    }
};

// ggml's blocks: the group of 16 columns of a lane has one scale and one minimum.
template <PackedType type>
struct GgmlCodes {
    static constexpr int bits = code_bits(type);
    struct Words {
        uint32_t code[bits];
        Affine affine[2];
    };

    static MOE_HOST_DEVICE Words load(PackedType, const std::byte* codes, const std::byte* scales,
                                      int32_t lane, int64_t block) {
        Words words;
        load_code_words(codes, lane, words.code);
        const int32_t t = 4 * static_cast<int32_t>(block & 3) + lane % 4;
        MOE_UNROLL
        for (int half = 0; half < 2; ++half) {
            const int32_t place = ggml_scale_offset(type, 4, lane / 4 + 8 * half, 16 * (lane % 4));
            words.affine[half] = affine_of(type, scales + place, t);
        }
        return words;
    }
    static MOE_HOST_DEVICE FloatPair pair(const Words& words, const float*, int step, int reg) {
        const uint32_t two = code_pair<bits>(words.code, step, reg);
        const Affine& affine = words.affine[reg & 1];
        return {affine_value(type, affine, two & 0xFFu), affine_value(type, affine, two >> 16)};
    }
};

// The iq2 and iq3 blocks: a lane has two entries of a grid, or four, in both of its rows.
template <PackedType type, class Grid>
struct IqCodes {
    struct Words {
        IqColumns columns[2];
    };

    static MOE_HOST_DEVICE Words load(PackedType, const std::byte*, const std::byte* scales,
                                      int32_t lane, int64_t block) {
        Words words;
        const int32_t t = 4 * static_cast<int32_t>(block & 3) + lane % 4;
        MOE_UNROLL
        for (int half = 0; half < 2; ++half) {
            const int32_t place = ggml_scale_offset(type, 4, lane / 4 + 8 * half, 0);
            words.columns[half] = Grid::columns(scales + place, t);
        }
        return words;
    }
    static MOE_HOST_DEVICE FloatPair pair(const Words& words, const float*, int step, int reg) {
        const IqColumns& columns = words.columns[reg & 1];
        const int i = 4 * step + reg / 2 * 2;
        return {iq_value<Grid>(columns, i), iq_value<Grid>(columns, i + 1)};
    }
};

// The grids without a table of columns: scales begin where the tile does.
template <PackedType kind>
struct GridCodes {
    static constexpr int bits = code_bits(kind);
    struct Words {
        uint32_t code[bits];
        GridFactor factor[2];
    };

    static MOE_HOST_DEVICE Words load(PackedType type, const std::byte* codes,
                                      const std::byte* tile, int32_t lane, int64_t block) {
        Words words;
        load_code_words(codes, lane, words.code);
        MOE_UNROLL
        for (int half = 0; half < 2; ++half)
            words.factor[half] =
                grid_factor(type, tile, lane / 4 + 8 * half, 64 * block + 16 * (lane % 4), nullptr);
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

template <PackedType type>
struct Codes : KbitCodes<type> {};
template <PackedType type>
requires(is_grid(type)) struct Codes<type> : GridCodes<type> {
};
template <>
struct Codes<PackedType::f32> : PlainCodes<PackedType::f32> {};
template <>
struct Codes<PackedType::f16> : PlainCodes<PackedType::f16> {};
template <>
struct Codes<PackedType::bf16> : PlainCodes<PackedType::bf16> {};
template <>
struct Codes<PackedType::e4m3> : ByteCodes<PackedType::e4m3> {};
template <>
struct Codes<PackedType::q8_0> : ByteCodes<PackedType::q8_0> {};
template <>
struct Codes<PackedType::nvfp4> : E2m1Codes<PackedType::nvfp4> {};
template <>
struct Codes<PackedType::mxfp4> : E2m1Codes<PackedType::mxfp4> {};
template <PackedType type>
requires(has_ggml_scales(type) && !is_iq_grid(type)) struct Codes<type> : GgmlCodes<type> {
};
template <>
struct Codes<PackedType::iq2_xxs> : IqCodes<PackedType::iq2_xxs, Iq2XxsGrid> {};
template <>
struct Codes<PackedType::iq2_xs> : IqCodes<PackedType::iq2_xs, Iq2XsGrid> {};
template <>
struct Codes<PackedType::iq3_xxs> : IqCodes<PackedType::iq3_xxs, Iq3XxsGrid> {};
template <>
struct Codes<PackedType::iq3_s> : IqCodes<PackedType::iq3_s, Iq3SGrid> {};

// What sums of operands still have to be multiplied by: decoded operands are weights divided by it,
// so that no scale byte overflows a 16-bit operand or loses bits in it.
MOE_HOST_DEVICE constexpr float residual_scale(PackedType type, Operand operand) {
    if (type == PackedType::nvfp4) return operand == Operand::bf16 ? 0x1p20f : 0x1p9f;
    if (type == PackedType::mxfp4 && operand == Operand::f16) return 0x1p-12f;
    return 1.0f;
}

template <Operand operand, PackedType type>
MOE_HOST_DEVICE inline void decode(const typename Codes<type>::Words& words, const float* codebook,
                                   uint32_t (&a)[16]) {
    constexpr bool is_bf16 = operand == Operand::bf16;
    constexpr float rest = 1.0f / residual_scale(type, operand);
    MOE_UNROLL
    for (int i = 0; i < 16; ++i) {
        const int step = i / 4;
        const int reg = i % 4;
        if constexpr (type == (is_bf16 ? PackedType::bf16 : PackedType::f16)) {
            a[i] = words.code[i];
        } else if constexpr (is_bf16 && is_e2m1(type)) {
            const uint32_t factor = Codes<type>::factor(words, reg & 1);
            a[i] = multiply_bf16(spread_e2m1(words.code[step], reg), factor);
        } else {
            const FloatPair value = Codes<type>::pair(words, codebook, step, reg);
            a[i] = operand_pair<operand>({value.low * rest, value.high * rest});
        }
    }
}

// values[2 (4 step + register) + parity].
template <PackedType type>
MOE_HOST_DEVICE inline void decode_floats(const typename Codes<type>::Words& words,
                                          const float* codebook, float (&values)[32]) {
    MOE_UNROLL
    for (int i = 0; i < 16; ++i) {
        const FloatPair value = Codes<type>::pair(words, codebook, i / 4, i % 4);
        values[2 * i] = value.low;
        values[2 * i + 1] = value.high;
    }
}

// Calls use.template operator()<kind>() for the packed type of a matrix, which a grid has more to.
template <class Use>
MOE_HOST_DEVICE inline void with_packed_type(PackedType type, const Use& use) {
    switch (kind_of(type)) {
#define MOE_CASE(name)                               \
    case PackedType::name:                           \
        use.template operator()<PackedType::name>(); \
        break;
        MOE_CASE(f32)
        MOE_CASE(f16)
        MOE_CASE(bf16)
        MOE_CASE(e4m3)
        MOE_CASE(nvfp4)
        MOE_CASE(mxfp4)
        MOE_CASE(kbit2)
        MOE_CASE(kbit3)
        MOE_CASE(kbit4)
        MOE_CASE(kbit5)
        MOE_CASE(kbit2_f32)
        MOE_CASE(kbit3_f32)
        MOE_CASE(kbit4_f32)
        MOE_CASE(kbit5_f32)
        MOE_CASE(q8_0)
        MOE_CASE(q4_k)
        MOE_CASE(q5_k)
        MOE_CASE(q2_k)
        MOE_CASE(q3_k)
        MOE_CASE(q6_k)
        MOE_CASE(iq4_xs)
        MOE_CASE(iq2_xxs)
        MOE_CASE(iq2_xs)
        MOE_CASE(iq3_xxs)
        MOE_CASE(iq3_s)
        MOE_CASE(q4_0)
        MOE_CASE(iq4_nl)
        MOE_CASE(q5_0)
        MOE_CASE(q4_1)
        MOE_CASE(q5_1)
        MOE_CASE(grid_e4m3)
        MOE_CASE(grid_1)
        MOE_CASE(grid_2)
        MOE_CASE(grid_3)
        MOE_CASE(grid_4)
        MOE_CASE(grid_5)
        MOE_CASE(grid_6)
        MOE_CASE(grid_7)
        MOE_CASE(grid_8)
        MOE_CASE(grid_codebook)
#undef MOE_CASE
        case PackedType::none:
            break;
    }
}

}  // namespace moe::cuda
