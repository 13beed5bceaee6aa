// Readers, one per packing. None allocates; a block is one call.
#include "libmoe/weights/source_codes.hpp"

#include <algorithm>

#include "libmoe/base/element.hpp"
#include "libmoe/formats/format.hpp"

namespace moe {
namespace {

template <class Code>
void read_plain(const Matrix& source, const SourceBlock& block, Code (*to)[block_columns]) {
    const std::byte* first = source.data + block.row * source.row_stride;
    if (!source.column_stride) {
        first += block.column * static_cast<int64_t>(sizeof(Code));
        for (int32_t r = 0; r < block.rows; ++r)
            std::memcpy(to[r], first + r * source.row_stride,
                        static_cast<size_t>(block.columns) * sizeof(Code));
        return;
    }
    first += block.column * source.column_stride;
    for (int32_t c = 0; c < block.columns; ++c)
        for (int32_t r = 0; r < block.rows; ++r)
            to[r][c] = load<Code>(first + c * source.column_stride + r * source.row_stride);
}

// Eight nibbles to eight bytes, the lowest first.
constexpr uint64_t spread_nibbles(uint32_t nibbles) {
    uint64_t x = nibbles;
    x = (x | x << 16) & 0x0000FFFF0000FFFFu;
    x = (x | x << 8) & 0x00FF00FF00FF00FFu;
    return (x | x << 4) & 0x0F0F0F0F0F0F0F0Fu;
}

void read_nibble_pairs(const Matrix& source, const SourceBlock& block,
                       uint8_t (*to)[block_columns]) {
    for (int32_t r = 0; r < block.rows; ++r) {
        const std::byte* from =
            source.data + (block.row + r) * source.row_stride + block.column / 2;
        for (int32_t c = 0; c < block.columns; c += 8) {
            const uint64_t eight = spread_nibbles(load<uint32_t>(from + c / 2));
            std::memcpy(&to[r][c], &eight, 8);
        }
    }
}

// `count` bytes to their low nibbles, and their high ones `count` entries on.
void split_nibbles(const std::byte* from, int32_t count, uint8_t* to) {
    for (int32_t i = 0; i < count; i += 8) {
        const auto eight = load<uint64_t>(from + i);
        const uint64_t low = eight & 0x0F0F0F0F0F0F0F0Fu;
        const uint64_t high = eight >> 4 & 0x0F0F0F0F0F0F0F0Fu;
        std::memcpy(to + i, &low, 8);
        std::memcpy(to + count + i, &high, 8);
    }
}

void read_mxfp4_gguf(const Matrix& source, const SourceBlock& block, uint8_t (*to)[block_columns]) {
    for (int32_t r = 0; r < block.rows; ++r)
        for (int32_t c = 0; c < block.columns; c += 32)
            split_nibbles(gguf_block(source, block.row + r, block.column + c, 32, 17) + 1, 16,
                          &to[r][c]);
}

void read_nvfp4_gguf(const Matrix& source, const SourceBlock& block, uint8_t (*to)[block_columns]) {
    for (int32_t r = 0; r < block.rows; ++r) {
        const std::byte* q = gguf_block(source, block.row + r, block.column, 64, 36) + 4;
        for (int32_t c = 0; c < block.columns; c += 16) split_nibbles(q + c / 2, 8, &to[r][c]);
    }
}

void read_q8_0(const Matrix& source, const SourceBlock& block, uint8_t (*to)[block_columns]) {
    for (int32_t r = 0; r < block.rows; ++r)
        for (int32_t c = 0; c < block.columns; c += 32)
            std::memcpy(&to[r][c], gguf_block(source, block.row + r, block.column + c, 32, 34) + 2,
                        32);
}

void read_q4_k(const Matrix& source, const SourceBlock& block, uint8_t (*to)[block_columns]) {
    const int64_t quarter = block.column % 256 / 64;
    for (int32_t r = 0; r < block.rows; ++r)
        split_nibbles(gguf_block(source, block.row + r, block.column, 256, 144) + 16 + quarter * 32,
                      32, to[r]);
}

// Blocks whose format reads its own codes.
void read_gguf(const Matrix& source, const SourceBlock& block, uint8_t (*to)[block_columns]) {
    const FormatTraits& traits = *source.traits;
    const int32_t columns = traits.block_columns;
    const int32_t step = std::min(columns, block.columns);
    for (int32_t r = 0; r < block.rows; ++r)
        for (int32_t c = 0; c < block.columns; c += step) {
            const int64_t column = block.column + c;
            const std::byte* from =
                gguf_block(source, block.row + r, column, columns, traits.block_bytes);
            traits.read_codes(from, {static_cast<int>(column % columns), step}, &to[r][c]);
        }
}

// Formats that tell their parts.
void read_parts(const Matrix& source, const SourceBlock& block, uint8_t (*to)[block_columns]) {
    const GridParts& parts = *source.traits->parts;
    for (int32_t r = 0; r < block.rows; ++r) {
        if (block.order)
            parts.codes_at(source, block.row + r, block.order + block.column, block.columns, to[r]);
        else
            parts.codes(source, block.row + r, block.column, block.columns, to[r]);
    }
}

// Bit i of a byte in byte i.
struct BitSpread {
    uint64_t of[256];

    constexpr BitSpread() : of() {
        for (uint64_t byte = 0; byte < 256; ++byte)
            for (int32_t bit = 0; bit < 8; ++bit) of[byte] |= (byte >> bit & 1u) << (8 * bit);
    }
};
constexpr BitSpread bit_spread;

template <int32_t bits>
void read_planes(const Matrix& source, const SourceBlock& block, uint8_t (*to)[block_columns]) {
    for (int32_t r = 0; r < block.rows; ++r) {
        const std::byte* row = source.data + (block.row + r) * source.row_stride;
        for (int32_t c = 0; c < block.columns; c += 8) {
            const int64_t column = block.column + c;
            const std::byte* planes = row + column / 32 * (4 * bits) + column % 32 / 8;
            uint64_t eight = 0;
            for (int32_t b = 0; b < bits; ++b)
                eight |= bit_spread.of[load<uint8_t>(planes + 4 * b)] << b;
            std::memcpy(&to[r][c], &eight, 8);
        }
    }
}

ReadCodes<uint8_t> planes_of(int32_t bits) {
    switch (bits) {
        case 2:
            return read_planes<2>;
        case 3:
            return read_planes<3>;
        case 4:
            return read_planes<4>;
        default:
            return read_planes<5>;
    }
}

}  // namespace

template <>
ReadCodes<uint8_t> read_codes_of(const moe_format& format) {
    if (format.type != MOE_TYPE_F8_E4M3 && find_format(format)->parts) return read_parts;
    if (format.type == MOE_TYPE_E2M1) return read_nibble_pairs;
    if (format.type == MOE_TYPE_CODEBOOK) return planes_of(format.bits);
    if (format.type != MOE_TYPE_GGUF) return read_plain<uint8_t>;
    switch (format.block_id) {
        case 8:
            return read_q8_0;
        case 12:
            return read_q4_k;
        case 40:
            return read_nvfp4_gguf;
        case 39:
            return read_mxfp4_gguf;
        default:
            return find_format(format)->read_codes ? read_gguf : nullptr;
    }
}

template <>
ReadCodes<uint16_t> read_codes_of(const moe_format&) {
    return read_plain<uint16_t>;
}

template <>
ReadCodes<uint32_t> read_codes_of(const moe_format&) {
    return read_plain<uint32_t>;
}

}  // namespace moe
