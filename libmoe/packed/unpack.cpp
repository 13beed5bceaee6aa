// unpack(): block by block and lane by lane, the bytes of a lane are gathered and its codes read
// out of them, then turned into values (unpack_values.cpp).
#include "libmoe/packed/unpack.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace moe {
namespace {

bool are_bytes_by_rows(const PackedTraits& type) {
    return type.bits == 8 && type.order == CodeOrder::by_rows;
}

// The codes of a lane in a block, in the order of its bytes.
using LaneBytes = std::array<std::byte, 128>;

LaneBytes lane_bytes(const PackedTraits& type, const std::byte* codes, int32_t lane) {
    const int32_t count = 4 * type.bits;
    LaneBytes bytes{};
    if (are_bytes_by_rows(type)) {
        for (int32_t i = 0; i < 8; ++i)
            std::memcpy(&bytes[static_cast<size_t>(4 * i)], codes + 128 * i + 4 * lane, 4);
        return bytes;
    }
    for (int32_t begin = 0, size = 16; begin < count; begin += size) {
        while (size > count - begin) size /= 2;
        std::memcpy(&bytes[static_cast<size_t>(begin)], codes + 32 * begin + lane * size,
                    static_cast<size_t>(size));
    }
    return bytes;
}

uint32_t little_endian(const LaneBytes& bytes, int32_t begin, int32_t count) {
    uint32_t value = 0;
    for (int32_t i = count - 1; i >= 0; --i)
        value = value << 8 | static_cast<uint32_t>(bytes[static_cast<size_t>(begin + i)]);
    return value;
}

// Half e of register a of step j.
struct Element {
    int32_t j, a, e;
};

// The register is a shift or rotation of the word of its step, its half a sign and a magnitude
// where bfloat16 has them.
uint32_t e2m1_code(const LaneBytes& bytes, const Element& at) {
    const uint32_t w = little_endian(bytes, 4 * at.j, 4);
    const uint32_t registers[4] = {w & 0x81C081C0u, w << 6 & 0x81C081C0u,
                                   std::rotr(w, 4) & 0x81C081C0u,
                                   (w << 2 & 0x80C080C0u) | (std::rotr(w, 6) & 0x01000100u)};
    const uint32_t half = registers[at.a] >> 16 * at.e & 0xFFFFu;
    return half >> 15 << 3 | (half >> 6 & 7u);
}

int32_t nibble_of(CodeOrder order, const Element& at) {
    if (order == CodeOrder::by_rows) return 4 * (at.a % 2) + 2 * at.e + at.a / 2;
    return at.a + 4 * at.e;
}

// Three steps in the low three bits of the nibbles of a word each, the last one in the fourth bits.
uint32_t code_of_3_bits(const LaneBytes& bytes, CodeOrder order, const Element& at) {
    const int32_t nibble = nibble_of(order, at);
    const auto bits = [&](int32_t word) { return little_endian(bytes, 4 * word, 4) >> 4 * nibble; };
    if (at.j < 3) return bits(at.j) & 7u;
    return (bits(0) >> 3 & 1u) | (bits(1) >> 3 & 1u) << 1 | (bits(2) >> 3 & 1u) << 2;
}

// Codes of other widths: their low four bits first, of all steps, then two bits, then one.
uint32_t code_of_parts(const LaneBytes& bytes, int32_t bits, CodeOrder order, const Element& at) {
    const int32_t nibble = nibble_of(order, at);
    uint32_t code = 0;
    int32_t have = 0, begin = 0;
    if (bits >= 4) {
        code = little_endian(bytes, 4 * at.j, 4) >> 4 * nibble & 15u;
        have = 4;
        begin = 4 * 4;
    }
    if (bits - have >= 2) {
        const uint32_t word = little_endian(bytes, begin + at.j / 2 * 4, 4);
        code |= (word >> (4 * nibble + 2 * (at.j % 2)) & 3u) << have;
        have += 2;
        begin += 2 * 4;
    }
    if (bits == have) return code;
    const uint32_t ones = little_endian(bytes, begin, 4);
    return code | (ones >> (4 * (at.a + 4 * at.e) + at.j) & 1u) << have;
}

uint32_t code_at(const PackedTraits& type, const LaneBytes& bytes, const Element& at) {
    if (type.bits == 0) return 0;
    if (are_bytes_by_rows(type))
        return little_endian(bytes, 16 * (at.a % 2) + 4 * at.j + 2 * (at.a / 2) + at.e, 1);
    if (type.bits >= 8) {
        const int32_t size = type.bits / 8;
        return little_endian(bytes, (8 * at.j + 2 * at.a + at.e) * size, size);
    }
    if (type.codes == CodeKind::e2m1) return e2m1_code(bytes, at);
    if (type.bits == 3) return code_of_3_bits(bytes, type.order, at);
    return code_of_parts(bytes, type.bits, type.order, at);
}

struct Block {
    int64_t k0;
    int64_t codes, scales;  // offsets in the tile
};

// The blocks of a tile one after the other, each where the one before ended.
class Blocks {
  public:
    Blocks(PackedType type, int64_t k) : traits_(traits(type)), grid_(grid_numbers(type)), k_(k) {}

    bool next(Block& block) {
        if (at_ >= k_) return false;
        const int64_t codes = int64_t{32} * 4 * traits_.bits;
        if (traits_.scales == ScaleScheme::grid && at_ % unit_columns() == 0) {
            records_ = end_;
            end_ += round_up(record_bytes(), traits_.bits < 4 ? 8 : 16);
        }
        block = {at_, end_, records_};
        if (traits_.scales == ScaleScheme::ggml_superblock) {
            block.scales = end_ + codes * (4 - at_ / 64 % 4);
            end_ += codes + (at_ / 64 % 4 == 3 ? 16 * traits_.record_bytes : 0);
        } else if (traits_.scales != ScaleScheme::grid) {
            block.scales = end_ + codes;
            end_ = block.scales + scale_bytes();
        } else {
            end_ += codes;
        }
        at_ += 64;
        return true;
    }
    // The bytes of the tile, once there is no next block.
    int64_t bytes() const { return round_up(end_, 16); }

  private:
    static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

    // A grid's unit has so many columns, and records of record_bytes(). A row has a record for
    // every 256 columns or more, so that 64 records are no more than the codes of their columns.
    int64_t unit_columns() const {
        int64_t columns = 64;
        if (grid_.group != 0) {
            while (grid_.group % (2 * columns) == 0) columns *= 2;
            return columns;
        }
        columns = 256;
        while (2 * columns * traits_.bits < 64 * record_bytes()) columns *= 2;
        return columns;
    }
    int64_t record_bytes() const {
        const int64_t zeros = grid_.zero == GridZero::middle ? 0 : traits_.bits <= 4 ? 8 : 16;
        const int64_t scale = grid_.scale == GridScale::f32    ? 4
                              : grid_.scale == GridScale::f16  ? 2
                              : grid_.scale == GridScale::bf16 ? 2
                                                               : 1;
        const int64_t records = grid_.group % 64 == 0 ? 1 : grid_.group % 32 == 0 ? 2 : 4;
        return records * (16 * scale + zeros);
    }
    int64_t scale_bytes() const {
        if (traits_.scales == ScaleScheme::none) return 0;
        if (traits_.scales == ScaleScheme::f32_of_8_rows) return 4 * traits_.record_bytes;
        return int64_t{16} * (64 / traits_.group) * traits_.record_bytes;
    }

    const PackedTraits& traits_;
    GridNumbers grid_;
    int64_t k_, end_ = 0, at_ = 0, records_ = 0;
};

struct Matrix32 {
    float* out;
    int64_t k, row, n_rows;  // row of the tile's row `first`, of n_rows
    int32_t first;

    // Where tile row r has column k of the tile; null of rows of the other half.
    float* at(int32_t r, int64_t column) const {
        if (r < first || r >= first + n_rows) return nullptr;
        return out + (row + r - first) * k + column;
    }
};

int64_t source_column(const PackedTables& tables, int64_t column) {
    return tables.table == ColumnTable::order ? int64_t{tables.columns[column]} : column;
}

void unpack_block(const std::byte* tile, PackedType type, const Block& block,
                  const PackedTables& tables, const Matrix32& to) {
    const PackedTraits& row = traits(type);
    const PackedScales scales{row, grid_numbers(type), tile + block.scales, tables, block.k0};
    for (int32_t lane = 0; lane < 32; ++lane) {
        const LaneBytes bytes = lane_bytes(row, tile + block.codes, lane);
        for (int32_t c = 0; c < 32; ++c) {
            const Element at{c / 8, c / 2 % 4, c % 2};
            const int32_t r = lane / 4 + 8 * (at.a % 2);
            const int32_t column = 16 * (lane % 4) + 4 * at.j + 2 * (at.a / 2) + at.e;
            if (block.k0 + column >= to.k) continue;
            float* value = to.at(r, source_column(tables, block.k0 + column));
            if (!value) continue;
            *value =
                packed_value_of(scales, r, column, code_at(row, bytes, at)) * tables.global_scale;
            if (tables.table == ColumnTable::factors)
                *value *= std::bit_cast<float>(tables.columns[block.k0 + column]);
        }
    }
}

}  // namespace

void unpack(const std::byte* from, PackedType type, TileRows rows_of_tile, int64_t rows, int64_t k,
            const PackedTables& tables, float* out) {
    const int32_t height = rows_of_tile == TileRows::all ? 16 : 8;
    const int32_t first = rows_of_tile == TileRows::up_half ? 8 : 0;
    for (int64_t row = 0; row < rows; row += height) {
        Blocks blocks(type, k);
        for (Block block; blocks.next(block);)
            unpack_block(from, type, block, tables,
                         {out, k, row, std::min<int64_t>(height, rows - row), first});
        from += blocks.bytes();
    }
}

}  // namespace moe
