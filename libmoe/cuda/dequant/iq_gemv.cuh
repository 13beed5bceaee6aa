// iq2_xxs, iq2_xs, iq3_xxs and iq3_s in gemv, and their tables: codes name entries of a fixed grid.
// Tables in shared memory turn the names and the signs of eight columns into signed bytes. Device
// only.
//
//   magnitudes   entry i: those of 8 columns (iq2) or 4 (iq3) as bytes
//   signs        entry i: bytes of 1 where the bits of 8 columns say negative. xxs and xs name them
//                by seven bits, of which the eighth follows (base/iq_grids.hpp)
//
// Bytes of an entry are in the order of k that operands have: of each four 0, 2, 1, 3.
#pragma once

#include "libmoe/base/iq_columns.hpp"
#include "libmoe/cuda/dequant/gemv_blocks.cuh"

namespace moe::cuda {

// Bits 0 to 3 of eight, and 4 to 7, as bytes in the order of operands.
__device__ __forceinline__ uint2 sign_bytes(uint32_t signs) {
    const auto four = [](uint32_t bits) {
        return (bits & 1) | (bits >> 2 & 1) << 8 | (bits >> 1 & 1) << 16 | (bits >> 3 & 1) << 24;
    };
    return {four(signs), four(signs >> 4)};
}

// Magnitudes of the four columns whose indices begin at the lowest bit.
template <class Grid>
__device__ __forceinline__ uint32_t magnitude_bytes(uint32_t indices) {
    constexpr uint32_t mask = (1u << Grid::index_bits) - 1;
    const auto byte = [&](int column) {
        return static_cast<uint32_t>(Grid::magnitude(indices >> Grid::index_bits * column & mask));
    };
    return byte(0) | byte(2) << 8 | byte(1) << 16 | byte(3) << 24;
}

// Names of entries and signs of 16 columns of a row.
struct IqNames {
    uint32_t entries, signs;
};

// Two half-words of a row, which is on a multiple of two.
__device__ __forceinline__ uint32_t load_shared_2_by_2(uint32_t from) {
    return load_shared_2(from) | load_shared_2(from + 2) << 16;
}

// A type reads columns 16 t to 16 t + 15 of a row: names(row, t), entry(names, i) of their eights
// (iq2) or fours (iq3), sign(names, i) of their eights. A scale is (scale_code + 1/2) times
// scale_unit and the float16 that the row begins with.
struct Iq2XxsNames {
    static constexpr int32_t entries = 256, signs = 128;
    static constexpr float scale_unit = 0.25f;
    static __device__ __forceinline__ uint32_t entry_of_grid(uint32_t i) {
        return iq2_xxs_entry(i);
    }
    static __device__ __forceinline__ IqNames names(uint32_t row, uint32_t t) {
        const uint32_t group = row + 2 + t / 2 * 8, j = t % 2 * 2;
        return {load_shared_2(group + j), load_shared_2_by_2(group + 4) >> 7 * j};
    }
    static __device__ __forceinline__ uint32_t entry(const IqNames& names, int i) {
        return names.entries >> 8 * i & 255u;
    }
    static __device__ __forceinline__ uint32_t sign(const IqNames& names, int i) {
        return names.signs >> 7 * i & 127u;
    }
    static __device__ __forceinline__ uint32_t scale_code(uint32_t row, uint32_t t) {
        return load_shared_2(row + 8 + t / 2 * 8) >> 12;
    }
};

struct Iq2XsNames {
    static constexpr int32_t entries = 512, signs = 128;
    static constexpr float scale_unit = 0.25f;
    static __device__ __forceinline__ uint32_t entry_of_grid(uint32_t i) { return iq2_xs_entry(i); }
    static __device__ __forceinline__ IqNames names(uint32_t row, uint32_t t) {
        const uint32_t both = load_shared_2_by_2(row + 2 + 4 * t);
        return {both, both};
    }
    static __device__ __forceinline__ uint32_t entry(const IqNames& names, int i) {
        return names.entries >> 16 * i & 511u;
    }
    static __device__ __forceinline__ uint32_t sign(const IqNames& names, int i) {
        return names.signs >> (16 * i + 9) & 127u;
    }
    static __device__ __forceinline__ uint32_t scale_code(uint32_t row, uint32_t t) {
        return load_shared_1(row + 66 + t / 2) >> t % 2 * 4 & 15u;
    }
};

struct Iq3XxsNames {
    static constexpr int32_t entries = 256, signs = 128;
    static constexpr float scale_unit = 0.5f;
    static __device__ __forceinline__ uint32_t entry_of_grid(uint32_t i) {
        return iq3_xxs_entry(i);
    }
    static __device__ __forceinline__ IqNames names(uint32_t row, uint32_t t) {
        return {load_shared_2_by_2(row + 2 + 4 * t),
                load_shared_2_by_2(row + 66 + t / 2 * 4) >> t % 2 * 14};
    }
    static __device__ __forceinline__ uint32_t entry(const IqNames& names, int i) {
        return names.entries >> 8 * i & 255u;
    }
    static __device__ __forceinline__ uint32_t sign(const IqNames& names, int i) {
        return names.signs >> 7 * i & 127u;
    }
    static __device__ __forceinline__ uint32_t scale_code(uint32_t row, uint32_t t) {
        return load_shared_2(row + 68 + t / 2 * 4) >> 12;
    }
};

struct Iq3SNames {
    static constexpr int32_t entries = 512, signs = 256;
    static constexpr float scale_unit = 2.0f;
    static __device__ __forceinline__ uint32_t entry_of_grid(uint32_t i) { return iq3_s_entry(i); }
    // The ninth bits of entries are above the signs.
    static __device__ __forceinline__ IqNames names(uint32_t row, uint32_t t) {
        const uint32_t ninth = load_shared_1(row + 66 + t / 2) >> t % 2 * 4;
        return {load_shared_2_by_2(row + 2 + 4 * t), load_shared_2(row + 74 + 2 * t) | ninth << 16};
    }
    static __device__ __forceinline__ uint32_t entry(const IqNames& names, int i) {
        return (names.entries >> 8 * i & 255u) | (names.signs >> (16 + i) & 1u) << 8;
    }
    static __device__ __forceinline__ uint32_t sign(const IqNames& names, int i) {
        return names.signs >> 8 * i & 255u;
    }
    static __device__ __forceinline__ uint32_t scale_code(uint32_t row, uint32_t t) {
        return load_shared_1(row + 106 + t / 4) >> t / 2 % 2 * 4 & 15u;
    }
};

// Both tables of a type in shared memory.
template <PackedType packed, class Grid, class Names>
struct IqTables {
    static constexpr int columns_of_entry = Grid::index_bits == 2 ? 8 : 4;
    static constexpr int32_t signs_at = Names::entries * columns_of_entry;
    static_assert(fixed_table_bytes(packed) == signs_at + 8 * Names::signs);

    // Entries `first`, `first` + stride and so on of both.
    static __device__ __forceinline__ void store(uint32_t to, int32_t first, int32_t stride) {
        for (int32_t i = first; i < Names::entries; i += stride) {
            const uint32_t entry = Names::entry_of_grid(static_cast<uint32_t>(i));
            const uint32_t low = magnitude_bytes<Grid>(entry);
            if constexpr (columns_of_entry == 8)
                store_shared(to + 8 * i, uint2{low, magnitude_bytes<Grid>(entry >> 8)});
            else
                store_shared(to + 4 * i, low);
        }
        for (int32_t i = first; i < Names::signs; i += stride) {
            const auto name = static_cast<uint32_t>(i);
            store_shared(to + signs_at + 8 * i,
                         sign_bytes(Names::signs == 256 ? name : iq_signs(name)));
        }
    }
    // Levels of a row's steps 2 i and 2 i + 1 as signed bytes.
    static __device__ __forceinline__ uint2 levels(uint32_t tables, const IqNames& names, int i) {
        uint2 magnitudes;
        if constexpr (columns_of_entry == 8) {
            magnitudes = load_shared_8(tables + 8 * Names::entry(names, i));
        } else {
            magnitudes.x = load_shared_4(tables + 4 * Names::entry(names, 2 * i));
            magnitudes.y = load_shared_4(tables + 4 * Names::entry(names, 2 * i + 1));
        }
        const uint2 signs = load_shared_8(tables + signs_at + 8 * Names::sign(names, i));
        return {with_signs(magnitudes.x, signs.x), with_signs(magnitudes.y, signs.y)};
    }

  private:
    // No magnitude is zero, so that the sum carries into no other byte.
    static __device__ __forceinline__ uint32_t with_signs(uint32_t magnitudes, uint32_t negative) {
        return (magnitudes ^ negative * 0xFFu) + negative;
    }
};

template <PackedType packed, class Grid, class Names>
struct GemvIq : GemvDequantBase<packed> {
    using Base = GemvDequantBase<packed>;
    using Operand = BytesOf16<true>;
    using Tables = IqTables<packed, Grid, Names>;
    static constexpr int32_t span = 1;
    static constexpr float residual_scale = Names::scale_unit;
    static constexpr uint32_t row_bytes = ggml_scale_bytes(packed);

    static __device__ __forceinline__ void store_tables(uint32_t to, int32_t first,
                                                        int32_t stride) {
        Tables::store(to, first, stride);
    }

    template <int n>
    struct Words {
        IqNames row[2];
    };
    struct GroupScales {
        uint32_t row;  // row g of the split
        uint32_t t;
        float factor[2];
        __device__ __forceinline__ GroupScales(uint32_t k_block, int32_t block, int32_t lane)
            : row(row_of(k_block, block, lane)), t(lane & 3) {
            factor[0] = f16_value(load_shared_2(row));
            factor[1] = f16_value(load_shared_2(row + 8 * row_bytes));
        }
    };
    static __device__ __forceinline__ void load(Words<1>& words, uint32_t k_block, int32_t block,
                                                int32_t lane) {
        const uint32_t row = row_of(k_block, block, lane);
        const uint32_t t = 4 * (block & 3) + (lane & 3);
        words.row[0] = Names::names(row, t);
        words.row[1] = Names::names(row + 8 * row_bytes, t);
    }
    static __device__ __forceinline__ void two_steps(const Words<1>& words, int i, uint32_t tables,
                                                     uint32_t (&a)[4]) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            const uint2 levels = Tables::levels(tables, words.row[row], i);
            a[row] = levels.x;
            a[row + 2] = levels.y;
        }
    }
    static __device__ __forceinline__ RowScales factors(const GroupScales& of, int32_t block) {
        const uint32_t t = 4 * (block & 3) + of.t;
        return {of.factor[0] * scale(of.row, t), of.factor[1] * scale(of.row + 8 * row_bytes, t)};
    }

  private:
    static __device__ __forceinline__ uint32_t row_of(uint32_t k_block, int32_t block,
                                                      int32_t lane) {
        return k_block + (block >> 2) * Base::min_split_bytes + row_bytes * (lane >> 2);
    }
    static __device__ __forceinline__ float scale(uint32_t row, uint32_t t) {
        return static_cast<float>(Names::scale_code(row, t)) + 0.5f;
    }
};

}  // namespace moe::cuda
