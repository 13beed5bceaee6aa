// What the packing tests share: matrices of random codes in every format, packing between guards,
// and the comparison with what the format decodes to.
#pragma once

#include <gtest/gtest.h>

#include "libmoe/formats/entries.hpp"
#include "libmoe/packed/unpack.hpp"
#include "libmoe/weights/lower.hpp"
#include "tests/formats/matrices.hpp"

namespace moe::test {

// The formats with a public name that lower to a packed type.
inline std::vector<const FormatTraits*> packed_formats() {
    std::vector<const FormatTraits*> all;
    for (const FormatTraits& traits : all_formats())
        if (packed_type_of(traits.format) != PackedType::none) all.push_back(&traits);
    return all;
}

// Those, and the ones without a public name.
inline std::vector<const FormatTraits*> formats() {
    std::vector<const FormatTraits*> all = packed_formats();
    for (const FormatTraits& traits : kbit_given_formats) all.push_back(&traits);
    all.push_back(&fp8_128x128_e8m0_format);
    all.push_back(&nvfp4_divide_format);
    return all;
}

// By how many steps of float32 a packed value may differ: one rounding where a global scale
// divides, and what a factor makes of it.
inline int64_t most_steps(const FormatTraits& traits) {
    if (traits.format.global_scale != MOE_GLOBAL_SCALE_DIVIDE) return 0;
    return traits.format.pre_quant_scale ? 3 : 1;
}

// Scales that every type takes: finite and, of mxfp4, within what one matrix can hold.
inline void make_scale(const FormatTraits& traits, Random& random, std::byte* place) {
    const uint64_t bits = random.next();
    switch (traits.format.scale_type) {
        case MOE_TYPE_F32: {
            const float scale = static_cast<float>(random.gaussian()) * 0.01f;
            std::memcpy(place, &scale, 4);
            return;
        }
        case MOE_TYPE_F8_E8M0:
            *place = static_cast<std::byte>(64 + bits % 126);
            return;
        case MOE_TYPE_F8_E4M3:
            *place = static_cast<std::byte>((bits & 0x7F) == 0x7F ? bits & 0x80 : bits & 0xFF);
            return;
        default:
            *place = static_cast<std::byte>(bits & 0xFF);
    }
}

// f16 heads of GGUF blocks that are random bits must not be NaN.
inline void make_gguf_heads(Stored& stored, Random& random) {
    const FormatTraits& traits = *stored.traits;
    for (size_t i = 0; i < stored.data.size(); i += static_cast<size_t>(traits.block_bytes)) {
        if (traits.format.block_id == 39)
            stored.data[i] = static_cast<std::byte>(64 + random.next() % 126);
        for (const size_t f16 : f16_places(traits.format))
            stored.data[i + f16 + 1] &= std::byte{0xBF};
    }
}

// Random codes of all kinds, not the encoder's choice of them.
inline Stored make(const FormatTraits& traits, int64_t rows, int64_t columns, uint64_t seed = 1) {
    Stored stored(traits, rows, columns);
    Random random(seed);
    stored.data = random_bytes(stored.bytes.data, seed);
    for (size_t i = 0; i < stored.scales.size(); i += static_cast<size_t>(traits.scale_bytes))
        make_scale(traits, random, stored.scales.data() + i);
    if (traits.format.type == MOE_TYPE_GGUF) make_gguf_heads(stored, random);
    if (traits.format.codebook == MOE_CODEBOOK_GIVEN)
        for (int i = 0; i < 1 << traits.format.bits; ++i)
            stored.codebook.push_back(static_cast<float>(random.gaussian()));
    if (traits.format.global_scale != MOE_GLOBAL_SCALE_NONE) stored.global_scale = 0.0371f;
    return stored;
}

inline Matrix view(const Stored& stored) {
    Matrix matrix = stored.view();
    matrix.traits = stored.traits;
    return matrix;
}

inline int64_t tiles_of(int64_t rows, TileRows half) {
    return rows / (half == TileRows::all ? 16 : 8);
}

struct Packed {
    std::vector<std::byte> bytes;
    PackedType type;
    float global;
};

// The table of columns; empty where the format has none.
inline std::vector<uint32_t> columns_of(const Matrix& source) {
    if (column_table_of(source.format) == ColumnTable::none) return {};
    std::vector<uint32_t> columns(static_cast<size_t>(source.columns));
    packed_columns(source, columns.data(), "test");
    return columns;
}

inline Packed packed(const Matrix& source, TileRows half = TileRows::all, std::byte fill = {},
                     bool keeps_biases = false) {
    Packed out;
    out.type = packed_type_of(source.format);
    const auto size =
        static_cast<size_t>(tiles_of(source.rows, half) * tile_bytes(out.type, source.columns));
    out.bytes.assign(size + 64, fill);  // 64 bytes that must stay
    const std::vector<uint32_t> columns = columns_of(source);
    out.global =
        pack(source, out.type, half, out.bytes.data(), "test",
             source.permutation && !columns.empty() ? columns.data() : nullptr, keeps_biases);
    for (size_t i = size; i < out.bytes.size(); ++i)
        EXPECT_EQ(out.bytes[i], fill) << "past the end";
    out.bytes.resize(size);
    return out;
}

inline std::vector<float> unpacked(const Packed& matrix, const Matrix& source,
                                   TileRows half = TileRows::all) {
    std::vector<float> out(static_cast<size_t>(source.rows * source.columns), -77.0f);
    std::vector<float> codebook(32);
    const std::vector<uint32_t> columns = columns_of(source);
    if (has_codebook(matrix.type)) packed_codebook(source, matrix.type, codebook.data());
    unpack(matrix.bytes.data(), matrix.type, half, source.rows, source.columns,
           {matrix.global, codebook.data(), columns.data(), column_table_of(source.format)},
           out.data());
    return out;
}

inline int64_t steps_between(float a, float b) {
    const auto ordered = [](float x) {
        const auto bits = std::bit_cast<int32_t>(x);
        return static_cast<int64_t>(bits < 0 ? INT32_MIN - bits : bits);
    };
    return std::abs(ordered(a) - ordered(b));
}

inline void expect_values(const std::vector<float>& got, const Matrix& source,
                          const std::string& what) {
    const auto wanted = decode_all(source, *source.traits);
    ASSERT_EQ(got.size(), wanted.size());
    double norm = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        const int64_t most = most_steps(*source.traits);
        const bool good =
            most ? steps_between(got[i], wanted[i]) <= most : same_float(got[i], wanted[i]);
        ASSERT_TRUE(good) << what << ": row " << i / static_cast<size_t>(source.columns)
                          << ", column " << i % static_cast<size_t>(source.columns) << " is "
                          << got[i] << ", not " << wanted[i];
        norm += wanted[i] != 0;
    }
    ASSERT_GT(norm, static_cast<double>(got.size()) / 4) << what << ": mostly zeros prove nothing";
}

}  // namespace moe::test
