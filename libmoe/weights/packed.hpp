// The packed layout, version 2: how a weight matrix lies in device memory, to the byte. It is the
// order of the A operand of mma.m16n8k16, so that a lane's fragment of 16 output rows is one vector
// load; docs/layout.md has the pictures. Host and device agree on it by this header alone.
//
// A matrix [rows, k] is cut into tiles of 16 rows. A tile of a fused gate and up matrix holds eight
// gate rows (0 to 7) and the eight up rows of the same features (8 to 15). A tile is a sequence of
// blocks along k: blocks of 64 k, then one of 32 if bit 5 of k is set, then one of 16 if bit 4 is.
// A block of n steps (n = 4, 2, 1; 16 n values of k) is its codes, then its scales. Lane l = 4 g +
// t of a warp (g = 0..7, t = 0..3) owns rows g and g + 8 and the 4 n contiguous values of k
//     k = k0 + 4 n t + 4 j + p,   j = step 0..n-1, p = 0..3
// so step j of the mma takes from lane t the pairs (p = 0, 1) as its columns 2t, 2t+1 and (2, 3) as
// 2t+8, 2t+9: one permutation of k inside a block, the same for every type. Register a of a step
// (a = 0..3) is row half a & 1 and pair a >> 1; its low half is the even p.
//
// Codes of a block. A lane has 8 n of them; code c = 8 j + 2 a + e is half e of register a of step
// j, so row g + 8 (a & 1) and p = 2 (a >> 1) + e. Its n x bits bytes are cut, in order, into parts
// of 16 bytes while they last, then of 8, 4 and 2. The same part of all lanes lies together: a part
// of s bytes that begins at byte o of its lane is at 32 o + s l of the block. In little-endian
// words:
//   32, 16, 8 bits   element c of the lane is code c
//   nvfp4, mxfp4     word j is step j. Half e of the word has, as sign and magnitude, register 0 in
//                    its bits 15 and 8..6, 1 in 9 and 2..0, 2 in bit 3 of the OTHER half
//                    and 12..10, 3 in 13 and (14, 5, 4)
//   4 bits, plain    word j is step j, a code is nibble a + 4 e of it
//   2 bits           word i: step 2 i in bits 0, 1 of nibble N, step 2 i + 1 in its bits 2, 3
//   3 bits, n = 4    words 0 and 1 (part of 8 bytes) and 2 (of 4): word i has step i in bits 0..2
//                    of nibble N; bit 3 of that nibble is bit i of the code of step 3
//   3 bits, n = 2    a word as above for step 0, bit 3 being bit 0 of the code of step 1; then 16
//                    bits: bits 1 and 2 of step 1 at 4 (N % 4) + 2 (N / 4) and the next
//   N                4 (a % 2) + 2 e + a / 2 of kbit2 and kbit3, a + 4 e of the others
//   1 bit            bit of step j at 4 (a + 4 e) + j of a word (n = 4) or 4 a + 2 e + j of 16 bits
//   5, 6, 7 bits     bits 0..3 as four bits, then the next two, if there are two, as two bits, then
//                    the last, if there is one, as one bit
// Scales of a block: that of row g + 8 h and group s of the block's S = 16 n / group is element
// (g S + s) 2 + h; with four steps and groups of 16, a lane has its two at 2 l. e4m3: element 2 s +
// h; blocks of fewer than four steps hold the pair twice. Types of ggml's blocks of 256 have the
// head of tile row r at r times its bytes, after the codes of all four blocks of 64.
// Types with groups of 32 have k in multiples of 32, so no block of one step; those of 256 in
// multiples of 256. "Zero codes" are codes of magnitude zero; their sign is that of the weight.
#pragma once

#include <cstddef>
#include <cstdint>

#include "libmoe/base/host_device.hpp"

namespace moe {

constexpr uint32_t packed_layout_version = 2;

// Codes with their scale scheme. Kinds of scales, per row and group of k:
//   nvfp4   one byte per 16: exponent 5 bits, mantissa 3, value 2^(e-10) (1 + m/8); a zero scale is
//           zero codes. Holds every positive e4m3 value exactly.
//   mxfp4   one byte per 32: 2^(byte-127) relative to the largest of the matrix, which goes into
//           the global scale; byte 0: zero codes.
//   kbit    one byte per 32 in E4M4 (bias 11); kbit*_f32: one float32 per 32
//   e4m3    float32 per 8 rows and 32 k (a source group of 128 x 128 is repeated)
//   q8_0    float16 per 32
//   q4_k and after   ggml's heads as they are (ggml_scales.hpp), what a block has beside its
//   codes:
//           per 256 k, or, from q4_0 on, per 32. The iq2 and iq3 blocks are all head.
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
    // Kinds of grids; a type is one of them with the numbers of grid_type().
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

MOE_HOST_DEVICE constexpr PackedType kind_of(PackedType type) {
    return static_cast<PackedType>(static_cast<int32_t>(type) & 0xFF);
}

MOE_HOST_DEVICE constexpr bool is_grid(PackedType type) {
    return kind_of(type) >= PackedType::grid_e4m3;
}

MOE_HOST_DEVICE constexpr bool has_ggml_scales(PackedType type) {
    return type >= PackedType::q4_k && type <= PackedType::q5_1;
}
// Heads of 256 k, or of 32?
MOE_HOST_DEVICE constexpr bool has_superblock(PackedType type) {
    return type >= PackedType::q4_k && type <= PackedType::iq3_s;
}
// Heads that are the whole block: no codes apart.
MOE_HOST_DEVICE constexpr bool is_iq_grid(PackedType type) {
    return type >= PackedType::iq2_xxs && type <= PackedType::iq3_s;
}

// Bytes of the head of a row.
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

// Bits of a code.
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

MOE_HOST_DEVICE constexpr bool is_e2m1(PackedType type) {
    return type == PackedType::nvfp4 || type == PackedType::mxfp4;
}

// Are codes indices into a codebook of their expert?
MOE_HOST_DEVICE constexpr bool has_codebook(PackedType type) {
    return (type >= PackedType::kbit2 && type <= PackedType::kbit5_f32) ||
           kind_of(type) == PackedType::grid_codebook;
}

// Codes of kbit2 and kbit3 lie by rows: of a word of nibbles, row g has the first four and row
// g + 8 the others, where other types have the rows in turns.
MOE_HOST_DEVICE constexpr bool is_row_ordered(PackedType type) {
    return type == PackedType::kbit2 || type == PackedType::kbit3 ||
           type == PackedType::kbit2_f32 || type == PackedType::kbit3_f32;
}
// The nibble of half e of register a, and where a 16-bit form has its two bits.
MOE_HOST_DEVICE constexpr int32_t nibble_of_code(PackedType type, int32_t a, int32_t e) {
    return is_row_ordered(type) ? 4 * (a & 1) + 2 * e + (a >> 1) : a + 4 * e;
}
MOE_HOST_DEVICE constexpr int32_t pair_of_nibble(int32_t nibble) {
    return 4 * (nibble & 3) + 2 * (nibble >> 2);
}

// Codes of kbit5 are kept as sign and magnitude: those from 16 on without bit 4, which is the sign,
// and those below it backwards behind them. Where a codebook is its own mirror, as the built-in one
// is, the values of codes c and c + 16 then differ by their signs (codebook_lanes.cuh).
MOE_HOST_DEVICE constexpr bool has_sign_codes(PackedType type) {
    return type == PackedType::kbit5 || type == PackedType::kbit5_f32;
}
MOE_HOST_DEVICE constexpr uint32_t sign_code(uint32_t code) {
    return code ^ (code < 16 ? 31 : 16);
}

// Bytes of the codes of a block of n steps: 16 rows x 16 n.
MOE_HOST_DEVICE constexpr int32_t block_code_bytes(PackedType type, int32_t n) {
    return 32 * n * code_bits(type);
}

// Bytes of the scales that follow the codes; of long heads a quarter: they follow every fourth
// block, see below.
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

MOE_HOST_DEVICE constexpr int32_t block_bytes(PackedType type, int32_t n) {
    return block_code_bytes(type, n) + block_scale_bytes(type, n);
}

// --- grids: codes under a scale, and perhaps a zero point, for a row and a group of any multiple
// of 16 columns, or all. A tile begins with a record for each group: the scales of its 16 rows, row
// g + 8 h at 2 g + h, as they came; then zero points as they came, of codes of up to four bits in
// the low nibble of byte g that of row g, in the high one that of row g + 8, else a byte at 2 g +
// h. Some have a table of columns beside their matrices (PackedMatrix::columns).

enum class GridScale : int32_t { f32, f16, bf16, e8m0, e4m3 };
// What codes count from: the middle of their range, or what is stored, or one more.
enum class GridZero : int32_t { middle, packed, packed_minus_one };
// What the table says of a column: its group, or a float32 that multiplies its weights. none: no
// table.
enum class GridColumns : int32_t { none, groups, factors };

// group: columns, 0 for all.
MOE_HOST_DEVICE constexpr PackedType grid_type(PackedType kind, GridScale scale, GridZero zero,
                                               int32_t group,
                                               GridColumns columns = GridColumns::none) {
    return static_cast<PackedType>(static_cast<int32_t>(kind) | static_cast<int32_t>(scale) << 8 |
                                   static_cast<int32_t>(zero) << 12 |
                                   static_cast<int32_t>(columns) << 14 | group / 16 << 16);
}
constexpr int32_t most_grid_group = 16 * 0x7FFF;

MOE_HOST_DEVICE constexpr GridScale grid_scale_of(PackedType type) {
    return static_cast<GridScale>(static_cast<int32_t>(type) >> 8 & 15);
}
MOE_HOST_DEVICE constexpr GridZero grid_zero_of(PackedType type) {
    return static_cast<GridZero>(static_cast<int32_t>(type) >> 12 & 3);
}
MOE_HOST_DEVICE constexpr GridColumns grid_columns_of(PackedType type) {
    return is_grid(type) ? static_cast<GridColumns>(static_cast<int32_t>(type) >> 14 & 3)
                         : GridColumns::none;
}
MOE_HOST_DEVICE constexpr int32_t grid_group(PackedType type) {
    return static_cast<int32_t>(type) >> 16 << 4;
}

MOE_HOST_DEVICE constexpr int32_t grid_scale_bytes(PackedType type) {
    const GridScale scale = grid_scale_of(type);
    if (scale == GridScale::f32) return 4;
    return scale == GridScale::f16 || scale == GridScale::bf16 ? 2 : 1;
}
MOE_HOST_DEVICE constexpr int32_t grid_record_bytes(PackedType type) {
    const int32_t zeros = code_bits(type) <= 4 ? 8 : 16;
    return 16 * grid_scale_bytes(type) + (grid_zero_of(type) == GridZero::middle ? 0 : zeros);
}
// The record of a column.
MOE_HOST_DEVICE constexpr int64_t grid_record(PackedType type, int64_t column) {
    const int32_t group = grid_group(type);
    return (group == 0 ? 0 : column / group) * grid_record_bytes(type);
}

// Bytes before the first block of a tile.
MOE_HOST_DEVICE constexpr int64_t tile_front_bytes(PackedType type, int64_t k) {
    if (!is_grid(type)) return 0;
    return (grid_record(type, k - 1) + grid_record_bytes(type) + 15) / 16 * 16;
}

// Columns come in multiples of this.
MOE_HOST_DEVICE constexpr int32_t column_step(PackedType type) {
    if (has_superblock(type)) return 256;
    if (type == PackedType::mxfp4 || type == PackedType::q8_0) return 32;
    return code_bits(type) >= 8 || type == PackedType::nvfp4 ? 16 : 32;
}

// Bytes of one tile: 16 rows of all k. Codes and scales of a block begin on multiples of 16 bytes.
MOE_HOST_DEVICE constexpr int64_t tile_bytes(PackedType type, int64_t k) {
    return tile_front_bytes(type, k) + k / 64 * block_bytes(type, 4) +
           (k & 32 ? block_bytes(type, 2) : 0) + (k & 16 ? block_bytes(type, 1) : 0);
}

constexpr int64_t any_k = 16;  // for types without a front, whose places do not depend on k

// Where the block that begins at k0 of k columns has its codes and scales, in bytes from its tile.
// Types with long heads keep 256 k together: the codes of four blocks, then 16 heads, row after
// row, which all four share. Those of a grid are at the front of the tile.
struct BlockOffset {
    int64_t codes;
    int64_t scales;
};
MOE_HOST_DEVICE constexpr BlockOffset block_offset(PackedType type, int64_t k, int64_t k0,
                                                   int32_t n) {
    if (has_superblock(type)) {
        const int64_t codes = block_code_bytes(type, 4);
        const int64_t first = k0 / 256 * (4 * codes + 16 * ggml_scale_bytes(type));
        return {first + k0 % 256 / 64 * codes, first + 4 * codes};
    }
    const int64_t full = tile_front_bytes(type, k) + k0 / 64 * block_bytes(type, 4);
    const int64_t codes = full + (n == 1 && (k0 & 32) ? block_bytes(type, 2) : 0);
    return {codes, is_grid(type) ? 0 : codes + block_code_bytes(type, n)};
}

// Bytes of the scales that a block of four steps needs: of a long head all.
MOE_HOST_DEVICE constexpr int32_t shared_scale_bytes(PackedType type) {
    return (has_superblock(type) ? 4 : 1) * block_scale_bytes(type, 4);
}

// Steps of the block that begins at k0 of a matrix of k columns; 0 past the end.
MOE_HOST_DEVICE constexpr int32_t steps_of_block(int64_t k0, int64_t k) {
    const int64_t left = k - k0;
    return left >= 64 ? 4 : left >= 32 ? 2 : left >= 16 ? 1 : 0;
}

// The values of a codebook of two or three bits, in order, as signed bytes times `scale`.
struct ByteCodebook {
    uint32_t values[2];  // bytes 0 to 3, 4 to 7
    float scale;         // 0: there is none
};

// One matrix per expert, as kernels take it.
struct PackedMatrix {
    const std::byte* data;      // expert 0, tile 0; aligned to 128 bytes
    int64_t expert_stride;      // bytes
    const float* global_scale;  // [experts][2], of rows 0 to 7 and 8 to 15 of every tile; null: one
    const float* codebook;      // kbit: [experts][2][32], 2^bits values used, likewise
    const uint32_t* columns;    // grids: [experts][2][k], likewise (GridColumns); null: none
    PackedType type;
    int32_t n_tiles;                     // of 16 rows
    int32_t k;                           // columns, a multiple of 16
    bool has_one_codebook = false;       // kbit: those of all experts are the same
    bool has_mirrored_codebook = false;  // that one, of sign codes, is its own mirror in float16
    ByteCodebook byte_codebook{};        // that one, the same for both halves of rows

    MOE_HOST_DEVICE int64_t tile_stride() const { return tile_bytes(type, k); }
    // Of rows 0 to 7, half 0, or 8 to 15; null if there are none.
    MOE_HOST_DEVICE const uint32_t* columns_of(int64_t expert, int32_t half) const {
        return columns ? columns + (2 * expert + half) * k : nullptr;
    }
};

}  // namespace moe
