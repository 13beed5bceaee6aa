// The packed types: one row of a table for each, and every question about a type as one line on it.
// A packed type is codes with a scale scheme in the layout of layout.hpp. Host and device.
//
// The grid types also carry numbers of their own (GridNumbers): their scales and groups are those
// of the source. PackedType is a kernel argument, so a grid's numbers share its 32 bits with the
// kind of the type; grid_type() and grid_numbers() are the only places that know how.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "libmoe/base/host_device.hpp"

namespace moe {

// The numbers are indices of packed_traits and are stored nowhere.
enum class PackedType : int32_t {
    none,
    f32,
    f16,
    bf16,
    e4m3,
    nvfp4,
    mxfp4,
    kbit2,
    kbit3,
    kbit4,
    kbit5,
    kbit2_f32,
    kbit3_f32,
    kbit4_f32,
    kbit5_f32,
    q8_0,
    q4_k,
    q5_k,
    q2_k,
    q3_k,
    q6_k,
    iq4_xs,
    iq2_xxs,
    iq2_xs,
    iq3_xxs,
    iq3_s,
    q4_0,
    iq4_nl,
    q5_0,
    q4_1,
    q5_1,
    grid_e4m3,
    grid_1,
    grid_2,
    grid_3,
    grid_4,
    grid_5,
    grid_6,
    grid_7,
    grid_8,
    grid_codebook,
};

// The meaning of a code's bits, before its scale.
enum class CodeKind : int8_t {
    none,  // the whole block is in the scale records (iq2, iq3)
    f32,
    f16,
    bf16,
    e4m3,
    e2m1,
    integer,   // signed (q8_0), or a level of ggml, or counted from a zero point (grids)
    codebook,  // an index into the codebook of its expert
};

// How the codes of rows g and g + 8 of a lane lie: those of up to four bits in a word of eight,
// bytes among the 32 of a lane (layout.hpp).
enum class CodeOrder : int8_t {
    in_turns,  // rows g and g + 8 in turns
    by_rows,   // those of row g, then those of row g + 8
};

// The form of a scale record, and the rows and columns that share it.
enum class ScaleScheme : int8_t {
    none,
    ue5m3,  // a byte: 2^(e-10) (1 + m/8); zero: the codes are zeros
    e8m0,   // a byte: 2^(byte-127); zero: the codes are zeros
    e4m4,   // a byte: 2^(e-11) (1 + m/16), or m 2^-14 for e = 0
    f16,
    f32,
    f32_of_8_rows,    // float32 for 8 rows and 32 columns
    ggml_block,       // ggml's bytes of a row and 32 columns (ggml_scales.hpp)
    ggml_superblock,  // ggml's bytes of a row and 256 columns
    grid,             // records before the blocks that they serve (GridNumbers)
};

struct PackedTraits {
    PackedType type;
    char name[16];
    CodeKind codes;
    int8_t bits;  // of a code
    CodeOrder order;
    bool has_sign_codes;  // codes are kept as sign and magnitude, see sign_code()
    ScaleScheme scales;
    int16_t group;         // columns of a scale record; 0: none, or the grid's own
    int16_t record_bytes;  // of a scale record; 0: none, or the grid's own
    int16_t column_step;   // k comes in multiples of this
    int32_t revision;      // counts the meanings that the bytes of the type have had
};

namespace detail {

constexpr auto make_packed_traits() {
    using T = PackedType;
    using C = CodeKind;
    using S = ScaleScheme;
    constexpr auto turns = CodeOrder::in_turns, rows = CodeOrder::by_rows;
    // clang-format off
    return std::to_array<PackedTraits>({
        // type              name             codes        bits order  signs  scales             group bytes step revision
        {T::none,          "none",          C::none,     0,  turns, false, S::none,             0,   0,  32, 0},
        {T::f32,           "f32",           C::f32,      32, turns, false, S::none,             0,   0,  16, 1},
        {T::f16,           "f16",           C::f16,      16, turns, false, S::none,             0,   0,  16, 1},
        {T::bf16,          "bf16",          C::bf16,     16, turns, false, S::none,             0,   0,  16, 1},
        {T::e4m3,          "e4m3",          C::e4m3,     8,  rows,  false, S::f32_of_8_rows,   32,   4,  16, 2},
        {T::nvfp4,         "nvfp4",         C::e2m1,     4,  turns, false, S::ue5m3,           16,   1,  16, 1},
        {T::mxfp4,         "mxfp4",         C::e2m1,     4,  turns, false, S::e8m0,            32,   1,  32, 1},
        {T::kbit2,         "kbit2",         C::codebook, 2,  rows,  false, S::e4m4,            32,   1,  32, 1},
        {T::kbit3,         "kbit3",         C::codebook, 3,  rows,  false, S::e4m4,            32,   1,  32, 1},
        {T::kbit4,         "kbit4",         C::codebook, 4,  turns, false, S::e4m4,            32,   1,  32, 1},
        {T::kbit5,         "kbit5",         C::codebook, 5,  turns, true,  S::e4m4,            32,   1,  32, 1},
        {T::kbit2_f32,     "kbit2_f32",     C::codebook, 2,  rows,  false, S::f32,             32,   4,  32, 1},
        {T::kbit3_f32,     "kbit3_f32",     C::codebook, 3,  rows,  false, S::f32,             32,   4,  32, 1},
        {T::kbit4_f32,     "kbit4_f32",     C::codebook, 4,  turns, false, S::f32,             32,   4,  32, 1},
        {T::kbit5_f32,     "kbit5_f32",     C::codebook, 5,  turns, true,  S::f32,             32,   4,  32, 1},
        {T::q8_0,          "q8_0",          C::integer,  8,  turns, false, S::f16,             32,   2,  32, 1},
        {T::q4_k,          "q4_k",          C::integer,  4,  turns, false, S::ggml_superblock, 256, 16, 256, 1},
        {T::q5_k,          "q5_k",          C::integer,  5,  turns, false, S::ggml_superblock, 256, 16, 256, 1},
        {T::q2_k,          "q2_k",          C::integer,  2,  turns, false, S::ggml_superblock, 256, 20, 256, 1},
        {T::q3_k,          "q3_k",          C::integer,  3,  turns, false, S::ggml_superblock, 256, 14, 256, 1},
        {T::q6_k,          "q6_k",          C::integer,  6,  turns, false, S::ggml_superblock, 256, 18, 256, 1},
        {T::iq4_xs,        "iq4_xs",        C::integer,  4,  rows,  false, S::ggml_superblock, 256,  8, 256, 2},
        {T::iq2_xxs,       "iq2_xxs",       C::none,     0,  turns, false, S::ggml_superblock, 256, 66, 256, 1},
        {T::iq2_xs,        "iq2_xs",        C::none,     0,  turns, false, S::ggml_superblock, 256, 74, 256, 1},
        {T::iq3_xxs,       "iq3_xxs",       C::none,     0,  turns, false, S::ggml_superblock, 256, 98, 256, 1},
        {T::iq3_s,         "iq3_s",         C::none,     0,  turns, false, S::ggml_superblock, 256, 110, 256, 1},
        {T::q4_0,          "q4_0",          C::integer,  4,  turns, false, S::ggml_block,      32,   2,  32, 1},
        {T::iq4_nl,        "iq4_nl",        C::integer,  4,  rows,  false, S::ggml_block,      32,   2,  32, 2},
        {T::q5_0,          "q5_0",          C::integer,  5,  turns, false, S::ggml_block,      32,   2,  32, 1},
        {T::q4_1,          "q4_1",          C::integer,  4,  turns, false, S::ggml_block,      32,   4,  32, 1},
        {T::q5_1,          "q5_1",          C::integer,  5,  turns, false, S::ggml_block,      32,   4,  32, 1},
        {T::grid_e4m3,     "grid_e4m3",     C::e4m3,     8,  turns, false, S::grid,             0,   0,  16, 2},
        {T::grid_1,        "grid_1",        C::integer,  1,  turns, false, S::grid,             0,   0,  32, 2},
        {T::grid_2,        "grid_2",        C::integer,  2,  turns, false, S::grid,             0,   0,  32, 2},
        {T::grid_3,        "grid_3",        C::integer,  3,  turns, false, S::grid,             0,   0,  32, 2},
        {T::grid_4,        "grid_4",        C::integer,  4,  turns, false, S::grid,             0,   0,  32, 2},
        {T::grid_5,        "grid_5",        C::integer,  5,  turns, false, S::grid,             0,   0,  32, 2},
        {T::grid_6,        "grid_6",        C::integer,  6,  turns, false, S::grid,             0,   0,  32, 2},
        {T::grid_7,        "grid_7",        C::integer,  7,  turns, false, S::grid,             0,   0,  32, 2},
        {T::grid_8,        "grid_8",        C::integer,  8,  turns, false, S::grid,             0,   0,  16, 2},
        {T::grid_codebook, "grid_codebook", C::codebook, 4,  turns, false, S::grid,             0,   0,  32, 2},
    });
    // clang-format on
}

}  // namespace detail

inline constexpr auto packed_traits = detail::make_packed_traits();

static_assert(
    [] {
        for (size_t i = 0; i < packed_traits.size(); ++i)
            if (static_cast<size_t>(packed_traits[i].type) != i) return false;
        return true;
    }(),
    "row i of packed_traits is type i");

// The type without the numbers of a grid.
MOE_HOST_DEVICE constexpr PackedType kind_of(PackedType type) {
    return static_cast<PackedType>(static_cast<int32_t>(type) & 0xFF);
}

// The row of a type. Device code reads it where the type is known when it is compiled; for types
// that it is given as arguments it has the questions below that are MOE_HOST_DEVICE.
constexpr const PackedTraits& traits(PackedType type) {
    return packed_traits[static_cast<size_t>(kind_of(type))];
}

namespace detail {

// The numbers of the types whose rows answer a question with yes.
template <bool (*question)(const PackedTraits&)>
struct Answer {
    static constexpr int32_t n_rows = static_cast<int32_t>(packed_traits.size());

    static constexpr bool of_row(int32_t i) {
        return question(packed_traits[static_cast<size_t>(i)]);
    }
    static constexpr int32_t count() {
        int32_t count = 0;
        for (int32_t i = 0; i < n_rows; ++i) count += of_row(i);
        return count;
    }
    static constexpr int32_t number(int32_t nth) {
        for (int32_t i = 0;; ++i)
            if (of_row(i) && nth-- == 0) return i;
    }
    static constexpr bool is_of_grids() {
        for (int32_t i = 0; i < n_rows; ++i)
            if (of_row(i) && packed_traits[static_cast<size_t>(i)].scales == ScaleScheme::grid)
                return true;
        return false;
    }
};

template <class Rows, int32_t... nth>
MOE_HOST_DEVICE constexpr bool is_one_of(int32_t number, std::integer_sequence<int32_t, nth...>) {
    return (... || (number == std::integral_constant<int32_t, Rows::number(nth)>::value));
}

// The answer for a type that may be known at run time alone, on the device, too, where the table
// has no address: constants of the table to compare with, two where the types happen to follow
// each other.
template <bool (*question)(const PackedTraits&)>
MOE_HOST_DEVICE constexpr bool answer(PackedType type) {
    using Rows = Answer<question>;
    constexpr int32_t count = Rows::count();
    constexpr int32_t first = Rows::number(0), last = Rows::number(count - 1);
    const auto number = static_cast<int32_t>(Rows::is_of_grids() ? kind_of(type) : type);
    if constexpr (last - first == count - 1)
        return number >= first && (last == Rows::n_rows - 1 || number <= last);
    else
        return is_one_of<Rows>(number, std::make_integer_sequence<int32_t, count>{});
}

constexpr bool is_superblock(const PackedTraits& row) {
    return row.scales == ScaleScheme::ggml_superblock;
}
constexpr bool is_ggml(const PackedTraits& row) {
    return is_superblock(row) || row.scales == ScaleScheme::ggml_block;
}
constexpr bool is_iq(const PackedTraits& row) {
    return is_superblock(row) && row.codes == CodeKind::none;
}
constexpr bool is_grid(const PackedTraits& row) {
    return row.scales == ScaleScheme::grid;
}
constexpr bool is_e2m1(const PackedTraits& row) {
    return row.codes == CodeKind::e2m1;
}
constexpr bool has_codebook(const PackedTraits& row) {
    return row.codes == CodeKind::codebook;
}
constexpr bool has_f32_scales(const PackedTraits& row) {
    return row.scales == ScaleScheme::f32;
}
constexpr bool is_row_ordered(const PackedTraits& row) {
    return row.order == CodeOrder::by_rows;
}
constexpr bool has_sign_codes(const PackedTraits& row) {
    return row.has_sign_codes;
}

}  // namespace detail

MOE_HOST_DEVICE constexpr bool is_grid(PackedType type) {
    return detail::answer<detail::is_grid>(type);
}
// Are scale records ggml's bytes, for 32 columns or for 256?
MOE_HOST_DEVICE constexpr bool has_ggml_scales(PackedType type) {
    return detail::answer<detail::is_ggml>(type);
}
// Is there one scale record for 256 columns?
MOE_HOST_DEVICE constexpr bool has_superblock(PackedType type) {
    return detail::answer<detail::is_superblock>(type);
}
// Is the scale record the whole block, with no codes apart?
MOE_HOST_DEVICE constexpr bool is_iq_grid(PackedType type) {
    return detail::answer<detail::is_iq>(type);
}
MOE_HOST_DEVICE constexpr bool is_e2m1(PackedType type) {
    return detail::answer<detail::is_e2m1>(type);
}
// Are codes indices into a codebook of their expert?
MOE_HOST_DEVICE constexpr bool has_codebook(PackedType type) {
    return detail::answer<detail::has_codebook>(type);
}
// Are scales float32, one for a row and a group?
MOE_HOST_DEVICE constexpr bool has_f32_scales(PackedType type) {
    return detail::answer<detail::has_f32_scales>(type);
}
MOE_HOST_DEVICE constexpr bool is_row_ordered(PackedType type) {
    return detail::answer<detail::is_row_ordered>(type);
}
MOE_HOST_DEVICE constexpr bool has_sign_codes(PackedType type) {
    return detail::answer<detail::has_sign_codes>(type);
}
// Columns come in multiples of this.
constexpr int32_t column_step(PackedType type) {
    return traits(type).column_step;
}

// --- grids ---------------------------------------------------------------------------------------

enum class GridScale : int32_t { f32, f16, bf16, e8m0, e4m3 };
// The number that codes count from: the middle of their range, or the one stored, or one more.
enum class GridZero : int32_t { middle, packed, packed_minus_one };

struct GridNumbers {
    GridScale scale;
    GridZero zero;
    int32_t group;  // columns, a multiple of 16; 0 for all
};

constexpr int32_t most_grid_group = 16 * 0x7FFF;

// Bits 0 to 7 are the kind, 8 to 11 the scale, 12 and 13 the zero point, and those from 16 on are
// the group in units of 16.
MOE_HOST_DEVICE constexpr PackedType grid_type(PackedType kind, GridScale scale, GridZero zero,
                                               int32_t group) {
    return static_cast<PackedType>(static_cast<int32_t>(kind) | static_cast<int32_t>(scale) << 8 |
                                   static_cast<int32_t>(zero) << 12 | group / 16 << 16);
}
MOE_HOST_DEVICE constexpr GridNumbers grid_numbers(PackedType type) {
    const auto bits = static_cast<int32_t>(type);
    return {static_cast<GridScale>(bits >> 8 & 15), static_cast<GridZero>(bits >> 12 & 3),
            bits >> 16 << 4};
}

MOE_HOST_DEVICE constexpr GridScale grid_scale_of(PackedType type) {
    return grid_numbers(type).scale;
}
MOE_HOST_DEVICE constexpr GridZero grid_zero_of(PackedType type) {
    return grid_numbers(type).zero;
}
MOE_HOST_DEVICE constexpr int32_t grid_group(PackedType type) {
    return grid_numbers(type).group;
}
MOE_HOST_DEVICE constexpr int32_t grid_scale_bytes(PackedType type) {
    const GridScale scale = grid_scale_of(type);
    if (scale == GridScale::f32) return 4;
    return scale == GridScale::f16 || scale == GridScale::bf16 ? 2 : 1;
}

// --- sizes ---------------------------------------------------------------------------------------

// Numbers of a type that kernels ask for at run time. The device has no table to read then, so they
// stand once more as switches, which compile to fewer instructions than constants made of the table
// do; the assertion below holds them to it.
namespace device {

MOE_HOST_DEVICE constexpr int32_t ggml_scale_bytes(PackedType type) {
    switch (type) {
        case PackedType::q4_0:
        case PackedType::iq4_nl:
        case PackedType::q5_0:
            return 2;
        case PackedType::q4_1:
        case PackedType::q5_1:
            return 4;
        case PackedType::iq4_xs:
            return 8;
        case PackedType::q3_k:
            return 14;
        case PackedType::q4_k:
        case PackedType::q5_k:
            return 16;
        case PackedType::q6_k:
            return 18;
        case PackedType::q2_k:
            return 20;
        case PackedType::iq2_xxs:
            return 66;
        case PackedType::iq2_xs:
            return 74;
        case PackedType::iq3_xxs:
            return 98;
        case PackedType::iq3_s:
            return 110;
        default:
            return 0;
    }
}

MOE_HOST_DEVICE constexpr int32_t code_bits(PackedType type) {
    switch (kind_of(type)) {
        case PackedType::f32:
            return 32;
        case PackedType::f16:
        case PackedType::bf16:
            return 16;
        case PackedType::e4m3:
        case PackedType::q8_0:
        case PackedType::grid_e4m3:
        case PackedType::grid_8:
            return 8;
        case PackedType::kbit2:
        case PackedType::kbit2_f32:
        case PackedType::q2_k:
        case PackedType::grid_2:
            return 2;
        case PackedType::kbit3:
        case PackedType::kbit3_f32:
        case PackedType::q3_k:
        case PackedType::grid_3:
            return 3;
        case PackedType::kbit5:
        case PackedType::kbit5_f32:
        case PackedType::q5_k:
        case PackedType::q5_0:
        case PackedType::q5_1:
        case PackedType::grid_5:
            return 5;
        case PackedType::q6_k:
        case PackedType::grid_6:
            return 6;
        case PackedType::grid_7:
            return 7;
        case PackedType::grid_1:
            return 1;
        default:
            return is_iq_grid(type) ? 0 : 4;
    }
}

MOE_HOST_DEVICE constexpr int32_t block_scale_bytes(PackedType type, int32_t n) {
    if (has_ggml_scales(type))
        return has_superblock(type) ? n * ggml_scale_bytes(type) : 8 * n * ggml_scale_bytes(type);
    switch (type) {
        case PackedType::nvfp4:
            return 16 * n;
        case PackedType::mxfp4:
        case PackedType::kbit2:
        case PackedType::kbit3:
        case PackedType::kbit4:
        case PackedType::kbit5:
            return 8 * n;
        case PackedType::kbit2_f32:
        case PackedType::kbit3_f32:
        case PackedType::kbit4_f32:
        case PackedType::kbit5_f32:
            return 32 * n;
        case PackedType::q8_0:
            return 16 * n;
        case PackedType::e4m3:
            return 16;
        default:
            return 0;
    }
}

}  // namespace device

// Bits of a code.
MOE_HOST_DEVICE constexpr int32_t code_bits(PackedType type) {
#if defined(__CUDA_ARCH__)
    return device::code_bits(type);
#else
    return traits(type).bits;
#endif
}
// Bytes of ggml's scale record of a row; 0 of other types.
MOE_HOST_DEVICE constexpr int32_t ggml_scale_bytes(PackedType type) {
#if defined(__CUDA_ARCH__)
    return device::ggml_scale_bytes(type);
#else
    return has_ggml_scales(type) ? traits(type).record_bytes : 0;
#endif
}
// Bytes of the scales of a block of n steps, 16 rows x 16 n columns; those of a superblock count by
// their share of its 256 columns. Those of a grid stand before its blocks.
MOE_HOST_DEVICE constexpr int32_t block_scale_bytes(PackedType type, int32_t n) {
#if defined(__CUDA_ARCH__)
    return device::block_scale_bytes(type, n);
#else
    const PackedTraits& row = traits(type);
    if (row.group == 0) return 0;
    if (row.scales == ScaleScheme::f32_of_8_rows) return 4 * row.record_bytes;
    return 16 * 16 * n * row.record_bytes / row.group;
#endif
}

static_assert(
    [] {
        for (const PackedTraits& row : packed_traits) {
            if (row.type == PackedType::none) continue;
            if (device::code_bits(row.type) != code_bits(row.type)) return false;
            if (device::ggml_scale_bytes(row.type) != ggml_scale_bytes(row.type)) return false;
            for (const int32_t n : {2, 4})
                if (device::block_scale_bytes(row.type, n) != block_scale_bytes(row.type, n))
                    return false;
        }
        return true;
    }(),
    "a switch for the device differs from packed_traits: give it the new type");

// --- names and revisions -------------------------------------------------------------------------

constexpr std::string_view packed_type_name(PackedType type) {
    return traits(type).name;
}

constexpr int32_t packed_revision(PackedType type) {
    return traits(type).revision;
}

// The revision of the type of a name; 0 where there is none.
constexpr int32_t packed_revision(std::string_view name) {
    for (const PackedTraits& row : packed_traits)
        if (name == row.name) return row.revision;
    return 0;
}

}  // namespace moe
