// A ggml block format: rows are runs of blocks that hold codes and scales together. Its file gives
// the size of a block and how one block decodes and encodes; the rest is the same for all.
#pragma once

#include "libmoe/formats/block.hpp"
#include "libmoe/formats/entries.hpp"

namespace moe {

// Block: static constexpr int32_t id (ggml type number), columns, bytes; static decode(const
// std::byte*, float*) and, unless it is only read, encode(const float*, std::byte*).
template <class Block>
struct GgufFormat {
    static void decode(const Matrix& matrix, int64_t row, int64_t column, int64_t count,
                       float* out) {
        const std::byte* bytes =
            matrix.data + row * matrix.row_stride + column / Block::columns * Block::bytes;
        for (int64_t i = 0; i < count / Block::columns; ++i)
            Block::decode(bytes + i * Block::bytes, out + i * Block::columns);
    }

    static void encode(const FormatTraits& traits, const float* source, int64_t rows,
                       int64_t columns, const EncodeTarget& target) {
        require_finite(traits, source, rows, columns);
        for (int64_t i = 0; i < rows * columns / Block::columns; ++i)
            Block::encode(source + i * Block::columns, target.data + i * Block::bytes);
    }

    static constexpr auto encoder() -> decltype(FormatTraits::encode) {
        if constexpr (requires { &Block::encode; }) return encode;
        return nullptr;
    }

    static constexpr auto codes_reader() -> decltype(FormatTraits::read_codes) {
        if constexpr (requires { &Block::read_codes; }) return Block::read_codes;
        return nullptr;
    }

    static constexpr FormatTraits traits(const char* name) {
        moe_format format = format_of(MOE_TYPE_GGUF);
        format.block_id = Block::id;
        return {.name = name,
                .format = format,
                .block_rows = 1,
                .block_columns = Block::columns,
                .block_bytes = Block::bytes,
                .scale_bytes = 0,
                .decode = decode,
                .encode = encoder(),
                .read_codes = codes_reader()};
    }
};

}  // namespace moe
