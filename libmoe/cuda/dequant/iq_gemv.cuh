// iq2_xxs, iq2_xs, iq3_xxs and iq3_s in gemv, and their tables: codes name entries of a fixed grid.
// Tables in shared memory turn the names and the signs of eight columns into signed bytes. Their
// entries have 32 bits, because a warp's look-ups of wider ones wait twice as long for each other's
// banks. Device only.
//
//   entries   iq2: of 8 columns, four bits each, the index of the magnitude; iq3: of 4 columns, the
//             magnitudes as bytes
//   signs     of 8 columns, four bits each: 4 (iq2) or 1 (iq3) where negative. xxs and xs name them
//             by seven bits, of which the eighth follows (base/iq_grids.hpp)
//
// Columns are in the order of k that operands have: of each four 0, 2, 1, 3.
#pragma once

#include "libmoe/base/iq_columns.hpp"
#include "libmoe/cuda/dequant/gemv_blocks.cuh"

namespace moe::cuda {

// Four items of `bits` bits each, in the order of operands, `apart` bits from each other.
template <int bits, int apart>
__device__ __forceinline__ uint32_t spread_four(uint32_t items) {
    constexpr uint32_t mask = (1u << bits) - 1;
    const auto item = [&](int column) { return items >> bits * column & mask; };
    return item(0) | item(2) << apart | item(1) << 2 * apart | item(3) << 3 * apart;
}
// The same of eight, four bits from each other.
template <int bits>
__device__ __forceinline__ uint32_t spread_eight(uint32_t items) {
    return spread_four<bits, 4>(items) | spread_four<bits, 4>(items >> 4 * bits) << 16;
}

// Levels `sign` times magnitude 0 to 3 of a grid as bytes.
template <class Grid>
constexpr uint32_t level_bytes(int32_t sign) {
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < 4; ++i)
        bytes |= static_cast<uint32_t>(sign * Grid::magnitude(i) & 255) << 8 * i;
    return bytes;
}
// Four magnitudes as bytes, in the order of operands; indices has 4 bits of each.
template <class Grid>
__device__ __forceinline__ uint32_t magnitude_bytes(uint32_t indices) {
    uint32_t bytes = 0;
    for (const int column : {0, 2, 1, 3})
        bytes = bytes >> 8 | static_cast<uint32_t>(Grid::magnitude(indices >> 4 * column & 15))
                                 << 24;
    return bytes;
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

// Both tables of a type in shared memory. flip: what levels are combined with by exclusive or.
template <PackedType packed, class Grid, class Names, uint32_t flip>
struct IqTables {
    static constexpr bool is_iq2 = Grid::index_bits == 2;
    static constexpr int32_t signs_at = 4 * Names::entries;
    static_assert(fixed_table_bytes(packed) == signs_at + 4 * Names::signs);

    // Entries `first`, `first` + stride and so on of both.
    static __device__ __forceinline__ void store(uint32_t to, int32_t first, int32_t stride) {
        for (int32_t i = first; i < Names::entries; i += stride) {
            const uint32_t entry = Names::entry_of_grid(static_cast<uint32_t>(i));
            store_shared(to + 4 * i,
                         is_iq2 ? spread_eight<2>(entry) : magnitude_bytes<Grid>(entry) ^ flip);
        }
        for (int32_t i = first; i < Names::signs; i += stride) {
            const auto name = static_cast<uint32_t>(i);
            const uint32_t signs = Names::signs == 256 ? name : iq_signs(name);
            store_shared(to + signs_at + 4 * i, spread_eight<1>(signs) * (is_iq2 ? 4 : 1));
        }
    }
    // Levels of a row's steps 2 i and 2 i + 1 as signed bytes.
    static __device__ __forceinline__ uint2 levels(uint32_t tables, const IqNames& names, int i) {
        const uint32_t signs = load_shared_4(tables + signs_at + 4 * Names::sign(names, i));
        const auto entry = [&](int number) {
            return load_shared_4(tables + 4 * Names::entry(names, number));
        };
        if constexpr (is_iq2) {
            const uint32_t selectors = entry(i) | signs;
            return {levels_of_iq2(selectors), levels_of_iq2(selectors >> 16)};
        } else {
            return {with_signs(entry(2 * i), signs), with_signs(entry(2 * i + 1), signs >> 16)};
        }
    }

  private:
    // Three magnitudes and their negatives fit one prmt.
    static __device__ __forceinline__ uint32_t levels_of_iq2(uint32_t selectors) {
        return permute_bytes(level_bytes<Grid>(1) ^ flip, level_bytes<Grid>(-1) ^ flip, selectors);
    }
    // No magnitude is zero, so that the sum carries into no other byte.
    static __device__ __forceinline__ uint32_t with_signs(uint32_t magnitudes, uint32_t signs) {
        const uint32_t negative = permute_bytes(0x0100u, 0, signs);
        return (magnitudes ^ negative * 0xFFu) + negative;
    }
};

template <PackedType packed, class Grid, class Names>
struct GemvIq : GemvDequantBase<packed> {
    using Base = GemvDequantBase<packed>;
    using Operand = BytesOf16<true>;
    using Tables = IqTables<packed, Grid, Names, 0>;
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
