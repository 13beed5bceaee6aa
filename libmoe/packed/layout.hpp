// The packed layout, version 2: how a weight matrix lies in device memory, to the byte. It is the
// order of the A operand of mma.m16n8k16, so that a lane's fragment of 16 output rows is one vector
// load; docs/layout.md has the pictures. Host and device agree on it by this header alone.
//
// A matrix [rows, k] is cut into tiles of 16 rows. A tile of a fused gate and up matrix holds eight
// gate rows (0 to 7) and the eight up rows of the same features (8 to 15). A tile is a sequence of
// blocks of 64 k, each its codes, then its scales; columns of the last block that the matrix does
// not have are zero bytes, and kernels multiply them by zeros. Lane l = 4 g + t of a warp
// (g = 0..7, t = 0..3) owns rows g and g + 8 and the 16 contiguous values of k
//     k = k0 + 16 t + 4 j + p,   j = step 0..3, p = 0..3
// so step j of the mma takes from lane t the pairs (p = 0, 1) as its columns 2t, 2t+1 and (2, 3) as
// 2t+8, 2t+9: one permutation of k inside a block, the same for every type. Register a of a step
// (a = 0..3) is M half a & 1 (rows 0-7 or 8-15) and pair a >> 1; its low 16 bits are the even p.
//
// Codes of a block. A lane has 32 of them; code c = 8 j + 2 a + e is half e of register a of step
// j, so row g + 8 (a & 1) and p = 2 (a >> 1) + e. Its 4 x bits bytes are cut, in order, into parts
// of 16 bytes while they last, then of 8 and 4. The same part of all lanes lies together: a part
// of s bytes that begins at byte o of its lane is at 32 o + s l of the block. In little-endian
// words:
//   32, 16, 8 bits   element c of the lane is code c, but not of e4m3
//   e4m3             byte 16 h + 4 j + p of the lane is that of row g + 8 h, step j, and lies at
//                    512 h + 128 j + 4 l + p: eight rows with 16 k of a step are 128 bytes, which
//                    ldmatrix and wgmma read as one matrix
//   nvfp4, mxfp4     word j is step j. Half e of the word has, as sign and magnitude, register 0 in
//                    its bits 15 and 8..6, 1 in 9 and 2..0, 2 in bit 3 of the OTHER half
//                    and 12..10, 3 in 13 and (14, 5, 4)
//   4 bits, plain    word j is step j, a code is nibble N of it
//   2 bits           word i: step 2 i in bits 0, 1 of nibble N, step 2 i + 1 in its bits 2, 3
//   3 bits           words 0 and 1 (part of 8 bytes) and 2 (of 4): word i has step i in bits 0..2
//                    of nibble N; bit 3 of that nibble is bit i of the code of step 3
//   N                4 (a % 2) + 2 e + a / 2 of kbit2, kbit3, iq4_nl and iq4_xs, a + 4 e of the
//                    others
//   1 bit            bit of step j at 4 (a + 4 e) + j of a word
//   5, 6, 7 bits     bits 0..3 as four bits, then the next two, if there are two, as two bits, then
//                    the last, if there is one, as one bit
// Scales of a block: that of row g + 8 h and group s of the block's S = 64 / group is element
// (g S + s) 2 + h; with groups of 16, a lane has its two at 2 l. e4m3: element 2 s + h. Types of
// ggml's blocks of 256 have their superblock scales after the codes of all four blocks of 64: those
// of tile row r are at r times their bytes. traits.hpp says what the scales of a type are; of nvfp4
// and mxfp4:
//   nvfp4   holds every positive e4m3 value exactly; the sign of a scale is in its codes
//   mxfp4   relative to the largest scale of the matrix, which goes into the global scale
// "Zero codes" are codes of magnitude zero; their sign is that of the weight.
#pragma once

#include "libmoe/packed/traits.hpp"

namespace moe {

// The version of tiles, blocks, lanes and the order of arrays, which all types share. The bytes of
// one type have a revision of their own (PackedTraits).
constexpr uint32_t packed_layout_version = 2;

// The nibble of half e of register a.
MOE_HOST_DEVICE constexpr int32_t nibble_of_code(PackedType type, int32_t a, int32_t e) {
    return is_row_ordered(type) ? 4 * (a & 1) + 2 * e + (a >> 1) : a + 4 * e;
}

// Sign codes (kbit5) are kept as sign and magnitude: those from 16 on without bit 4, which is the
// sign, and those below it backwards behind them. Where a codebook is its own mirror, as the
// built-in one is, the values of codes c and c + 16 then differ by their signs
// (codebook_lanes.cuh).
MOE_HOST_DEVICE constexpr uint32_t sign_code(uint32_t code) {
    return code ^ (code < 16 ? 31 : 16);
}

// Bytes of the codes of a block of n steps: 16 rows x 16 n.
MOE_HOST_DEVICE constexpr int32_t block_code_bytes(PackedType type, int32_t n) {
    return 32 * n * code_bits(type);
}

MOE_HOST_DEVICE constexpr int32_t block_bytes(PackedType type, int32_t n) {
    return block_code_bytes(type, n) + block_scale_bytes(type, n);
}

// The columns of a matrix with its padding.
MOE_HOST_DEVICE constexpr int64_t padded_columns(int64_t k) {
    return (k + 63) / 64 * 64;
}

// --- grids: records of scales and zero points stand before the blocks that they serve. A record
// has the scales of the 16 rows as they came, that of row g + 8 h at 2 g + h. Then follow the zero
// points as they came, if there are any: those of codes of up to four bits have row g in the low
// nibble of byte g and row g + 8 in the high one, others a byte at 2 g + h.
//
// A unit is the records of some columns, then the blocks of these columns, so that one copy brings
// both. The last unit of a tile may have fewer blocks.

MOE_HOST_DEVICE constexpr int32_t grid_record_bytes(PackedType type) {
    const int32_t zeros = code_bits(type) <= 4 ? 8 : 16;
    return 16 * grid_scale_bytes(type) + (grid_zero_of(type) == GridZero::middle ? 0 : zeros);
}
// Columns of a record: the largest power of two that divides the group. So a group of 96 columns
// has three records that are alike. A row has a record so often that those behind the first are at
// most a 64th of its bytes.
MOE_HOST_DEVICE constexpr int32_t grid_record_columns(PackedType type) {
    const int32_t group = grid_group(type);
    if (group != 0) return group & -group;
    int32_t blocks = 4;
    while (blocks * block_code_bytes(type, 4) < 64 * grid_record_bytes(type)) blocks *= 2;
    return 64 * blocks;
}
MOE_HOST_DEVICE constexpr int32_t grid_unit_blocks(PackedType type) {
    const int32_t columns = grid_record_columns(type);
    return columns <= 64 ? 1 : columns / 64;
}
// Bytes of a unit before its first block, whose codes begin on what a lane loads at once.
MOE_HOST_DEVICE constexpr int32_t grid_front_bytes(PackedType type) {
    const int32_t columns = grid_record_columns(type);
    const int32_t records = (columns < 64 ? 64 / columns : 1) * grid_record_bytes(type);
    const int32_t alignment = code_bits(type) <= 3 ? 8 : 16;
    return (records + alignment - 1) / alignment * alignment;
}
// From the first record of a block's unit to the record of a column of the block.
MOE_HOST_DEVICE constexpr int32_t grid_record(PackedType type, int32_t column_of_block) {
    if (grid_group(type) % 64 == 0) return 0;
    return column_of_block / grid_record_columns(type) * grid_record_bytes(type);
}

// Bytes of one tile: 16 rows of all k, a multiple of 16. Codes of a block begin on multiples of 16
// bytes; those of a grid of up to three bits on multiples of 8.
MOE_HOST_DEVICE constexpr int64_t tile_bytes(PackedType type, int64_t k) {
    const int64_t blocks = padded_columns(k) / 64, bytes = blocks * block_bytes(type, 4);
    if (!is_grid(type)) return bytes;
    const auto per_unit = static_cast<uint32_t>(grid_unit_blocks(type));
    const int64_t units = (static_cast<uint32_t>(blocks) + per_unit - 1) / per_unit;
    return (bytes + units * grid_front_bytes(type) + 15) / 16 * 16;
}

// Where the block that begins at column k0 has its codes and scales, in bytes from its tile. Types
// with superblock scales keep 256 k together: the codes of four blocks, then the superblock scales
// of 16 rows, which all four blocks share. The scales of a grid are the records of its unit.
struct BlockOffset {
    int64_t codes;
    int64_t scales;
};
MOE_HOST_DEVICE constexpr BlockOffset block_offset(PackedType type, int64_t k0) {
    if (has_superblock(type)) {
        const int64_t codes = block_code_bytes(type, 4);
        const int64_t first = k0 / 256 * (4 * codes + 16 * ggml_scale_bytes(type));
        return {first + k0 % 256 / 64 * codes, first + 4 * codes};
    }
    const auto block = static_cast<uint32_t>(k0) / 64;  // GPUs have no quick division of 64 bits
    if (is_grid(type)) {
        const auto per_unit = static_cast<uint32_t>(grid_unit_blocks(type));
        const uint32_t unit = block / per_unit;
        const int64_t codes = block_code_bytes(type, 4), front = grid_front_bytes(type);
        return {block * codes + (unit + 1) * front, unit * (per_unit * codes + front)};
    }
    const int64_t codes = int64_t{block} * block_bytes(type, 4);
    return {codes, codes + block_code_bytes(type, 4)};
}

// Bytes of the scales that a block of four steps needs: superblock scales count whole.
MOE_HOST_DEVICE constexpr int32_t shared_scale_bytes(PackedType type) {
    return (has_superblock(type) ? 4 : 1) * block_scale_bytes(type, 4);
}

// Where the scale of a row and a group is among those of a block, in scale records.
MOE_HOST_DEVICE constexpr int32_t scale_offset(int32_t tile_row, int32_t group, int32_t groups) {
    return (tile_row % 8 * groups + group) * 2 + tile_row / 8;
}

// The values of a codebook of two or three bits, in order, as signed bytes times `scale`.
struct ByteCodebook {
    uint32_t values[2];  // bytes 0 to 3, 4 to 7
    float scale;         // 0: there is none
};

// The meaning of the table that a matrix may have for its columns. Its kernels know nothing of it:
// the activations are gathered by it before they come to them.
//   order    packed column k is this column of the source (act-order: columns are sorted by group)
//   factors  a float32 that multiplies the activations of column k (pre_quant_scale)
enum class ColumnTable : int8_t { none, order, factors };

// A row is gathered in the shared memory of one SM, where it has to fit as float32.
constexpr int64_t most_table_columns = 24576;

// One matrix per expert, as kernels take it.
struct PackedMatrix {
    const std::byte* data;      // expert 0, tile 0; aligned to 128 bytes
    int64_t expert_stride;      // bytes, a multiple of 128
    const float* global_scale;  // [experts][2], of rows 0 to 7 and 8 to 15 of every tile; null: one
    const float* codebook;      // kbit: [experts][2][32], 2^bits values used, likewise
    const uint32_t* columns;    // [experts][2][k], likewise, both halves the same; null: none
    PackedType type;
    int32_t n_tiles;                        // of 16 rows
    int32_t k;                              // columns with the padding, a multiple of 64
    bool has_one_codebook = false;          // kbit: those of all experts are the same
    bool has_mirrored_codebook = false;     // that one, of sign codes, is its own mirror in float16
    ColumnTable table = ColumnTable::none;  // what columns is
    ByteCodebook byte_codebook{};           // that one, the same for both M halves

    MOE_HOST_DEVICE int64_t tile_stride() const { return tile_bytes(type, k); }
};

}  // namespace moe
