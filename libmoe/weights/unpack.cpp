// unpack(): the values of a packed matrix, code by code by the formulas of packed.hpp, those of
// heads and grids as kernels have them. For tests and updates; nothing here is shared with the
// placing of codes.
#include <algorithm>

#include "libmoe/formats/element.hpp"
#include "libmoe/weights/ggml_scales.hpp"
#include "libmoe/weights/pack.hpp"
#include "libmoe/weights/packed_grid.hpp"
#include "libmoe/weights/packed_scales.hpp"

namespace moe {
namespace {

struct Block {
    PackedType type;
    int32_t n;
    const std::byte* codes;
    const std::byte* scales;
    int64_t k0;
    const PackedTables& tables;
};

template <class T>
T scale_of(const Block& block, int32_t row, int32_t column, int32_t group) {
    const int32_t place = scale_offset(row, column / group, 16 * block.n / group);
    return load<T>(block.scales + place * static_cast<int32_t>(sizeof(T)));
}

float value_of(const Block& block, int32_t row, int32_t column) {
    const uint32_t code = take_code(block.type, block.n, block.codes, row, column);
    const auto byte = static_cast<uint8_t>(code);
    if (is_grid(block.type)) {
        const GridFactor factor =
            grid_factor(block.type, block.scales, row, block.k0 + column, block.tables.columns);
        return grid_value(block.type, factor, code, block.tables.codebook);
    }
    if (has_ggml_scales(block.type)) {
        const std::byte* head = block.scales + ggml_scale_offset(block.type, block.n, row, column);
        return ggml_value(block.type, head, block.k0, column, code);
    }
    switch (block.type) {
        case PackedType::f32:
            return std::bit_cast<float>(code);
        case PackedType::f16:
            return f16_to_float(static_cast<uint16_t>(code));
        case PackedType::bf16:
            return bf16_to_float(static_cast<uint16_t>(code));
        case PackedType::e4m3:
            return e4m3_to_f32(byte) *
                   load<float>(block.scales + 4 * (2 * (column / 32) + row / 8));
        case PackedType::nvfp4:
            return e2m1_to_f32(byte) * nvfp4_scale(scale_of<uint8_t>(block, row, column, 16));
        case PackedType::mxfp4:
            return e2m1_to_f32(byte) * e8m0_to_f32(scale_of<uint8_t>(block, row, column, 32));
        case PackedType::q8_0:
            return f16_to_float(scale_of<uint16_t>(block, row, column, 32)) *
                   static_cast<float>(static_cast<int8_t>(byte));
        case PackedType::kbit2:
        case PackedType::kbit3:
        case PackedType::kbit4:
        case PackedType::kbit5:
            return block.tables.codebook[code] *
                   e4m4_to_f32(scale_of<uint8_t>(block, row, column, 32));
        default:
            return block.tables.codebook[code] * scale_of<float>(block, row, column, 32);
    }
}

}  // namespace

void unpack(const std::byte* from, PackedType type, TileRows tile_rows_used, int64_t rows,
            int64_t k, const PackedTables& tables, float* out) {
    const int32_t height = tile_rows_used == TileRows::all ? tile_rows : 8;
    const int32_t first = tile_rows_used == TileRows::second_half ? 8 : 0;
    for (int64_t row = 0; row < rows; ++row) {
        const std::byte* tile = from + row / height * tile_bytes(type, k);
        const auto tile_row = static_cast<int32_t>(row % height + first);
        for (int64_t k0 = 0; k0 < k; k0 += 16 * steps_of_block(k0, k)) {
            const int32_t n = steps_of_block(k0, k);
            const BlockOffset place = block_offset(type, k, k0, n);
            const Block block{type, n, tile + place.codes, tile + place.scales, k0, tables};
            for (int32_t c = 0; c < 16 * n; ++c)
                out[row * k + k0 + c] = value_of(block, tile_row, c) * tables.global_scale;
        }
    }
}

}  // namespace moe
