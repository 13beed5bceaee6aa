// The value of a code under its scale record, type by type as the opening comments of traits.hpp,
// layout.hpp and ggml_scales.hpp have it.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "libmoe/base/half.hpp"
#include "libmoe/base/iq_grids.hpp"
#include "libmoe/packed/unpack.hpp"

namespace moe {
namespace {

int32_t byte_at(const std::byte* from, int32_t i) {
    return static_cast<int32_t>(from[i]);
}
float f16_at(const std::byte* from, int32_t offset) {
    return f16_to_float(
        static_cast<uint16_t>(byte_at(from, offset) | byte_at(from, offset + 1) << 8));
}
uint32_t word_at(const std::byte* from, int32_t offset) {
    uint32_t word;
    std::memcpy(&word, from + offset, sizeof word);
    return word;
}

// A small floating-point number: its bits from the top are exponent and mantissa.
float small_float(uint32_t magnitude, int32_t mantissa_bits, int32_t bias, bool has_subnormals) {
    const auto exponent = static_cast<int32_t>(magnitude >> mantissa_bits);
    const auto mantissa = static_cast<float>(magnitude & ((1u << mantissa_bits) - 1));
    const float fraction = std::ldexp(mantissa, -mantissa_bits);
    if (exponent == 0 && has_subnormals) return std::ldexp(fraction, 1 - bias);
    return std::ldexp(1.0f + fraction, exponent - bias);
}

float e4m3(uint32_t byte) {
    if ((byte & 127u) == 127u) return std::numeric_limits<float>::quiet_NaN();
    const float magnitude = small_float(byte & 127u, 3, 7, true);
    return byte & 128u ? -magnitude : magnitude;
}
float e2m1(uint32_t code) {
    constexpr float magnitudes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    return code & 8u ? -magnitudes[code & 7u] : magnitudes[code & 7u];
}
float e8m0(int32_t byte) {
    return byte == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, byte - 127);
}

// E4M4 has its subnormals in steps of 2^-14: those of 2^(e-11) (1 + m/16) at e = 0 would be half.
float e4m4(int32_t byte) {
    return small_float(static_cast<uint32_t>(byte), 4, 11, true);
}

// --- ggml ----------------------------------------------------------------------------------------

// weight = scale level - minimum
struct ScaleAndMinimum {
    float scale, minimum;
};

// Six bits of scale and six of minimum for each of eight groups, in twelve bytes: those of the
// groups 0 to 3 are whole, those of 4 to 7 have their upper two bits in the tops of the first
// eight.
ScaleAndMinimum of_q4_k(const std::byte* record, int32_t group) {
    const std::byte* bytes = record + 4;
    int32_t scale = byte_at(bytes, group % 4) & 63, minimum = byte_at(bytes, group % 4 + 4) & 63;
    if (group >= 4) {
        const int32_t low = byte_at(bytes, group + 4);
        scale = (low & 15) + 16 * (byte_at(bytes, group - 4) / 64);
        minimum = low / 16 + 16 * (byte_at(bytes, group) / 64);
    }
    return {f16_at(record, 0) * static_cast<float>(scale),
            f16_at(record, 2) * static_cast<float>(minimum)};
}

// Sixteen scales of six bits: low nibbles in eight bytes, upper two bits in four.
int32_t q3_k_scale(const std::byte* record, int32_t group) {
    const int32_t low = byte_at(record, group % 8) >> (group < 8 ? 0 : 4) & 15;
    return low + (byte_at(record, 8 + group % 4) >> 2 * (group / 4) & 3) * 16 - 32;
}
// Eight scales of six bits: upper two bits in two bytes, low nibbles in four.
int32_t iq4_xs_scale(const std::byte* record, int32_t group) {
    const int32_t high = (byte_at(record, 2) | byte_at(record, 3) << 8) >> 2 * group & 3;
    return (byte_at(record, 4 + group / 2) >> 4 * (group % 2) & 15) + 16 * high - 32;
}

// The record serves 256 or 32 columns, of which this is one.
ScaleAndMinimum ggml_scale(PackedType type, const std::byte* record, int32_t column) {
    const int32_t of_16 = column / 16, of_32 = column / 32;
    switch (type) {
        case PackedType::q4_k:
        case PackedType::q5_k:
            return of_q4_k(record, of_32);
        case PackedType::q2_k:
            return {f16_at(record, 16) * static_cast<float>(byte_at(record, of_16) % 16),
                    f16_at(record, 18) * static_cast<float>(byte_at(record, of_16) / 16)};
        case PackedType::q3_k:
            return {f16_at(record, 12) * static_cast<float>(q3_k_scale(record, of_16)), 0};
        case PackedType::q6_k: {
            const int32_t byte = byte_at(record, of_16);
            return {f16_at(record, 16) * static_cast<float>(byte < 128 ? byte : byte - 256), 0};
        }
        case PackedType::iq4_xs:
            return {f16_at(record, 0) * static_cast<float>(iq4_xs_scale(record, of_32)), 0};
        case PackedType::q4_1:
        case PackedType::q5_1:
            return {f16_at(record, 0), -f16_at(record, 2)};
        default:
            return {f16_at(record, 0), 0};
    }
}

int32_t ggml_level(PackedType type, uint32_t code) {
    constexpr int32_t of_iq4[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
    const auto level = static_cast<int32_t>(code);
    switch (type) {
        case PackedType::iq4_xs:
        case PackedType::iq4_nl:
            return of_iq4[code];
        case PackedType::q3_k:
            return level - 4;
        case PackedType::q4_0:
            return level - 8;
        case PackedType::q5_0:
            return level - 16;
        case PackedType::q6_k:
            return level - 32;
        default:
            return level;
    }
}

// --- iq2 and iq3 ---------------------------------------------------------------------------------

// A magnitude of a column, its sign and the scale without d.
struct IqValue {
    int32_t magnitude;
    bool is_negative;
    float scale;
};

// Entry and sign of column i of the eight that an entry of iq2 covers.
int32_t iq2_magnitude_of(uint32_t entry, int32_t i) {
    constexpr int32_t magnitudes[] = {8, 25, 43, 0};
    return magnitudes[entry >> 2 * i & 3u];
}
// Seven signs are stored; the eighth makes the number of negative ones even.
bool sign_of_seven(uint32_t seven, int32_t i) {
    return (i < 7 ? seven >> i : static_cast<uint32_t>(std::popcount(seven & 127u))) & 1u;
}
float half_step(uint32_t scale, float factor) {
    return (static_cast<float>(scale) + 0.5f) * factor;
}

// Per 32 columns: four bytes of entries, then 28 bits of signs and 4 of scale.
IqValue iq2_xxs(const std::byte* block, int32_t column) {
    const int32_t group = 2 + column / 32 * 8, eight = column % 32 / 8;
    const uint32_t entry = iq2_xxs_entry(static_cast<uint32_t>(byte_at(block, group + eight)));
    const uint32_t word = word_at(block, group + 4);
    return {iq2_magnitude_of(entry, column % 8), sign_of_seven(word >> 7 * eight, column % 8),
            half_step(word >> 28, 0.25f)};
}
// Per eight columns 9 bits of entry and 7 of signs; after them a nibble of scale per 16.
IqValue iq2_xs(const std::byte* block, int32_t column) {
    const uint32_t bits = word_at(block, 2 + column / 8 * 2) & 0xFFFFu;
    const int32_t scale = byte_at(block, 66 + column / 32) >> column % 32 / 16 * 4 & 15;
    return {iq2_magnitude_of(iq2_xs_entry(bits & 511u), column % 8),
            sign_of_seven(bits >> 9, column % 8), half_step(static_cast<uint32_t>(scale), 0.25f)};
}
// A byte of entry per four columns; then per 32 columns 28 bits of signs and 4 of scale.
IqValue iq3_xxs(const std::byte* block, int32_t column) {
    constexpr int32_t magnitudes[] = {4, 12, 20, 28, 36, 44, 52, 62};
    const uint32_t entry = iq3_xxs_entry(static_cast<uint32_t>(byte_at(block, 2 + column / 4)));
    const uint32_t word = word_at(block, 66 + column / 32 * 4);
    return {magnitudes[entry >> 4 * (column % 4) & 15u],
            sign_of_seven(word >> column % 32 / 8 * 7, column % 8), half_step(word >> 28, 0.5f)};
}
// Eight bits of entry per four columns, the ninth ones after them, then signs, then a nibble of
// scale per 32 columns.
IqValue iq3_s(const std::byte* block, int32_t column) {
    const int32_t high = byte_at(block, 66 + column / 32) >> column % 32 / 4 & 1;
    const uint32_t entry =
        iq3_s_entry(static_cast<uint32_t>(byte_at(block, 2 + column / 4) + 256 * high));
    const int32_t scale = byte_at(block, 106 + column / 64) >> column % 64 / 32 * 4 & 15;
    return {2 * static_cast<int32_t>(entry >> 4 * (column % 4) & 15u) + 1,
            (byte_at(block, 74 + column / 8) >> column % 8 & 1) != 0,
            static_cast<float>(2 * scale + 1)};
}

float iq_value(PackedType type, const std::byte* block, int32_t column) {
    const IqValue value = type == PackedType::iq2_xxs   ? iq2_xxs(block, column)
                          : type == PackedType::iq2_xs  ? iq2_xs(block, column)
                          : type == PackedType::iq3_xxs ? iq3_xxs(block, column)
                                                        : iq3_s(block, column);
    const float scale = f16_at(block, 0) * value.scale;
    return scale * static_cast<float>(value.is_negative ? -value.magnitude : value.magnitude);
}

float ggml_value_of(const PackedScales& scales, const std::byte* record, int32_t column,
                    uint32_t code) {
    const PackedType type = scales.traits.type;
    const auto of_record = static_cast<int32_t>((scales.k0 + column) % scales.traits.group);
    if (scales.traits.codes == CodeKind::none) return iq_value(type, record, of_record);
    const ScaleAndMinimum of = ggml_scale(type, record, of_record);
    return of.scale * static_cast<float>(ggml_level(type, code)) - of.minimum;
}

// --- grids ---------------------------------------------------------------------------------------

float grid_scale_at(GridScale kind, const std::byte* record, int32_t i) {
    switch (kind) {
        case GridScale::f16:
            return f16_at(record, 2 * i);
        case GridScale::bf16:
            return std::bit_cast<float>(static_cast<uint32_t>(byte_at(record, 2 * i)) << 16 |
                                        static_cast<uint32_t>(byte_at(record, 2 * i + 1)) << 24);
        case GridScale::e8m0:
            return e8m0(byte_at(record, i));
        case GridScale::e4m3:
            return e4m3(static_cast<uint32_t>(byte_at(record, i)));
        default:
            return std::bit_cast<float>(word_at(record, 4 * i));
    }
}

int32_t grid_scale_size(GridScale kind) {
    return kind == GridScale::f32 ? 4 : kind == GridScale::f16 || kind == GridScale::bf16 ? 2 : 1;
}

// The zero point of the codes of tile row 8 h + g.
int32_t grid_zero_at(const PackedScales& scales, const std::byte* record, int32_t row) {
    const int32_t bits = scales.traits.bits, g = row % 8, h = row / 8;
    if (scales.grid.zero == GridZero::middle) return 1 << (bits - 1);
    const std::byte* zeros = record + 16 * grid_scale_size(scales.grid.scale);
    const int32_t stored = bits <= 4 ? byte_at(zeros, g) >> 4 * h & 15 : byte_at(zeros, 2 * g + h);
    return scales.grid.zero == GridZero::packed ? stored : stored + 1;
}

float grid_value_of(const PackedScales& scales, int32_t row, int32_t column, uint32_t code) {
    const GridNumbers& grid = scales.grid;
    const int32_t zeros = grid.zero == GridZero::middle ? 0 : scales.traits.bits <= 4 ? 8 : 16;
    const int32_t in_block = grid.group % 64 == 0   ? 0
                             : grid.group % 32 == 0 ? column / 32
                                                    : column / 16;
    const std::byte* record =
        scales.records + in_block * (16 * grid_scale_size(grid.scale) + zeros);
    const float scale = grid_scale_at(grid.scale, record, 2 * (row % 8) + row / 8);
    if (scales.traits.codes == CodeKind::e4m3) return e4m3(code) * scale;
    if (scales.traits.codes == CodeKind::codebook) return scales.tables.codebook[code] * scale;
    return static_cast<float>(static_cast<int32_t>(code) - grid_zero_at(scales, record, row)) *
           scale;
}

// --- codes and the scales of groups --------------------------------------------------------------

float code_value_of(const PackedScales& scales, uint32_t code) {
    switch (scales.traits.codes) {
        case CodeKind::f32:
            return std::bit_cast<float>(code);
        case CodeKind::f16:
            return f16_to_float(static_cast<uint16_t>(code));
        case CodeKind::bf16:
            return std::bit_cast<float>(code << 16);
        case CodeKind::e4m3:
            return e4m3(code);
        case CodeKind::e2m1:
            return e2m1(code);
        case CodeKind::codebook:
            return scales.tables.codebook[code];
        case CodeKind::integer:
            return static_cast<float>(code < 128 ? static_cast<int32_t>(code)
                                                 : static_cast<int32_t>(code) - 256);
        case CodeKind::none:
            break;
    }
    return 0;
}

float group_scale(ScaleScheme scheme, const std::byte* record) {
    switch (scheme) {
        case ScaleScheme::ue5m3:
            return small_float(static_cast<uint32_t>(byte_at(record, 0)), 3, 10, false);
        case ScaleScheme::e8m0:
            return e8m0(byte_at(record, 0));
        case ScaleScheme::e4m4:
            return e4m4(byte_at(record, 0));
        case ScaleScheme::f16:
            return f16_at(record, 0);
        default:
            return std::bit_cast<float>(word_at(record, 0));
    }
}

// Where the record of a row and a column is, in records.
int32_t record_of(const PackedScales& scales, int32_t row, int32_t column) {
    const int32_t g = row % 8, h = row / 8, group = column / scales.traits.group;
    if (scales.traits.scales == ScaleScheme::ggml_superblock) return row;
    if (scales.traits.scales == ScaleScheme::f32_of_8_rows) return 2 * group + h;
    return (g * (64 / scales.traits.group) + group) * 2 + h;
}

}  // namespace

float packed_value_of(const PackedScales& scales, int32_t row, int32_t column, uint32_t code) {
    const PackedTraits& type = scales.traits;
    if (type.scales == ScaleScheme::grid) return grid_value_of(scales, row, column, code);
    if (type.scales == ScaleScheme::none) return code_value_of(scales, code);
    const std::byte* record = scales.records + record_of(scales, row, column) * type.record_bytes;
    if (type.scales == ScaleScheme::ggml_block || type.scales == ScaleScheme::ggml_superblock)
        return ggml_value_of(scales, record, column, code);
    return code_value_of(scales, code) * group_scale(type.scales, record);
}

}  // namespace moe
