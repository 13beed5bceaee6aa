// kbit2 .. kbit5 (and _f32): codes of k bits that index a codebook of 2^k float32, in bit planes.
// Every 32 columns of a row are k little-endian uint32 words; bit j of word b is bit b of the code
// of column j. A scale per 32 columns, the largest magnitude, [rows, columns / 32]: an E4M4 byte,
// or float32.
//   W[n, k] = codebook[code] * scale[n, k / 32]              one rounding
// Codebook: the normal-float one of k bits below, or the caller's. Encoding: scale = the nearest
// E4M4 of amax, ties to even, saturating at 31 (_f32: amax itself); code = the one whose value is
// nearest to w / max(decoded scale, 1e-8), the lowest on ties. (So a zero weight decodes to
// -codebook[2^(k-1)] * scale: the normal-float codebook has no zero.)
#include "libmoe/formats/block.hpp"
#include "libmoe/formats/entries.hpp"

namespace moe {
namespace {

constexpr int64_t group = 32;

// Quantiles (i + 1/2) / 2^k of the normal distribution, rounded to float32 and divided by the
// largest.
constexpr float normal_float_2[4] = {-0x1p+0f, -0x1.1ba434p-2f, 0x1.1ba434p-2f, 0x1p+0f};
constexpr float normal_float_3[8] = {-0x1p+0f,        -0x1.2813eap-1f, -0x1.46400ap-2f,
                                     -0x1.a40252p-4f, 0x1.a40252p-4f,  0x1.46400ap-2f,
                                     0x1.2813eap-1f,  0x1p+0f};
constexpr float normal_float_4[16] = {
    -0x1p+0f,       -0x1.6a4676p-1f, -0x1.159c7p-1f,  -0x1.aad292p-2f,
    -0x1.3e5ddp-2f, -0x1.ba420ep-3f, -0x1.04cb5ap-3f, -0x1.58d86cp-5f,
    0x1.58d86cp-5f, 0x1.04cb5ap-3f,  0x1.ba420ep-3f,  0x1.3e5ddp-2f,
    0x1.aad292p-2f, 0x1.159c7p-1f,   0x1.6a4676p-1f,  0x1p+0f};
constexpr float normal_float_5[32] = {
    -0x1p+0f,        -0x1.8e63b8p-1f, -0x1.5106b2p-1f, -0x1.2459e4p-1f, -0x1.00233p-1f,
    -0x1.c21f04p-2f, -0x1.8ad7e6p-2f, -0x1.587346p-2f, -0x1.29a952p-2f, -0x1.fb3092p-3f,
    -0x1.a737b6p-3f, -0x1.566d74p-3f, -0x1.080a5ap-3f, -0x1.76d23ap-4f, -0x1.bfec62p-5f,
    -0x1.2a00cp-6f,  0x1.2a00cp-6f,   0x1.bfec62p-5f,  0x1.76d23ap-4f,  0x1.080a5ap-3f,
    0x1.566d74p-3f,  0x1.a737b6p-3f,  0x1.fb3092p-3f,  0x1.29a952p-2f,  0x1.587346p-2f,
    0x1.8ad7e6p-2f,  0x1.c21f04p-2f,  0x1.00233p-1f,   0x1.2459e4p-1f,  0x1.5106b2p-1f,
    0x1.8e63b8p-1f,  0x1p+0f};

// spread[b] holds bit i of b in byte i: one plane's share of eight codes.
struct BitSpread {
    uint64_t spread[256];

    constexpr BitSpread() : spread() {
        for (int byte = 0; byte < 256; ++byte) {
            for (int bit = 0; bit < 8; ++bit) {
                spread[byte] |= static_cast<uint64_t>(byte >> bit & 1) << (8 * bit);
            }
        }
    }
};

constexpr BitSpread bits_to_bytes;

struct E4m4Scale {
    static constexpr moe_type type = MOE_TYPE_F8_E4M4;
    static constexpr int32_t bytes = 1;
    static float decode(const std::byte* address) { return e4m4_to_f32(load<uint8_t>(address)); }
    static void encode(float value, std::byte* address) { store(address, f32_to_e4m4(value)); }
};

struct F32Scale {
    static constexpr moe_type type = MOE_TYPE_F32;
    static constexpr int32_t bytes = 4;
    static float decode(const std::byte* address) { return load<float>(address); }
    static void encode(float value, std::byte* address) { store(address, value); }
};

const float* codebook_of(const moe_format& format, const float* given) {
    return format.codebook == MOE_CODEBOOK_GIVEN ? given : builtin_codebook(format);
}

template <int bits>
void decode_group(const std::byte* planes, const float* codebook, float scale,
                  float* __restrict out) {
    float values[1 << bits];
    for (int i = 0; i < 1 << bits; ++i) values[i] = codebook[i] * scale;
    for (int eight = 0; eight < 4; ++eight) {
        uint64_t codes = 0;
        for (int b = 0; b < bits; ++b) {
            codes |= bits_to_bytes.spread[load<uint8_t>(planes + 4 * b + eight)] << b;
        }
        for (int j = 0; j < 8; ++j) out[8 * eight + j] = values[codes >> (8 * j) & 0xFF];
    }
}

template <int bits, class Scale>
void decode(const Matrix& matrix, int64_t row, int64_t column, int64_t count, float* out) {
    const float* codebook = codebook_of(matrix.format, matrix.codebook);
    const std::byte* planes = matrix.data + row * matrix.row_stride + column / group * (4 * bits);
    const std::byte* scales =
        scale_row(matrix, row, 1) + (column + matrix.scale_column_phase) / group * Scale::bytes;
    for (int64_t i = 0; i < count / group; ++i) {
        decode_group<bits>(planes + i * (4 * bits), codebook,
                           Scale::decode(scales + i * Scale::bytes), out + i * group);
    }
}

struct Ends {
    float least, most;
};

// Values beyond the codebook are drawn to its end first: far away all distances round alike.
template <int bits>
uint32_t nearest_code(const float* codebook, Ends ends, float value) {
    value = std::clamp(value, ends.least, ends.most);
    uint32_t best = 0;
    float least = std::abs(value - codebook[0]);
    for (uint32_t i = 1; i < 1u << bits; ++i) {
        const float distance = std::abs(value - codebook[i]);
        best = distance < least ? i : best;
        least = distance < least ? distance : least;
    }
    return best;
}

template <int bits>
void encode_group(const float* values, const float* codebook, float scale, std::byte* planes) {
    const float divisor = std::max(scale, 1e-8f);
    const auto [least, most] = std::minmax_element(codebook, codebook + (1 << bits));
    const Ends ends{*least, *most};
    uint32_t words[bits] = {};
    for (int j = 0; j < group; ++j) {
        const uint32_t code = nearest_code<bits>(codebook, ends, values[j] / divisor);
        for (int b = 0; b < bits; ++b) words[b] |= (code >> b & 1) << j;
    }
    for (int b = 0; b < bits; ++b) store(planes + 4 * b, words[b]);
}

template <int bits, class Scale>
void encode(const FormatTraits& traits, const float* source, int64_t rows, int64_t columns,
            const EncodeTarget& target) {
    const float* codebook = codebook_of(traits.format, target.codebook);
    require(codebook != nullptr, "codebook is NULL: {} needs {} values", traits.name, 1 << bits);
    require_finite(traits, source, rows, columns);
    for (int64_t i = 0; i < rows * columns / group; ++i) {
        const float* values = source + i * group;
        std::byte* scale = target.scales + i * Scale::bytes;
        Scale::encode(largest_magnitude(values, group), scale);
        encode_group<bits>(values, codebook, Scale::decode(scale), target.data + i * (4 * bits));
    }
}

template <int bits, class Scale>
constexpr FormatTraits entry(const char* name, moe_codebook codebook) {
    moe_format format = format_of(MOE_TYPE_CODEBOOK);
    format.bits = bits;
    format.group_rows = 1;
    format.group_columns = group;
    format.scale_type = Scale::type;
    format.packing = MOE_PACKING_BIT_PLANES;
    format.codebook = codebook;
    return {.name = name,
            .format = format,
            .block_rows = 1,
            .block_columns = group,
            .block_bytes = 4 * bits,
            .scale_bytes = Scale::bytes,
            .decode = decode<bits, Scale>,
            .encode = encode<bits, Scale>};
}

}  // namespace

constinit const std::array<FormatTraits, 8> kbit_formats = {
    entry<2, E4m4Scale>("kbit2", MOE_CODEBOOK_NORMAL_FLOAT),
    entry<3, E4m4Scale>("kbit3", MOE_CODEBOOK_NORMAL_FLOAT),
    entry<4, E4m4Scale>("kbit4", MOE_CODEBOOK_NORMAL_FLOAT),
    entry<5, E4m4Scale>("kbit5", MOE_CODEBOOK_NORMAL_FLOAT),
    entry<2, F32Scale>("kbit2_f32", MOE_CODEBOOK_NORMAL_FLOAT),
    entry<3, F32Scale>("kbit3_f32", MOE_CODEBOOK_NORMAL_FLOAT),
    entry<4, F32Scale>("kbit4_f32", MOE_CODEBOOK_NORMAL_FLOAT),
    entry<5, F32Scale>("kbit5_f32", MOE_CODEBOOK_NORMAL_FLOAT)};

constinit const std::array<FormatTraits, 8> kbit_given_formats = {
    entry<2, E4m4Scale>("kbit2_given", MOE_CODEBOOK_GIVEN),
    entry<3, E4m4Scale>("kbit3_given", MOE_CODEBOOK_GIVEN),
    entry<4, E4m4Scale>("kbit4_given", MOE_CODEBOOK_GIVEN),
    entry<5, E4m4Scale>("kbit5_given", MOE_CODEBOOK_GIVEN),
    entry<2, F32Scale>("kbit2_f32_given", MOE_CODEBOOK_GIVEN),
    entry<3, F32Scale>("kbit3_f32_given", MOE_CODEBOOK_GIVEN),
    entry<4, F32Scale>("kbit4_f32_given", MOE_CODEBOOK_GIVEN),
    entry<5, F32Scale>("kbit5_f32_given", MOE_CODEBOOK_GIVEN)};

const float* normal_float_codebook(int32_t bits) {
    switch (bits) {
        case 2:
            return normal_float_2;
        case 3:
            return normal_float_3;
        case 4:
            return normal_float_4;
        case 5:
            return normal_float_5;
        default:
            return nullptr;
    }
}

}  // namespace moe
